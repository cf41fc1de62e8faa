/* Behaviour that the preloaded timers must not change: values, errors, signals, cancellation. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static int64_t nanos(struct timespec t) { return t.tv_sec * 1000000000 + t.tv_nsec; }

static int64_t preloaded(clockid_t clock)
{
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    return nanos(t);
}

/* The kernel's own answer, which no library can replace. */
static int64_t kernels(clockid_t clock)
{
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return nanos(t);
}

static void clocks(void)
{
    const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
        CLOCK_MONOTONIC_COARSE, CLOCK_PROCESS_CPUTIME_ID};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t off = INT64_MAX;
        for (int turn = 0; turn < 2000; turn++) {
            int64_t before = kernels(all[i]), ours = preloaded(all[i]), after = kernels(all[i]);
            int64_t outside = ours < before ? before - ours : ours > after ? ours - after : 0;
            if (outside < off)
                off = outside;
        }
        if (off > 100000) {
            printf("clock %d is %lld ns off\n", all[i], (long long)off);
            exit(1);
        }
    }
    struct timeval val;
    CHECK(gettimeofday(&val, NULL) == 0);
    CHECK(llabs(val.tv_sec - kernels(CLOCK_REALTIME) / 1000000000) <= 1);
    time_t told = 0, now = time(&told);
    CHECK(now == told && llabs(now - val.tv_sec) <= 1);
    struct timespec t;
    errno = 0;
    CHECK(clock_gettime(12345, &t) == -1 && errno == EINVAL);
}

/* Some programs look at errno after calls that went well. */
static void errno_is_kept(void)
{
    struct timespec t;
    struct timeval val;
    errno = ENOTTY;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0 && errno == ENOTTY);
    CHECK(gettimeofday(&val, NULL) == 0 && errno == ENOTTY);
    CHECK(time(NULL) > 0 && errno == ENOTTY);
    CHECK(usleep(1000) == 0 && errno == ENOTTY);
    CHECK(nanosleep(&(struct timespec){0, 1000000}, NULL) == 0 && errno == ENOTTY);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL) == 0);
    CHECK(errno == ENOTTY);
}

static void sleeps(void)
{
    int64_t start = preloaded(CLOCK_MONOTONIC);
    CHECK(usleep(3000) == 0 && preloaded(CLOCK_MONOTONIC) - start >= 3000000);
    start = preloaded(CLOCK_MONOTONIC);
    CHECK(nanosleep(&(struct timespec){0, 2000000}, NULL) == 0);
    CHECK(preloaded(CLOCK_MONOTONIC) - start >= 2000000);
    const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct timespec until;
        clock_gettime(all[i], &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &until, NULL) == 0);
        CHECK(preloaded(all[i]) >= nanos(until));
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &until, NULL) == 0);
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &(struct timespec){0, 0}, NULL) == 0);
        CHECK(clock_nanosleep(all[i], 0, &(struct timespec){0, 1}, NULL) == 0);
    }
    CHECK(usleep(0) == 0 && nanosleep(&(struct timespec){0, 0}, NULL) == 0);
    CHECK(nanosleep(&(struct timespec){0, 1000000000}, NULL) == -1 && errno == EINVAL);
    CHECK(nanosleep(&(struct timespec){0, -1}, NULL) == -1 && errno == EINVAL);
    CHECK(nanosleep(&(struct timespec){-1, 0}, NULL) == -1 && errno == EINVAL);
    CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &(struct timespec){0, 0}, NULL) == EINVAL);
}

static void handler(int number) { (void)number; }

static void signals(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {.it_value = {0, 50000}};
    struct timespec left = {0, 0};
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(nanosleep(&(struct timespec){30, 0}, &left) == -1 && errno == EINTR);
    CHECK(left.tv_sec >= 15 && nanos(left) < 29960000000);
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){30, 0}, &left) == EINTR);
    CHECK(left.tv_sec >= 15 && nanos(left) < 29960000000);
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(usleep(30000000) == -1 && errno == EINTR);
}

static void *sleep_long(void *unused)
{
    (void)unused;
    usleep(60000000);
    return NULL;
}

static void cancellation(void)
{
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, sleep_long, NULL) == 0);
    usleep(30000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
}

static void children(void)
{
    pid_t child = fork();
    if (child == 0) {
        clocks();
        usleep(1000);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    errno_is_kept();
    clocks();
    sleeps();
    signals();
    cancellation();
    children();
    puts("good");
    return 0;
}
