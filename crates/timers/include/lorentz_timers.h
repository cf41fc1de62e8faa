/*
 * lorentz_timers.h: precise timers, a clock read from the processor's counter and sleep to within a hundred
 * nanoseconds. Link with -llorentz_timers (liblorentz_timers.so or .a).
 *
 * A moment (lorentz_moment) and an interval (lorentz_interval) are signed counts of ticks of the process's time source.
 * A program compares them as numbers, and subtracts moments of one process as numbers. The functions below convert them
 * to nanoseconds. Any thread may call any function.
 *
 * A function that returns int returns 0, or one of the negative LORENTZ_TIMERS_E... below. After an error it has not
 * written to its out argument.
 */
#ifndef LORENTZ_TIMERS_H
#define LORENTZ_TIMERS_H

#include <stdint.h>
#include <sys/time.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface, as this header has it; lorentz_timers_version() returns the library's. An addition
   raises the minor number, a change the major number. */
#define LORENTZ_TIMERS_MAJOR 1
#define LORENTZ_TIMERS_MINOR 1
#define LORENTZ_TIMERS_VERSION (LORENTZ_TIMERS_MAJOR << 16 | LORENTZ_TIMERS_MINOR)
uint32_t lorentz_timers_version(void);

#define LORENTZ_TIMERS_ERANGE (-1)      /* the result is out of range */
#define LORENTZ_TIMERS_EINVAL (-2)      /* an argument is not accepted, or is NULL */
#define LORENTZ_TIMERS_EINUSE (-3)      /* another time source is in use already */
#define LORENTZ_TIMERS_EUNUSABLE (-4)   /* the time source does not work here */

typedef int64_t lorentz_moment;
typedef int64_t lorentz_interval;
#define LORENTZ_INTERVAL_MAX INT64_MAX
#define LORENTZ_INTERVAL_MIN INT64_MIN

/* --- the time source --- */

#define LORENTZ_SOURCE_TSC 1    /* the processor's time stamp counter */
#define LORENTZ_SOURCE_HPET 2   /* the counter of the HPET */
#define LORENTZ_SOURCE_OS 3     /* CLOCK_MONOTONIC_RAW; in a container with a virtual clock, the virtual clock */

/* Returns the source in force. The first call chooses it. */
int lorentz_source(void);
/* Returns the reason for the choice. The text stays valid until the process ends. */
const char *lorentz_source_reason(void);
/* Puts a source in force; must come before any other call. Errors: EINVAL, EINUSE, EUNUSABLE. */
int lorentz_source_force(int source);
/* Returns the ticks in a second. */
uint64_t lorentz_source_hertz(void);

/* Measures the length of a tick for 0.001 to 60 s, in place of what the processor states; must come before the first
   conversion. It has no effect on sources whose tick is known (HPET, OS). Errors: EINVAL, EINUSE. Since 1.1. */
int lorentz_source_calibrate(double secs);

/* --- the hardware (since 1.1) --- */

/* Returns the name by which the processor calls itself; empty if it has none. The text stays valid. */
const char *lorentz_processor_brand(void);
#define LORENTZ_HAS_RDTSCP 1            /* the instruction rdtscp */
#define LORENTZ_HAS_CONSTANT_TSC 2      /* a TSC of one rate while the processor works */
#define LORENTZ_HAS_INVARIANT_TSC 3     /* a TSC of one rate in all states of the processor */
/* Returns 1 or 0. Error: EINVAL. */
int lorentz_processor_has(int feature);
/* Returns 0 if the HPET can be used, or the number of the system's error that says why not: EACCES, ENOENT, ENODEV
   (cannot be mapped), EBUSY, EMFILE, ENOMEM, EAGAIN, EOVERFLOW (a counter of 32 bits), EIO (stopped or impossible). */
int lorentz_hpet_error(void);

/* --- moments --- */

