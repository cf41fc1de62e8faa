/* The C interface of the timers: every function, its errors, and a sleep interrupted by another thread. */
#include <lorentz_timers.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static lorentz_sleeper *sleeper;

static void interrupt_in_handler(int signal)
{
    (void)signal;
    lorentz_interrupt(sleeper);
}

static void *interrupt(void *unused)
{
    (void)unused;
    lorentz_interval pause;
    lorentz_interval_from_millis(20, &pause);
    lorentz_sleep(pause);
    lorentz_interrupt(sleeper);
    return NULL;
}

static int64_t nanos(lorentz_interval interval)
{
    int64_t result = -1;
    CHECK(lorentz_interval_nanos(interval, &result) == 0);
    return result;
}

static void intervals(void)
{
    lorentz_interval a = 7, b = 7;
    struct timespec spec;
    struct timeval val;
    CHECK(lorentz_interval_from_secs(3, &a) == 0 && llabs(nanos(a) - 3000000000) <= 1);
    CHECK(lorentz_interval_from_millis(3000, &b) == 0 && a == b);
    CHECK(lorentz_interval_from_micros(3000000, &b) == 0 && a == b);
    CHECK(lorentz_interval_from_nanos(3000000000, &b) == 0 && a == b);
    CHECK(lorentz_interval_from_double(3.0, &b) == 0 && a == b);
    CHECK(lorentz_interval_from_timespec(&(struct timespec){2, 1000000000}, &b) == 0 && a == b);
    CHECK(lorentz_interval_from_timeval(&(struct timeval){4, -1000000}, &b) == 0 && a == b);
    CHECK(fabs(lorentz_interval_double(a) - 3.0) < 1e-8);
    CHECK(lorentz_interval_from_nanos(-1500000000, &a) == 0);
    lorentz_interval_timespec(a, &spec);
    CHECK(spec.tv_sec == -2 && labs(spec.tv_nsec - 500000000) <= 1);
    lorentz_interval_timeval(a, &val);
    CHECK(val.tv_sec == -2 && labs(val.tv_usec - 500000) <= 1);
    CHECK(lorentz_interval_neg(a, &b) == 0 && b == -a);
    CHECK(lorentz_interval_add(a, b, &b) == 0 && b == 0);
    CHECK(lorentz_interval_sub(b, a, &b) == 0 && b == -a);
    b = 42;
    CHECK(lorentz_interval_add(LORENTZ_INTERVAL_MAX, 1, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
    CHECK(lorentz_interval_sub(LORENTZ_INTERVAL_MIN, 1, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
    CHECK(lorentz_interval_neg(LORENTZ_INTERVAL_MIN, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
    CHECK(lorentz_interval_from_secs(INT64_MAX, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
    CHECK(lorentz_interval_from_double(NAN, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
    CHECK(lorentz_interval_from_secs(1, NULL) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_interval_from_timespec(NULL, &b) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_moment_add(INT64_MAX, 1, &b) == LORENTZ_TIMERS_ERANGE && b == 42);
}

static void moments(void)
{
    struct timespec spec, now;
    lorentz_moment first = lorentz_now();
    lorentz_moment second = lorentz_now();
    CHECK(second >= first);
    CHECK(lorentz_moment_nanos(second) >= lorentz_moment_nanos(first));
    lorentz_moment_timespec(second, &spec);
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    CHECK(llabs(now.tv_sec - spec.tv_sec) <= 2);
    lorentz_moment_wall(lorentz_now_unordered(), &spec);
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(llabs(now.tv_sec - spec.tv_sec) <= 2 && spec.tv_nsec < 1000000000);
    lorentz_moment there, before = lorentz_now();
    CHECK(lorentz_moment_from_wall(&now, &there) == 0);
    CHECK(llabs(there - before) <= 2 * (int64_t)lorentz_source_hertz());
    CHECK(lorentz_moment_from_wall(NULL, &there) == LORENTZ_TIMERS_EINVAL);
    now.tv_nsec = 1000000000;
    CHECK(lorentz_moment_from_wall(&now, &there) == LORENTZ_TIMERS_EINVAL);
    now = (struct timespec){INT64_MAX, 0};
    CHECK(lorentz_moment_from_wall(&now, &there) == LORENTZ_TIMERS_ERANGE);
}

static void sleeps(void)
{
    lorentz_interval ms, minute;
    lorentz_interval_from_millis(1, &ms);
    lorentz_interval_from_secs(60, &minute);
    lorentz_moment start = lorentz_now();
    lorentz_sleep(ms);
    CHECK(lorentz_now() - start >= ms);
    start = lorentz_now();
    lorentz_sleep_until(start + ms);
    CHECK(lorentz_now() - start >= ms);
    lorentz_sleep(0);
    lorentz_sleep(-minute);
    lorentz_sleep_until(start);
    sleeper = lorentz_sleeper_new();
    CHECK(sleeper != NULL);
    CHECK(lorentz_sleeper_sleep(sleeper, ms) == LORENTZ_ELAPSED);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, interrupt, NULL) == 0);
    CHECK(lorentz_sleeper_sleep(sleeper, minute) == LORENTZ_INTERRUPTED);
    pthread_join(thread, NULL);
    CHECK(lorentz_interrupt(sleeper) == 0);
    CHECK(lorentz_sleeper_sleep_until(sleeper, start) == LORENTZ_INTERRUPTED);
    signal(SIGUSR1, interrupt_in_handler);
    raise(SIGUSR1);
    CHECK(lorentz_sleeper_sleep(sleeper, minute) == LORENTZ_INTERRUPTED);
    lorentz_sleeper_free(sleeper);
    lorentz_sleeper_free(NULL);
    CHECK(lorentz_interrupt(NULL) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_sleeper_sleep(NULL, ms) == LORENTZ_TIMERS_EINVAL);
}

static void hardware(void)
{
    CHECK(lorentz_processor_brand() != NULL);
    for (int feature = LORENTZ_HAS_RDTSCP; feature <= LORENTZ_HAS_INVARIANT_TSC; feature++)
        CHECK(lorentz_processor_has(feature) == 0 || lorentz_processor_has(feature) == 1);
    CHECK(lorentz_processor_has(LORENTZ_HAS_CONSTANT_TSC)
        >= lorentz_processor_has(LORENTZ_HAS_INVARIANT_TSC));
    CHECK(lorentz_processor_has(0) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_hpet_error() >= 0);
}

int main(void)
{
    CHECK(lorentz_timers_version() == LORENTZ_TIMERS_VERSION);
    CHECK(lorentz_source_force(0) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_source_force(99) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_source_force(LORENTZ_SOURCE_OS) == 0);
    CHECK(lorentz_source_force(LORENTZ_SOURCE_HPET) != 0);
    CHECK(lorentz_source() == LORENTZ_SOURCE_OS && lorentz_source_hertz() == 1000000000);
    CHECK(strcmp(lorentz_source_reason(), "forced by the program") == 0);
    CHECK(lorentz_source_calibrate(0) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_source_calibrate(0.0 / 0.0) == LORENTZ_TIMERS_EINVAL);
    CHECK(lorentz_source_calibrate(0.02) == 0);
    hardware();
    intervals();
    moments();
    sleeps();
    puts("good");
    return 0;
}
