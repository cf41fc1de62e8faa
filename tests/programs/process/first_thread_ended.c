// The first thread ends at once. A second one sleeps for the seconds of the first argument, by CLOCK_MONOTONIC. With a second
// argument a third one reads from standard input.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double length;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void *sleep_once(void *unused) {
    double begun = now();
    struct timespec wait = {.tv_sec = (time_t)length};
    printf("{\"ev\":\"ready\"}\n");
    fflush(stdout);
    nanosleep(&wait, NULL);
    printf("{\"ev\":\"done\",\"elapsed\":%.6f}\n", now() - begun);
    fflush(stdout);
    exit(0);
}

static void *read_once(void *unused) {
    char byte;
    if (read(0, &byte, 1) == 1) {
        printf("{\"ev\":\"read\",\"at\":%.6f}\n", now());
        fflush(stdout);
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t thread;
    length = atof(words[1]);
    pthread_create(&thread, NULL, sleep_once, NULL);
    if (count > 2)
        pthread_create(&thread, NULL, read_once, NULL);
    pthread_exit(NULL);
}
