/*
 * TimeKeeper's functions (Lamps, "TimeKeeper Documentation", 2015, chapter 3) on Lorentz: on a stock
 * kernel, without its module. Types are those of TimeKeeper's published code. Compile a simulator that was
 * written for TimeKeeper with this header, or with the names of that code, TimeKeeper_functions.h,
 * TimeKeeper_definitions.h and utility_functions.h, and link it to this library:
 *
 *     cc simulator.c -ltimekeeper
 *
 * Results     clone_time() returns a pid, all other functions 0. A function that fails returns -1 and sets
 *             errno: EINVAL, a value is not valid; ESRCH, there is no such process; EPERM, a wrong order of
 *             calls, or another experiment moves the process; EPIPE, the experiment has ended; EIO, the
 *             machine or the kernel could not do it. timekeeper_error() then returns one line that says
 *             what was given and what is accepted. After EINVAL, ESRCH and EPERM nothing has changed.
 * TDF         Real seconds per virtual second: with 2, a process perceives one second in two. -n is
 *             TDF 1/n, 0 is none, as in the documentation's figure 2.1. A TDF is from 1/1000000 to 1000000.
 *             It is stored exactly: 0.1f is 1/10.
 * Threads     Any thread may call any function. Several threads may each progress a timeline.
 * Experiment  There is one, called "timekeeper". The first addToExp() of any process of the user makes
 *             it, with a timeslice of 3 ms on all processors but the first, unless
 *             `lorentz experiment create timekeeper ...` has made it otherwise; stopExp() ends it.
 * Command     The library calls the lorentz command: the one that LORENTZ_COMMAND names, else the one beside
 *             this library or in ../bin, else the one in PATH.
 *
 * Differences from TimeKeeper:
 *
 * - Time belongs to a container, not to a process. dilate(), freeze(), leap() and addToExp() attach a
 *   process in real time to a container of its own. Processes that it starts from then on are in that
 *   container too. All processes of a container have one time: dilate() of one is dilate() of all.
 * - A process that was brought into virtual time stays there; dilate(pid, 0) lets it run at TDF 1.
 * - leap() goes forward only: no program's time goes back. In the documentation its second argument is a
 *   process; that function is leap_to() here. Programs that were linked to libtimekeeper.so.0, in which
 *   dilations are of type float, get leap_to() by the name of leap(): both libraries are installed.
 * - For a process in an experiment, freeze(), unfreeze() and leap() are refused; dilate() changes its TDF
 *   from the next round on.
 * - progress() returns with all processes at exactly the same virtual time, whether force is 0 or 1. No
 *   process perceives a time beyond its interval, so nothing has to be corrected afterwards.
 * - The library refuses startExp() with timelines, setInterval() without, and any function before the one
 *   that has to come first. TimeKeeper warns of inaccurate results.
 * - If a process that has called addToExp() and synchronizeAndFreeze() ends before stopExp(), a guard process
 *   lets its containers go on by themselves. Containers of an experiment that was started go on in it. After a
 *   program that only calls synchronizeAndFreeze(), as TimeKeeper's utility does, they stand until others go on.
 */
#ifndef TIMEKEEPER_H
#define TIMEKEEPER_H

#include <poll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the error of the calling thread's last call that failed; "" if none has. */
const char *timekeeper_error(void);

/* Makes a copy of this process, as fork() does, in virtual time with this TDF. Returns 0 in the child,
 * and the child's pid in this process. flags: SIGCHLD or 0, with any of CLONE_NEWNS, CLONE_NEWUTS,
 * CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWCGROUP; others are refused. should_start: 0, the child
 * runs at once; 1, it is stopped until unfreeze(), or until the first round after synchronizeAndFreeze(). */
pid_t clone_time(unsigned long flags, double dilation, int should_start);

/* Changes the TDF of a process; dilate_all() changes that of its descendants too. */
int dilate(int pid, double dilation);
int dilate_all(int pid, double dilation);

/* Stops a process and its time; freeze_all() stops its descendants too. Without a cgroup v2 freezer, only
 * time stands still. */
int freeze(int pid);
int freeze_all(int pid);

/* Lets a process go on, at the virtual time at which it was frozen. */
int unfreeze(int pid);
int unfreeze_all(int pid);

/* Moves a process forward by virtual microseconds above 0. */
int leap(int pid, int interval);

/* Moves pid forward to the virtual time of otherPid. */
int leap_to(int pid, int otherPid);

/* Reads the virtual time of a process, in microseconds; the system's time for a process without a TDF. tv
 * and tz may be NULL; tz is set to 0. */
int gettimepid(int pid, struct timeval *tv, struct timezone *tz);

/* Reads the virtual time of a container, by its name. */
int gettimename(char *lxcname, struct timeval *tv, struct timezone *tz);

/* Reads the system's time, even if the caller is in virtual time. */
int gettimeofdayoriginal(struct timeval *tv, struct timezone *tz);

/* Returns the id of the first process of a container, by its name. */
int getpidfromname(char *lxcname);

/* As select(2) and poll(2), whose timeouts are virtual for a process in virtual time. */
int select_dialated(int nfds, fd_set *read_fds, fd_set *write_fds, fd_set *except_fds,
                    struct timeval *timeout);
int poll_dialated(struct pollfd *fds, nfds_t count, int timeout);

/* Adds a process to the experiment, at its present TDF. timeline: 0 or more, the timeline that the process
 * follows in an experiment that a simulator moves (concurrent synchronization); below 0, for an experiment
 * that runs by itself (concurrent best effort). */
int addToExp(int pid, int timeline);

/* Freezes all processes of the experiment at one virtual time, the latest of theirs. */
int synchronizeAndFreeze(void);

/* Sets the length of a round: how long the process with the greatest TDF runs, in real nanoseconds. It must
 * come after addToExp() of all processes, and before synchronizeAndFreeze(). */
int set_cbe_experiment_timeslice(unsigned long long timeslice);

/* Starts the rounds. It must come after synchronizeAndFreeze(), in an experiment without timelines. */
int startExp(void);

/* Sets how far a process moves with each progress() of its timeline: virtual microseconds above 0. It must
 * come after synchronizeAndFreeze(). */
int setInterval(int pid, int interval, int timeline);

/* Moves all processes on the timeline by their intervals; a process without an interval stays. Returns when
 * all have arrived. */
int progress(int timeline, int force);

/* Drops the intervals of all processes on the timeline. */
int reset(int timeline);

/* Ends the experiment. All its processes go on by themselves, each at its TDF. */
int stopExp(void);

#ifdef __cplusplus
}
#endif

#endif
