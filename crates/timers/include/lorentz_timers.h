/*
 * lorentz_timers.h: precise timers, a clock read from the processor's counter and sleep to within a hundred
 * nanoseconds. Link with -llorentz_timers (liblorentz_timers.so or .a).
 *
 * A moment (lorentz_moment) and an interval (lorentz_interval) are signed counts of ticks of the process's time source.
 * They are compared, and moments of one process subtracted, as numbers; what they are in nanoseconds is computed by
 * the functions below. Every function may be called from any thread.
 *
 * Functions that return int return 0, or one of the negative LORENTZ_TIMERS_E... below; what they were to write is
 * then left as it was.
 */
#ifndef LORENTZ_TIMERS_H
#define LORENTZ_TIMERS_H

#include <stdint.h>
#include <sys/time.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: of this header, and by lorentz_timers_version() of the library. What is added later
   raises the minor number, what is changed the major one. */
#define LORENTZ_TIMERS_MAJOR 1
#define LORENTZ_TIMERS_MINOR 0
#define LORENTZ_TIMERS_VERSION (LORENTZ_TIMERS_MAJOR << 16 | LORENTZ_TIMERS_MINOR)
uint32_t lorentz_timers_version(void);

#define LORENTZ_TIMERS_ERANGE (-1)      /* the result is out of range */
#define LORENTZ_TIMERS_EINVAL (-2)      /* an argument is none of those accepted, or NULL */
#define LORENTZ_TIMERS_EINUSE (-3)      /* another time source is in use already */
#define LORENTZ_TIMERS_EUNUSABLE (-4)   /* the time source does not work here */

typedef int64_t lorentz_moment;
typedef int64_t lorentz_interval;
#define LORENTZ_INTERVAL_MAX INT64_MAX
#define LORENTZ_INTERVAL_MIN INT64_MIN

/* --- the time source --- */

#define LORENTZ_SOURCE_TSC 1    /* the processor's time stamp counter */
#define LORENTZ_SOURCE_HPET 2   /* the counter of the HPET */
#define LORENTZ_SOURCE_OS 3     /* CLOCK_MONOTONIC_RAW; in a container with a virtual clock, that clock */

/* The source in force. The first question chooses it. */
int lorentz_source(void);
/* Why it is in force; a text that stays. */
const char *lorentz_source_reason(void);
/* Puts a source in force, before anything else is asked: EINVAL, EINUSE or EUNUSABLE where it cannot be. */
int lorentz_source_force(int source);
/* Ticks in a second. */
uint64_t lorentz_source_hertz(void);

/* --- moments --- */

/* Now: never earlier than what another thread took before and told this one. */
lorentz_moment lorentz_now(void);
/* Now, cheaper; moments of different threads may be out of order by some ten nanoseconds. */
lorentz_moment lorentz_now_unordered(void);
/* What CLOCK_MONOTONIC_RAW showed, in nanoseconds; the first question may take some milliseconds. */
int64_t lorentz_moment_nanos(lorentz_moment moment);
/* The same as a timespec. */
void lorentz_moment_timespec(lorentz_moment moment, struct timespec *out);
/* The date by CLOCK_REALTIME: seconds since 1970, nanoseconds 0 to 999999999. */
void lorentz_moment_wall(lorentz_moment moment, struct timespec *out);
/* moment + interval; ERANGE. */
int lorentz_moment_add(lorentz_moment moment, lorentz_interval interval, lorentz_moment *out);

/* --- intervals --- */

/* So many nanoseconds, microseconds, milliseconds or seconds, to the nearest tick; ERANGE. */
int lorentz_interval_from_nanos(int64_t nanos, lorentz_interval *out);
int lorentz_interval_from_micros(int64_t micros, lorentz_interval *out);
int lorentz_interval_from_millis(int64_t millis, lorentz_interval *out);
int lorentz_interval_from_secs(int64_t secs, lorentz_interval *out);
/* ERANGE for what is not a number, too. */
int lorentz_interval_from_double(double secs, lorentz_interval *out);
/* Nanoseconds outside 0..1e9 and microseconds outside 0..1e6 are carried over. */
int lorentz_interval_from_timespec(const struct timespec *spec, lorentz_interval *out);
int lorentz_interval_from_timeval(const struct timeval *val, lorentz_interval *out);
/* In nanoseconds, to the nearest; ERANGE. */
int lorentz_interval_nanos(lorentz_interval interval, int64_t *out);
/* In seconds. */
double lorentz_interval_double(lorentz_interval interval);
/* tv_nsec is 0 to 999999999: a negative interval has its seconds rounded down. */
void lorentz_interval_timespec(lorentz_interval interval, struct timespec *out);
void lorentz_interval_timeval(lorentz_interval interval, struct timeval *out);
/* a + b, a - b, -a; ERANGE. */
int lorentz_interval_add(lorentz_interval a, lorentz_interval b, lorentz_interval *out);
int lorentz_interval_sub(lorentz_interval a, lorentz_interval b, lorentz_interval *out);
int lorentz_interval_neg(lorentz_interval a, lorentz_interval *out);

/* --- sleep --- */

/* For an interval, or until a moment; on through signals. Not at all where it is not above 0, or past. */
void lorentz_sleep(lorentz_interval interval);
void lorentz_sleep_until(lorentz_moment moment);

#define LORENTZ_ELAPSED 0       /* its time had come */
#define LORENTZ_INTERRUPTED 1   /* lorentz_interrupt() */

/* A sleep that other threads can interrupt. Interrupts are counted, each ends one sleep, the one that is going on or
   else the next; none is lost. */
typedef struct lorentz_sleeper lorentz_sleeper;
/* NULL where there is no memory. */
lorentz_sleeper *lorentz_sleeper_new(void);
/* When nobody sleeps with it or interrupts it any more. NULL is nobody. */
void lorentz_sleeper_free(lorentz_sleeper *sleeper);
/* LORENTZ_ELAPSED, LORENTZ_INTERRUPTED, or EINVAL for NULL. */
int lorentz_sleeper_sleep(lorentz_sleeper *sleeper, lorentz_interval interval);
int lorentz_sleeper_sleep_until(lorentz_sleeper *sleeper, lorentz_moment moment);
/* EINVAL for NULL. May be called in a signal handler. */
int lorentz_interrupt(lorentz_sleeper *sleeper);

/* Puts the calling thread under SCHED_FIFO with priority 1 to 99; EUNUSABLE, with errno set, where it may not. */
int lorentz_use_fifo_scheduling(int priority);

#ifdef __cplusplus
}
#endif

#endif
