/* Moves all processes of a timeline by their intervals.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-f] -t timeline\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, timeline = 0, force = 0;
    while ((opt = getopt(argc, argv, "tfh")) != -1) {
        switch (opt) {
        case 't':
            timeline = atoi(argv[optind]);
            break;
        case 'f':
            force = 1;
            break;
        default:
            return usage(argv[0]);
        }
    }
    progress(timeline, force);
    exit(EXIT_SUCCESS);
}
