/* Computes, and shows the virtual time and the host's after each loop.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
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

int main(int argc, char *argv[]) {
    int loops = argc == 2 ? atoi(argv[1]) : 10000;
    printf("Started ...\n");
    for (;;) {
        for (int loop = 0; loop < loops; loop++) {
            for (volatile int i = 0; i < 10000000; i++) {
            }
            show("");
        }
    }
}
