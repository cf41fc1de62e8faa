/*
 * Lorentz: virtual time for Linux containers. The C interface, liblorentz.
 *
 *     cc simulator.c -llorentz
 *
 * Units       Times are nanoseconds in int64_t; dates are struct timespec. A TDF (time dilation factor)
 *             is real seconds per virtual second, from 1/1000000 to 1000000. The library stores a TDF as
 *             the simplest exact ratio that is the same double: 0.1 is 1/10, 1.0 / 3 is 1/3.
 * Containers  A text names a container: its name, or the id of any of its processes. lorentz_pid() makes
 *             the text of a process id.
 * Errors      A function that returns int returns 0, or one of the negative numbers below.
 *             lorentz_error() then returns one line that says what was given and what is accepted. After
 *             LORENTZ_WRONG_INPUT, LORENTZ_NOT_FOUND and LORENTZ_REFUSED nothing has changed. NULL in
 *             place of a text or a handle is LORENTZ_WRONG_INPUT.
 * Threads     Any thread may call any function, also on the same handle. Each call has a connection of
 *             its own, so several threads may each move a timeline. Do not close a handle while it is in
 *             use. Do not use a handle on both sides of a fork().
 * State       Containers and experiments are those of the calling user, in LORENTZ_STATE_DIR if that is
 *             set. The lorentz command shows the same ones.
 * Command     The library calls the lorentz command to make an experiment and to attach a process. It
 *             uses the command that LORENTZ_COMMAND names, else the one beside this library or in
 *             ../bin, else the one in PATH.
 * Caller      The calling process is in real time. In virtual time, it may only move an experiment that
 *             was made outside; all other calls are LORENTZ_REFUSED.
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

/* The version of this header. lorentz_version() returns the library's. The soname, liblorentz.so.0,
 * changes when programs linked before would not run with the new library. */
#define LORENTZ_VERSION_MAJOR 0
#define LORENTZ_VERSION_MINOR 1
#define LORENTZ_VERSION_PATCH 0
#define LORENTZ_VERSION "0.1.0"

/* Returns the library's version, such as "0.1.0". */
const char *lorentz_version(void);

/* Kinds of errors. */
enum {
    LORENTZ_OK = 0,
    LORENTZ_WRONG_INPUT = -1, /* a value is not valid */
    LORENTZ_NOT_FOUND = -2,   /* there is no such container, process or experiment */
    LORENTZ_REFUSED = -3,     /* wrong order of calls, or another experiment moves the container */
    LORENTZ_ENDED = -4,       /* the process of the experiment has ended */
    LORENTZ_FAILED = -5       /* the machine or the kernel could not do it */
};

/* Returns the error of the calling thread's last call that failed; "" if none has. The text is valid
 * until the thread's next call fails. */
const char *lorentz_error(void);

/* Returns a process id as a text, which names the process's container. The text is valid until the
 * thread has called this function eight more times. */
const char *lorentz_pid(pid_t pid);

/* Frees a text that a function of this library has returned. NULL has no effect. */
void lorentz_free(char *text);

/* ------------------------------------------------------------------ the clock of one container */

typedef struct lorentz_time {
    struct timespec wall;      /* its CLOCK_REALTIME */
    struct timespec host_wall; /* the host's CLOCK_REALTIME at the same moment */
    int64_t monotonic_ns;      /* its CLOCK_MONOTONIC */
    int64_t boottime_ns;       /* its CLOCK_BOOTTIME */
    int64_t host_monotonic_ns; /* the host's CLOCK_MONOTONIC */
    int64_t limit_ns;          /* the latest CLOCK_MONOTONIC that it shows; INT64_MAX: no limit */
    double tdf;                /* the TDF in force; of a frozen container: the one to go on with */
    int frozen;                /* 1: its time stands still */
} lorentz_time_t;

/* Reads the container's clocks and the host's, of one moment. */
int lorentz_time(const char *container, lorentz_time_t *time);

/* Changes the container's TDF from now on, in an experiment from its next round on. No clock jumps, and waits in
 * progress follow. For a container in an experiment the next five functions are LORENTZ_REFUSED. */
