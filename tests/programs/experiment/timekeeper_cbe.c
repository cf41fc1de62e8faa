/* The order of operations of TimeKeeper's figure 3.1, an experiment that runs by itself:
 *
 *     timekeeper_cbe PROCESSES MICROS
 *
 * Each process counts what it can. When the first has gone on by MICROS of virtual time since all stood,
 * the parent freezes nothing and asks nobody: it looks at how far all are, and stops the experiment. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <timekeeper.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64 };

static long micros_of(int pid) {
    struct timeval tv = {0};
    gettimepid(pid, &tv, NULL);
    return tv.tv_sec * 1000000L + tv.tv_usec;
}

static void must(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, timekeeper_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    int processes = argc > 1 ? atoi(argv[1]) : 2, pids[MAX_PROCESSES];
    long micros = argc > 2 ? atol(argv[2]) : 100000, begin[MAX_PROCESSES];
    volatile long *counts =
        mmap(NULL, sizeof *counts * MAX_PROCESSES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < processes; i++) {
        pids[i] = clone_time(SIGCHLD, i ? 1 : 4, 1);
        must("clone_time", pids[i]);
        if (pids[i] == 0)
            for (;;) counts[i]++;
    }
    for (int i = 0; i < processes; i++) must("addToExp", addToExp(pids[i], -1));
    must("synchronizeAndFreeze", synchronizeAndFreeze());
    for (int i = 0; i < processes; i++) {
        begin[i] = micros_of(pids[i]);
        printf("{\"ev\": \"stands\", \"process\": %d, \"at\": %ld, \"count\": %ld}\n", i,
               begin[i] - begin[0], counts[i]);
    }
    must("startExp", startExp());
    /* No bound here: the test has one. */
    while (micros_of(pids[0]) - begin[0] < micros) usleep(1000);
    printf("{\"ev\": \"interval\", \"result\": %d}\n", setInterval(pids[0], 1000, 0));
    for (int i = 0; i < processes; i++)
        printf("{\"ev\": \"gone\", \"process\": %d, \"micros\": %ld, \"count\": %ld}\n", i,
               micros_of(pids[i]) - begin[i], counts[i]);
    must("stopExp", stopExp());
    for (int i = 0; i < processes; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    printf("{\"ev\": \"done\"}\n");
    return 0;
}
