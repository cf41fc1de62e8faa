/* In the shape of TimeKeeper's published select_dialated: a wait by each of its calls, with its length on the
 * process's clock, and two on the host's: one that lies between the process's two looks, and one around them. */
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
        struct timeval now, later, first, second, third, fourth;
        gettimeofdayoriginal(&first, NULL);
        gettimeofday(&now, NULL);
        gettimeofdayoriginal(&second, NULL);
        int result = input_timeout(by_poll, ends[0], atoi(argv[1]));
        gettimeofdayoriginal(&third, NULL);
        gettimeofday(&later, NULL);
        gettimeofdayoriginal(&fourth, NULL);
        printf("{\"ev\": \"wait\", \"result\": %d, \"virtual\": %ld, \"inner\": %ld, \"outer\": %ld}\n", result,
               micros(&later) - micros(&now), micros(&third) - micros(&second), micros(&fourth) - micros(&first));
    }
    return 0;
}
