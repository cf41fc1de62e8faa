/* Adds a process to the experiment: to a timeline, or below 0 to one that runs by itself.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "utility_functions.h"

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-t timeline] [-d TDF] [-p pid] [-n name]\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, pid = -1, timeline = -1;
    float dilation = -1;
    char *name = NULL;
    while ((opt = getopt(argc, argv, "tdnp")) != -1) {
        switch (opt) {
        case 't':
            timeline = atoi(argv[optind]);
            break;
        case 'd':
            dilation = atof(argv[optind]);
            break;
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
    if (dilation != -1 && dilate_all(pid, dilation)) {
        printf("Error, most likely invalid TDF\n");
        return -1;
    }
    addToExp(pid, timeline);
    exit(EXIT_SUCCESS);
}
