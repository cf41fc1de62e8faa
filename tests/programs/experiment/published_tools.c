/* In the shape of TimeKeeper's published utilities: one call each, told by the first word. */
#include <TimeKeeper_functions.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "utility_functions.h"

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s what pid [number]\n", name);
    return 2;
}

int main(int argc, char *argv[]) {
    float dil = 0;
    if (argc < 3) return usage(argv[0]);
    char *what = argv[1];
    int pid = atoi(argv[2]);
    if (argc > 3) sscanf(argv[3], "%f", &dil);
    int number = argc > 3 ? atoi(argv[3]) : 0;
    if (!is_root() || !isModuleLoaded() || gettid() != getpid()) return 3;
    if (!strcmp(what, "name")) {
        printf("%d\n", getpidfromname(argv[2]));
        return 0;
    }
    if (!strcmp(what, "fix")) {
        printf("%d\n", fixDilation(dil));
        return 0;
    }
    if (!strcmp(what, "gettime")) {
        struct timeval tv;
        if (gettimepid(pid, &tv, NULL)) return 1;
        printf("%ld.%06ld\n", (long)tv.tv_sec, (long)tv.tv_usec);
        return 0;
    }
    int result = -2;
    if (!strcmp(what, "dilate")) result = dilate(pid, dil);
    if (!strcmp(what, "dilate_all")) result = dilate_all(pid, dil);
    if (!strcmp(what, "leap")) result = leap(pid, number);
    if (!strcmp(what, "freeze")) result = freeze(pid);
    if (!strcmp(what, "unfreeze")) result = unfreeze(pid);
    if (!strcmp(what, "addToExp")) result = addToExp(pid, number);
    if (!strcmp(what, "timeslice")) result = set_cbe_experiment_timeslice(strtoull(argv[2], NULL, 10));
    if (!strcmp(what, "synchronizeAndFreeze")) result = synchronizeAndFreeze();
    if (!strcmp(what, "startExp")) result = startExp();
    if (!strcmp(what, "stopExp")) result = stopExp();
    if (result) printf("Error: %s\n", timekeeper_error());
    return result ? 1 : 0;
}
