/* The order of operations of TimeKeeper's figure 3.2, a simulator that moves its processes:
 *
 *     timekeeper_cs PROCESSES ROUNDS INTERVAL_US [die]
 *
 * Each process counts without pause, and sends the time it reads to its parent on request. The
 * parent prints the result of each step as a line of JSON. With "die" it ends itself in the
 * middle. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <timekeeper.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64 };

/* Shared by a process and its parent: the last time it has read, and its count. */
static struct seen {
    volatile long micros;
    volatile long count;
} *shared;

static long micros_of(const struct timeval *tv) { return tv->tv_sec * 1000000L + tv->tv_usec; }

static void look_and_count(struct seen *seen) {
    for (;;) {
        struct timeval tv;
        gettimeofday(&tv, NULL);
        if (micros_of(&tv) > seen->micros) seen->micros = micros_of(&tv);
        seen->count++;
    }
}

static void say(const char *what, int result) {
    printf("{\"ev\": \"%s\", \"result\": %d, \"errno\": %d, \"error\": \"%s\"}\n", what, result,
           result ? errno : 0, result ? timekeeper_error() : "");
    fflush(stdout);
}

static long time_of(int pid) {
    struct timeval tv = {0};
    struct timezone tz;
    if (gettimepid(pid, &tv, &tz)) say("gettimepid", -1);
    return micros_of(&tv);
}

int main(int argc, char **argv) {
    int processes = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 3;
    int interval = argc > 3 ? atoi(argv[3]) : 1000, dies = argc > 4 && !strcmp(argv[4], "die");
    int pids[MAX_PROCESSES];
    shared = mmap(NULL, sizeof *shared * MAX_PROCESSES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < processes; i++) {
        pids[i] = clone_time(SIGCHLD, i ? 1 : 2, 1);
        if (pids[i] == 0) look_and_count(&shared[i]);
        say("clone_time", pids[i] < 0 ? -1 : 0);
        printf("{\"ev\": \"child\", \"pid\": %d, \"count\": %ld}\n", pids[i], shared[i].count);
    }
    say("too early", progress(0, 1));
    for (int i = 0; i < processes; i++) say("addToExp", addToExp(pids[i], 0));
    say("synchronizeAndFreeze", synchronizeAndFreeze());
    for (int i = 0; i < processes; i++) say("setInterval", setInterval(pids[i], interval, 0));
    say("startExp", startExp());
    long begin = time_of(pids[0]);
    for (int round = 1; round <= rounds; round++) {
        say("progress", progress(0, round % 2));
        for (int i = 0; i < processes; i++)
            printf("{\"ev\": \"stands\", \"round\": %d, \"process\": %d, \"gone\": %ld, \"seen\": %ld, \"count\": %ld}\n",
                   round, i, time_of(pids[i]) - begin, shared[i].micros - begin, shared[i].count);
        fflush(stdout);
        if (dies && round == 2) raise(SIGKILL);
    }
    say("reset", reset(0));
    say("progress", progress(0, 1));
    printf("{\"ev\": \"after reset\", \"gone\": %ld}\n", time_of(pids[0]) - begin);
    say("stopExp", stopExp());
    say("stopExp again", stopExp());
    for (int i = 0; i < processes; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    return 0;
}
