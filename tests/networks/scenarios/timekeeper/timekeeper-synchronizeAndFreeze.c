/* Freezes all processes of the experiment at one virtual time.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    if (getopt(argc, argv, "h") != -1) return usage(argv[0]);
    synchronizeAndFreeze();
    exit(EXIT_SUCCESS);
}
