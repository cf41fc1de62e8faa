/* Sets how far a process moves with each progress, in virtual microseconds.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "utility_functions.h"

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-p pid] [-n name] interval timeline\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, pid = -1, interval, timeline;
    char *name = NULL;
    while ((opt = getopt(argc, argv, "nph")) != -1) {
        switch (opt) {
        case 'n':
            name = argv[optind];
            break;
        case 'p':
            pid = atoi(argv[optind]);
            break;
        default:
            return usage(argv[0]);
        }
    }
    if (name == NULL && pid == -1) return usage(argv[0]);
    if (name != NULL) pid = getpidfromname(name);
    if (optind + 2 >= argc) return usage(argv[0]);
    sscanf(argv[optind + 1], "%d", &interval);
    sscanf(argv[optind + 2], "%d", &timeline);
    setInterval(pid, interval, timeline);
    exit(EXIT_SUCCESS);
}
