/*
 * Lorentz: virtual time for Linux containers. The C interface, liblorentz.
 *
 *     cc simulator.c -llorentz
 *
 * Units       Times are nanoseconds in int64_t, or struct timespec where they are dates. A TDF (time
 *             dilation factor) is real seconds per virtual second: above 0, from 1/1000000 to 1000000.
 *             It is kept as an exact ratio, the simplest one that is the same double: 0.1 is 1/10,
 *             1.0 / 3 is 1/3.
 * Containers  A container is named by a text: its name, or the number of any of its processes;
 *             lorentz_pid() makes that text of a number.
 * Errors      A function that returns int returns 0, or one of the negative numbers below;
 *             lorentz_error() then tells in one line what was given and what is accepted. After
 *             LORENTZ_WRONG_INPUT, LORENTZ_NOT_FOUND, LORENTZ_REFUSED nothing has changed. NULL where
 *             a text or a handle is expected is LORENTZ_WRONG_INPUT.
 * Threads     Any function may be called from any thread, on the same handle too: each call has a
 *             connection of its own, so several threads may each move a timeline. A handle is not to
 *             be closed while it is in use, nor used on both sides of a fork().
 * State       Containers and experiments are those of the same user, in LORENTZ_STATE_DIR if that is
 *             set. They are the same that the lorentz command shows.
 * Command     Making an experiment and bringing a process into virtual time are done by the lorentz
 *             command: that which LORENTZ_COMMAND names, else the one beside this library or in
 *             ../bin, else that in PATH.
 * Caller      It is in real time. In virtual time itself, it may move an experiment that was made
 *             outside; all else is LORENTZ_REFUSED.
 */
#ifndef LORENTZ_H
#define LORENTZ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version this header belongs to. The library's is lorentz_version(); its soname, liblorentz.so.0,
 * changes when a program that was linked to it would not run any more. */
#define LORENTZ_VERSION_MAJOR 0
#define LORENTZ_VERSION_MINOR 1
#define LORENTZ_VERSION_PATCH 0
#define LORENTZ_VERSION "0.1.0"

/* The library's version, such as "0.1.0". */
const char *lorentz_version(void);

/* Kinds of errors. */
enum {
    LORENTZ_OK = 0,
    LORENTZ_WRONG_INPUT = -1, /* a value that cannot be */
    LORENTZ_NOT_FOUND = -2,   /* no such container, process or experiment */
    LORENTZ_REFUSED = -3,     /* not now, or not to this one: wrong order of calls, moved by another */
    LORENTZ_ENDED = -4,       /* the process of the experiment has ended */
    LORENTZ_FAILED = -5       /* the machine or the kernel would not */
};

/* What was wrong with the calling thread's last call that failed; "" where none has. Valid until its
 * next one fails. */
const char *lorentz_error(void);

/* The number of a process as text, to name its container by. Valid until the thread has called this
 * eight times more. */
const char *lorentz_pid(pid_t pid);

/* Frees a text that a function here has handed over; NULL is nothing to free. */
void lorentz_free(char *text);

/* ------------------------------------------------------------------ the clock of one container */

typedef struct lorentz_time {
    struct timespec wall;      /* its CLOCK_REALTIME */
    struct timespec host_wall; /* the host's, at the same moment */
    int64_t monotonic_ns;      /* its CLOCK_MONOTONIC */
    int64_t boottime_ns;       /* its CLOCK_BOOTTIME */
    int64_t host_monotonic_ns; /* the host's CLOCK_MONOTONIC */
    int64_t limit_ns;          /* it shows nothing later on CLOCK_MONOTONIC; INT64_MAX: no limit */
    double tdf;                /* in force, or to go on with where it is frozen */
    int frozen;                /* 1: its time stands still */
} lorentz_time_t;

/* Its clocks beside the host's, of one moment. */
int lorentz_time(const char *container, lorentz_time_t *time);

/* Changes its TDF from now on; no clock jumps, waits in progress follow. Of one in an experiment:
 * LORENTZ_REFUSED; there is lorentz_experiment_dilate(). The same holds for the next five. */
int lorentz_dilate(const char *container, double tdf);

/* Lets its time stand still, and its tasks where there is a cgroup v2 freezer; lets it go on. Doing
 * either twice does no harm. */
int lorentz_freeze(const char *container);
int lorentz_unfreeze(const char *container);

/* Moves all its clocks forward: by a span of 0 or more, or to where the wall clock of another is now. Backwards is
 * LORENTZ_WRONG_INPUT. */
int lorentz_leap(const char *container, int64_t by_ns);
int lorentz_leap_like(const char *container, const char *other);

/* Moves its wall clock alone, either way, not before 1970. */
int lorentz_step(const char *container, int64_t by_ns);

/* The same, announced: the change comes by itself when the host's wall clock shows `at`. A time that is past is
 * LORENTZ_WRONG_INPUT. At most 16 may be to come. A change drops those that were announced for its own time or a later
 * one; one that begins at once drops all. */