int lorentz_dilate(const char *container, double tdf);

/* Freezes the container's time, and its tasks if there is a cgroup v2 freezer; lets both go on. A second
 * call of either has no effect. */
int lorentz_freeze(const char *container);
int lorentz_unfreeze(const char *container);

/* Move all clocks of the container forward: by a span of 0 or more, or to the present wall clock of another
 * container. A time in its past is LORENTZ_WRONG_INPUT. */
int lorentz_leap(const char *container, int64_t by_ns);
int lorentz_leap_like(const char *container, const char *other);

/* Moves only the container's wall clock, in either direction, but not before 1970. */
int lorentz_step(const char *container, int64_t by_ns);

/* Announce the same changes: each one takes effect by itself when the host's wall clock shows `at`. A time that is
 * past is LORENTZ_WRONG_INPUT. At most 16 changes may be to come. A change drops those announced for the same or a
 * later time. A change that begins at once drops all announced ones. */
int lorentz_dilate_at(const char *container, double tdf, struct timespec at);
int lorentz_freeze_at(const char *container, struct timespec at);
int lorentz_unfreeze_at(const char *container, struct timespec at);
int lorentz_leap_at(const char *container, int64_t by_ns, struct timespec at);
int lorentz_step_at(const char *container, int64_t by_ns, struct timespec at);

/* Attaches the running process pid, and its descendants if tree is not 0, to the clock of a new container
 * called name (NULL: the command makes up a name). That cannot be undone; TDF 1 does no harm. If made is
 * not NULL, the function writes the container's name there, cut to room bytes with its final NUL. No name
 * has more than 128 bytes. LORENTZ_REFUSED for a process that is in virtual time already, or belongs to
 * another user. */
int lorentz_attach(pid_t pid, double tdf, int tree, const char *name, char *made, size_t room);

/* ------------------------------------------------------------------------------- experiments */

/* Many containers whose clocks advance together, in rounds; see docs/experiments-c.md. */
typedef struct lorentz_experiment lorentz_experiment;

/* A field that is zero or NULL stands for its default. */
typedef struct lorentz_settings {
    int64_t timeslice_ns;    /* virtual length of a round: 1000 to 60000000000; default 3000000 */
    const char *cpus;        /* processors on which the containers run: "1", "0,2-5"; default: all but
                                the first */
    uint32_t most;           /* largest number of containers at once: 1 to 1000000; default 1024 */
    int as_fast_as_possible; /* 1: the clocks leap over time in which all containers are idle */
    int end_with_process;    /* 1: the experiment ends when this process ends, or closes the handle */
} lorentz_settings;

#define LORENTZ_NO_TIMELINE (-1)

/* Makes the experiment name, without containers, and a handle to it. The experiment runs in the
 * background until lorentz_experiment_end(). A name has up to 128 letters, digits, '.', '_' and '-', and
 * begins with a letter or digit. LORENTZ_WRONG_INPUT if the name is in use. */
int lorentz_experiment_create(const char *name, const lorentz_settings *settings,
                              lorentz_experiment **experiment);

/* Makes a handle to a running experiment. LORENTZ_ENDED if its process has died; call
 * lorentz_experiment_clear() then. */
int lorentz_experiment_open(const char *name, lorentz_experiment **experiment);

/* Closes the handle. The experiment goes on; but see lorentz_experiment_synchronize(). */
void lorentz_experiment_close(lorentz_experiment *experiment);

/* Releases the containers of an experiment whose process has died. LORENTZ_REFUSED if the process lives. */
int lorentz_experiment_clear(const char *name);

/* Adds a container. A process that is not in virtual time yet is attached, with its descendants.
 * timeline: 0 to 4294967295, the timeline that the container follows if a simulator moves the experiment;
 * negative: none, the experiment runs by itself. The call may come at any time. A container that joins a
 * synchronized experiment begins at the virtual time of the others. */
int lorentz_experiment_add(lorentz_experiment *experiment, const char *container, double tdf,
                           int64_t timeline);

/* Adds a container that runs on several processors of the experiment at once: `parallel` is their number, from 1
 * to the number of those of the experiment (else LORENTZ_REFUSED). No other container runs on them meanwhile. */
