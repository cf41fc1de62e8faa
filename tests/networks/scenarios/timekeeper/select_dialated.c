/* Waits for its input for five virtual seconds.
 * Ours, in the form of TimeKeeper's program of this name. */
#include "TimeKeeper_functions.h"
#include <stdio.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void show(const char *when) {
    struct timeval now, original;
    struct tm local, local_original;
    gettimeofday(&now, NULL);
    gettimeofdayoriginal(&original, NULL);
    localtime_r(&now.tv_sec, &local);
    localtime_r(&original.tv_sec, &local_original);
    printf("%slocaltime: %d:%02d:%02d %ld, orig_time : %d:%02d:%02d %ld\n", when, local.tm_hour,
           local.tm_min, local.tm_sec, (long)now.tv_usec, local_original.tm_hour,
           local_original.tm_min, local_original.tm_sec, (long)original.tv_usec);
    fflush(stdout);
}

static int wait_for_input(int descriptor, unsigned int seconds) {
    fd_set set;
    struct timeval timeout = {.tv_sec = seconds};
    FD_ZERO(&set);
    FD_SET(descriptor, &set);
    return select_dialated(FD_SETSIZE, &set, NULL, NULL, &timeout);
}

int main(void) {
    show("Before : ");
    printf("select returned %d.\n", wait_for_input(STDIN_FILENO, 5));
    show("After : ");
    return 0;
}
