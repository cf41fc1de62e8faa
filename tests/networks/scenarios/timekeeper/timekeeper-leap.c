/* Moves a process forward by virtual microseconds.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "utility_functions.h"

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s pid interval\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int pid, interval;
    if (getopt(argc, argv, "h") != -1) return usage(argv[0]);
    if (argc != 3) return usage(argv[0]);
    sscanf(argv[1], "%d", &pid);
    sscanf(argv[2], "%d", &interval);
    leap(pid, interval);
    exit(EXIT_SUCCESS);
}