int lorentz_experiment_add_parallel(lorentz_experiment *experiment, const char *container, double tdf,
                                    int64_t timeline, uint32_t parallel);

/* Options of a container in an experiment. A field that is zero stands for its default; set timeline to
 * LORENTZ_NO_TIMELINE if no simulator moves it. */
typedef struct lorentz_joining {
    double tdf;        /* real seconds per virtual second in its slices; default 1 */
    int64_t timeline;  /* the timeline that it follows, or LORENTZ_NO_TIMELINE */
    uint32_t parallel; /* number of processors that it runs on at once; default 1 */
    int compute_none;  /* 1: its clock stands while its programs compute, and goes from deadline to deadline:
                          programs see the same instants in every run; default: as the experiment has it */
} lorentz_joining;

/* Adds a container with all its options; as lorentz_experiment_add() for the rest. */
int lorentz_experiment_add_as(lorentz_experiment *experiment, const char *container,
                              const lorentz_joining *options);

/* Releases a container, which goes on by itself. */
int lorentz_experiment_remove(lorentz_experiment *experiment, const char *container);

/* Changes a container's TDF, from the next round on. */
int lorentz_experiment_dilate(lorentz_experiment *experiment, const char *container, double tdf);

/* Stops all containers at one virtual time, the latest of theirs. LORENTZ_REFUSED if there are no
 * containers, only some have a timeline, or the experiment is synchronized already.
 *
 * From then on the calling process is responsible for the frozen containers. If it dies or closes this
 * handle before lorentz_experiment_stop(), a guard process lets the containers go on by themselves. An
 * experiment that was started goes on. */
int lorentz_experiment_synchronize(lorentz_experiment *experiment);

/* Starts rounds that follow one another; stops them after the current one. LORENTZ_REFUSED before
 * lorentz_experiment_synchronize(), and if the containers have timelines. */
int lorentz_experiment_start(lorentz_experiment *experiment);
int lorentz_experiment_pause(lorentz_experiment *experiment);

/* Lets all containers go on by themselves. The experiment is then empty, and can be set up anew. */
int lorentz_experiment_stop(lorentz_experiment *experiment);

/* Sets how far a container moves with each progress of its timeline: virtual ns above 0. timeline: the
 * one with which the container was added, as a check; or negative, for no check. LORENTZ_REFUSED before
 * lorentz_experiment_synchronize(), if the experiment runs by itself, or if the container follows
 * another timeline. */
int lorentz_experiment_set_interval(lorentz_experiment *experiment, const char *container,
                                    int64_t interval_ns, int64_t timeline);

/* Moves all containers of a timeline by their intervals; a container without an interval stays. Returns
 * when all have arrived: each perceives exactly that time. LORENTZ_REFUSED before
 * lorentz_experiment_synchronize(), if the experiment runs by itself, if no container follows the
 * timeline, or while another thread or process is moving the timeline. */
int lorentz_experiment_progress(lorentz_experiment *experiment, int64_t timeline);

/* Moves each of `count` containers by a time of its own, virtual ns above 0, in one exchange; the others
 * stay. containers[i] is the name of a container or the id of one of its processes, intervals_ns[i] its
 * time. Returns when all have arrived: each perceives exactly that time. LORENTZ_REFUSED before
 * lorentz_experiment_synchronize(), if the experiment runs by itself, if a container is not in it, or
 * while another thread or process is moving one; nothing moves then. */
int lorentz_experiment_step(lorentz_experiment *experiment, const char *const containers[],
                            const int64_t intervals_ns[], size_t count);

/* Drops the intervals of a timeline. */
int lorentz_experiment_reset(lorentz_experiment *experiment, int64_t timeline);

/* Writes the state of the experiment as a JSON object, as `lorentz experiment status NAME --json` prints
 * it. The caller frees *json by lorentz_free(). */
int lorentz_experiment_status(lorentz_experiment *experiment, char **json);

/* Ends the experiment; its containers go on by themselves. The caller still has to close the handle. */
int lorentz_experiment_end(lorentz_experiment *experiment);

#ifdef __cplusplus
}
#endif

#endif
