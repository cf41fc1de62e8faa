/* Stops a process and its time, with -r its descendants too.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-r] pid\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, recurse = 0, pid;
    while ((opt = getopt(argc, argv, "rh")) != -1) {
        switch (opt) {
        case 'r':
            recurse = 1;
            break;
        default:
            return usage(argv[0]);
        }
    }
    if (optind >= argc || (pid = atoi(argv[optind])) <= 0) return usage(argv[0]);
    if (recurse)
        freeze_all(pid);
    else
        freeze(pid);
    exit(EXIT_SUCCESS);
}
