/* Drops the intervals of a timeline.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s -t timeline\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, timeline = 0;
    while ((opt = getopt(argc, argv, "th")) != -1) {
        switch (opt) {
        case 't':
            timeline = atoi(argv[optind]);
            break;
        default:
            return usage(argv[0]);
        }
    }
    reset(timeline);
    exit(EXIT_SUCCESS);
}
