/* Sets the TDF of a process, with -r of its descendants too.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "utility_functions.h"

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-r] [-p pid] [-n name] TDF\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, recurse = 0, pid = -1;
    char *name = NULL;
    float dilation;
    while ((opt = getopt(argc, argv, "rnph")) != -1) {
        switch (opt) {
        case 'r':
            recurse = 1;
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
    if (optind + 1 >= argc || sscanf(argv[optind + 1], "%f", &dilation) != 1) return usage(argv[0]);
    if (recurse ? dilate_all(pid, dilation) : dilate(pid, dilation)) {
        printf("Error, most likely invalid TDF\n");
        return -1;
    }
    exit(EXIT_SUCCESS);
}