int lorentz_dilate_at(const char *container, double tdf, struct timespec at);
int lorentz_freeze_at(const char *container, struct timespec at);
int lorentz_unfreeze_at(const char *container, struct timespec at);
int lorentz_leap_at(const char *container, int64_t by_ns, struct timespec at);
int lorentz_step_at(const char *container, int64_t by_ns, struct timespec at);

/* Brings the running process pid into virtual time, where tree is not 0 its descendants too, in a new
 * container called name (NULL: a name is made up). It cannot be undone; TDF 1 does no harm. Where made
 * is not NULL, the container's name is written there, cut to room bytes with its final NUL; no name is
 * longer than 128. LORENTZ_REFUSED for one in virtual time already or of another user. */
int lorentz_attach(pid_t pid, double tdf, int tree, const char *name, char *made, size_t room);

/* ------------------------------------------------------------------------------- experiments */

/* Many containers whose clocks advance together, in rounds; see docs/experiments-c.md. */
typedef struct lorentz_experiment lorentz_experiment;

/* What is zero, or NULL, has its default. */
typedef struct lorentz_settings {
    int64_t timeslice_ns;    /* virtual length of a round: 1000 to 60000000000; default 3000000 */
    const char *cpus;        /* processors that the containers run on: "1", "0,2-5"; default: all but the
                                first */
    uint32_t most;           /* so many containers at once, at most: 1 to 1000000; default 1024 */
    int as_fast_as_possible; /* 1: time in which nobody has anything to do is leapt over */
    int end_with_process;    /* 1: it ends when this process does, or the handle is closed */
} lorentz_settings;

#define LORENTZ_NO_TIMELINE (-1)

/* Makes the experiment name, without containers, and a handle of it. It goes on in the background
 * until lorentz_experiment_end(). Names have up to 128 letters, digits, '.', '_' and '-', the first a
 * letter or digit. LORENTZ_WRONG_INPUT where the name is in use. */
int lorentz_experiment_create(const char *name, const lorentz_settings *settings,
                              lorentz_experiment **experiment);

/* A handle of one that runs. LORENTZ_ENDED where its process has died: lorentz_experiment_clear(). */
int lorentz_experiment_open(const char *name, lorentz_experiment **experiment);

/* Forgets the handle. The experiment goes on; but see lorentz_experiment_synchronize(). */
void lorentz_experiment_close(lorentz_experiment *experiment);

/* Lets go of the containers of an experiment whose process has died. LORENTZ_REFUSED where it lives. */
int lorentz_experiment_clear(const char *name);

/* Takes a container in; a process that is not in virtual time yet is brought into it, with its
 * descendants. timeline: 0 to 4294967295, the one it follows where a simulator moves the experiment;
 * negative: none, the experiment runs by itself. At any time; who joins a synchronized one begins
 * where the others are. */
int lorentz_experiment_add(lorentz_experiment *experiment, const char *container, double tdf,
                           int64_t timeline);

/* Lets a container go on by itself. */
int lorentz_experiment_remove(lorentz_experiment *experiment, const char *container);

/* Changes a container's TDF, from the next round on. */
int lorentz_experiment_dilate(lorentz_experiment *experiment, const char *container, double tdf);

/* Stops all containers at one virtual time, the latest of theirs. LORENTZ_REFUSED where there are
 * none, only some have a timeline, or it is synchronized already.
 *
 * From here on the calling process answers for them: when it ends, however it ends, or closes this
 * handle, before lorentz_experiment_stop(), the containers go on by themselves. An experiment that was
 * started goes on. */
int lorentz_experiment_synchronize(lorentz_experiment *experiment);

/* Has rounds follow one another; has no further one begin. LORENTZ_REFUSED before
 * lorentz_experiment_synchronize(), and where the containers have timelines. */
int lorentz_experiment_start(lorentz_experiment *experiment);
int lorentz_experiment_pause(lorentz_experiment *experiment);

/* Lets all containers go on by themselves; the experiment is empty then, and may be set up anew. */
int lorentz_experiment_stop(lorentz_experiment *experiment);

/* How far a container goes with each progress of its timeline: virtual time above 0. timeline: as it
 * was added, to make sure, or negative. LORENTZ_REFUSED before lorentz_experiment_synchronize(), and
 * where the experiment runs by itself or the container follows another timeline. */
int lorentz_experiment_set_interval(lorentz_experiment *experiment, const char *container,
                                    int64_t interval_ns, int64_t timeline);

/* Moves all containers of a timeline by their intervals; those that have none stay. Returns when all
 * have arrived: exactly there, in what they perceive. LORENTZ_REFUSED as above, where nobody follows
 * the timeline, and where another thread or process moves it at this moment. */
int lorentz_experiment_progress(lorentz_experiment *experiment, int64_t timeline);

/* Forgets the intervals of a timeline. */
int lorentz_experiment_reset(lorentz_experiment *experiment, int64_t timeline);

/* How it stands, as a JSON object: what `lorentz experiment status NAME --json` prints. The caller
 * frees *json by lorentz_free(). */
int lorentz_experiment_status(lorentz_experiment *experiment, char **json);

/* Ends it; its containers go on by themselves. The handle is still to be closed. */
int lorentz_experiment_end(lorentz_experiment *experiment);

#ifdef __cplusplus
}
#endif

#endif
