/* In the shape of TimeKeeper's published select_dialated: a wait by each of its calls, with the time before and
 * after on the process's clock and on the host's. */
#include "TimeKeeper_functions.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static long micros(struct timeval *tv) { return tv->tv_sec * 1000000L + tv->tv_usec; }

static int input_timeout(int by_poll, int filedes, int ms) {
    if (by_poll) {
        struct pollfd one = {.fd = filedes, .events = POLLIN};
        return poll_dialated(&one, 1, ms);
    }
    fd_set set;
    struct timeval timeout = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    FD_ZERO(&set);
    FD_SET(filedes, &set);
    return select_dialated(FD_SETSIZE, &set, NULL, NULL, &timeout);
}

int main(int argc, char *argv[]) {
    int ends[2];
    if (argc != 2 || pipe(ends)) return 2;
    for (int by_poll = 0; by_poll < 2; by_poll++) {
        struct timeval now, later, now1, later1;
        gettimeofday(&now, NULL);
        gettimeofdayoriginal(&now1, NULL);
        int result = input_timeout(by_poll, ends[0], atoi(argv[1]));
        gettimeofday(&later, NULL);
        gettimeofdayoriginal(&later1, NULL);
        printf("{\"ev\": \"wait\", \"result\": %d, \"virtual\": %ld, \"real\": %ld}\n", result,
               micros(&later) - micros(&now), micros(&later1) - micros(&now1));
    }
    return 0;
}
