/* Calls one of TimeKeeper's functions for each line on standard input, and prints the result as a line of
 * JSON: FUNCTION PID NUMBER. Times are microseconds since 1970; so is the result of a new process. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <timekeeper.h>
#include <unistd.h>

static int call(const char *what, int pid, const char *name, double number, long *micros) {
    struct timeval tv = {0};
    struct timezone tz;
    int result = -2;
    if (!strcmp(what, "clone_time")) {
        /* PID says whether the new process is held. 2: with a wrong flag. 3: as CORE's nodes. */
        const int core = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET;
        const int flags[] = {CLONE_NEWUTS, CLONE_NEWUTS, CLONE_VM, core};
        result = clone_time(SIGCHLD | flags[pid], number, pid == 1);
        while (result == 0) {
        }
        *micros = result;
        return result < 0 ? -1 : 0;
    }
    if (!strcmp(what, "dilate")) return dilate(pid, number);
    if (!strcmp(what, "dilate_all")) return dilate_all(pid, number);
    if (!strcmp(what, "freeze")) return freeze(pid);
    if (!strcmp(what, "freeze_all")) return freeze_all(pid);
    if (!strcmp(what, "unfreeze")) return unfreeze(pid);
    if (!strcmp(what, "unfreeze_all")) return unfreeze_all(pid);
    if (!strcmp(what, "leap")) return leap(pid, (int)number);
    if (!strcmp(what, "leap_to")) return leap_to(pid, (int)number);
    if (!strcmp(what, "addToExp")) return addToExp(pid, (int)number);
    if (!strcmp(what, "synchronizeAndFreeze")) return synchronizeAndFreeze();
    if (!strcmp(what, "startExp")) return startExp();
    if (!strcmp(what, "setInterval")) return setInterval(pid, (int)number, 0);
    if (!strcmp(what, "progress")) return progress((int)number, 0);
    if (!strcmp(what, "reset")) return reset((int)number);
    if (!strcmp(what, "stopExp")) return stopExp();
    if (!strcmp(what, "gettimepid")) result = gettimepid(pid ? pid : getpid(), &tv, &tz);
    if (!strcmp(what, "gettimename")) result = gettimename((char *)name, &tv, &tz);
    if (!strcmp(what, "gettimeofdayoriginal")) result = gettimeofdayoriginal(&tv, NULL);
    if (!strcmp(what, "gettimeofday")) result = gettimeofday(&tv, NULL);
    *micros = tv.tv_sec * 1000000L + tv.tv_usec;
    return result;
}

int main(void) {
    char line[256], what[64], who[160];
    while (fgets(line, sizeof line, stdin)) {
        int pid = 0;
        double number = 0;
        long micros = 0;
        who[0] = 0;
        if (sscanf(line, "%63s %159s %lf", what, who, &number) < 1) continue;
        sscanf(who, "%d", &pid);
        errno = 0;
        int result = call(what, pid, who, number, &micros);
        printf("{\"ev\": \"%s\", \"result\": %d, \"errno\": %d, \"micros\": %ld, \"error\": \"%s\"}\n", what,
               result, errno, micros, result ? timekeeper_error() : "");
        fflush(stdout);
    }
    return 0;
}