/* Returns the current moment. It is never earlier than one that another thread took before and passed to this one. */
lorentz_moment lorentz_now(void);
/* Returns the current moment at a lower cost. Moments of different threads may be out of order by some ten ns. */
lorentz_moment lorentz_now_unordered(void);
/* Returns CLOCK_MONOTONIC_RAW at the moment, ns. The first call may take some milliseconds. */
int64_t lorentz_moment_nanos(lorentz_moment moment);
/* Writes the same as a timespec. */
void lorentz_moment_timespec(lorentz_moment moment, struct timespec *out);
/* Writes the date by CLOCK_REALTIME: seconds since 1970, and nanoseconds 0 to 999999999. */
void lorentz_moment_wall(lorentz_moment moment, struct timespec *out);
/* Writes the moment at which CLOCK_REALTIME shows the date, as that clock runs now. Errors: EINVAL, ERANGE. Since
   1.1. */
int lorentz_moment_from_wall(const struct timespec *date, lorentz_moment *out);
/* Writes moment + interval. Error: ERANGE. */
int lorentz_moment_add(lorentz_moment moment, lorentz_interval interval, lorentz_moment *out);

/* --- intervals --- */

/* Make an interval of nanoseconds, microseconds, milliseconds or seconds, rounded to the nearest tick. Error:
   ERANGE. */
int lorentz_interval_from_nanos(int64_t nanos, lorentz_interval *out);
int lorentz_interval_from_micros(int64_t micros, lorentz_interval *out);
int lorentz_interval_from_millis(int64_t millis, lorentz_interval *out);
int lorentz_interval_from_secs(int64_t secs, lorentz_interval *out);
/* Makes an interval of seconds. Error: ERANGE, also for NaN. */
int lorentz_interval_from_double(double secs, lorentz_interval *out);
/* Nanoseconds outside 0..1e9 and microseconds outside 0..1e6 are carried over to the seconds. Error: ERANGE. */
int lorentz_interval_from_timespec(const struct timespec *spec, lorentz_interval *out);
int lorentz_interval_from_timeval(const struct timeval *val, lorentz_interval *out);
/* Writes the interval in nanoseconds, rounded to the nearest. Error: ERANGE. */
int lorentz_interval_nanos(lorentz_interval interval, int64_t *out);
/* Returns the interval in seconds. */
double lorentz_interval_double(lorentz_interval interval);
/* tv_nsec is 0 to 999999999 and tv_usec 0 to 999999, so the seconds of a negative interval are rounded down. */
void lorentz_interval_timespec(lorentz_interval interval, struct timespec *out);
void lorentz_interval_timeval(lorentz_interval interval, struct timeval *out);
/* Write a + b, a - b, -a. Error: ERANGE. */
int lorentz_interval_add(lorentz_interval a, lorentz_interval b, lorentz_interval *out);
int lorentz_interval_sub(lorentz_interval a, lorentz_interval b, lorentz_interval *out);
int lorentz_interval_neg(lorentz_interval a, lorentz_interval *out);

/* --- sleep --- */

/* Sleep for an interval, or until a moment. Signals do not end the sleep. They return at once if the interval is not
   above 0, or the moment is past. */
void lorentz_sleep(lorentz_interval interval);
void lorentz_sleep_until(lorentz_moment moment);

#define LORENTZ_ELAPSED 0       /* the sleep reached its target */
#define LORENTZ_INTERRUPTED 1   /* lorentz_interrupt() ended the sleep */

/* A sleep that other threads can interrupt. Interrupts are counted. Each one ends one sleep: the current one, or else
   the next. None is lost. */
typedef struct lorentz_sleeper lorentz_sleeper;
/* Makes a sleeper; NULL if there is no memory. */
lorentz_sleeper *lorentz_sleeper_new(void);
/* Frees a sleeper that no thread sleeps with or interrupts any more. NULL has no effect. */
void lorentz_sleeper_free(lorentz_sleeper *sleeper);
/* Sleep, and return LORENTZ_ELAPSED or LORENTZ_INTERRUPTED; EINVAL for NULL. */
int lorentz_sleeper_sleep(lorentz_sleeper *sleeper, lorentz_interval interval);
int lorentz_sleeper_sleep_until(lorentz_sleeper *sleeper, lorentz_moment moment);
/* Interrupts a sleeper; EINVAL for NULL. A signal handler may call this function. */
int lorentz_interrupt(lorentz_sleeper *sleeper);

/* Puts the calling thread under SCHED_FIFO with priority 1 to 99. Error: EUNUSABLE, with
   errno set. */
int lorentz_use_fifo_scheduling(int priority);

#ifdef __cplusplus
}
#endif

#endif
