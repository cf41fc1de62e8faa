/*
 * TimeKeeper's functions (Lamps, "TimeKeeper Documentation", 2015, chapter 3) on Lorentz: on a stock
 * kernel, without its module. A simulator that was written for TimeKeeper is compiled with this header
 * and linked to this library:
 *
 *     cc simulator.c -ltimekeeper
 *
 * Results     clone_time() returns a pid, all others 0. What fails returns -1, sets errno (EINVAL: a
 *             wrong value; ESRCH: no such process; EPERM: not now, or not to this one; EPIPE: the
 *             experiment has ended; EIO: the machine would not), and timekeeper_error() tells in one
 *             line what was given and what is accepted. After EINVAL, ESRCH and EPERM nothing has
 *             changed.
 * TDF         Real seconds per virtual second: with 2, a process perceives one second in two. -n is
 *             TDF 1/n, 0 is none, as in the documentation's figure 2.1. From 1/1000000 to 1000000; kept
 *             exactly, 0.1f as 1/10.
 * Threads     Any function may be called from any thread; several threads may each progress a timeline.
 * Experiment  There is one, called "timekeeper". The first addToExp() of any process of the user makes
 *             it, with a timeslice of 3 ms on all processors but the first, unless
 *             `lorentz experiment create timekeeper ...` has made it otherwise; stopExp() ends it.
 * Command     The lorentz command is needed: that which LORENTZ_COMMAND names, else the one beside
 *             this library or in ../bin, else that in PATH.
 *
 * What is not the same as in TimeKeeper:
 *
 * - Time belongs to a container, not to a process. A process that is not in virtual time is brought into
 *   it when it is dilated, frozen, leapt or added, in a container of its own; what it starts from then
 *   on is in it too. In one container all have one time: dilate() of one is dilate() of all.
 * - What has been brought into virtual time stays there; dilate(pid, 0) lets it run at TDF 1.
 * - leap() goes forward only: no program's time goes back.
 * - Of a process in an experiment, freeze(), unfreeze() and leap() are refused; dilate() changes its TDF
 *   from the next round on.
 * - progress() returns with all at exactly the same virtual time whether force is 0 or 1: no process
 *   perceives a time beyond its interval, so nothing has to be set right afterwards.
 * - startExp() with timelines, setInterval() without, or any function before the one that has to come
 *   first, is refused; TimeKeeper warns of inaccurate results.
 * - When a process that has called synchronizeAndFreeze() ends before stopExp(), its containers go on
 *   by themselves; those of an experiment that was started go on in it.
 */
#ifndef TIMEKEEPER_H
#define TIMEKEEPER_H

#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was wrong with the calling thread's last call that failed; "" where none has. */
const char *timekeeper_error(void);

/* Makes a process that is a copy of this one, as fork() does, in virtual time with this TDF; returns 0
 * in it, its pid here. flags: SIGCHLD or 0, with any of CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC,
 * CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWCGROUP; others are refused. should_start: 0, it runs at once; 1,
 * it is stopped until unfreeze(), or until the first round after synchronizeAndFreeze(). */
pid_t clone_time(unsigned long flags, float dilation, int should_start);

/* Changes the TDF; dilate_all(): of its descendants too. */
int dilate(int pid, float dilation);
int dilate_all(int pid, float dilation);

/* Stops a process, and its time; freeze_all(): its descendants too. Where there is no cgroup v2 freezer
 * only time stands still. */
int freeze(int pid);
int freeze_all(int pid);

/* Lets it go on, at the time at which it was frozen. */
int unfreeze(int pid);
int unfreeze_all(int pid);

/* Moves pid forward to the virtual time of otherPid. */
int leap(int pid, int otherPid);

/* The virtual time of a process, to the microsecond; the system's, for one without a TDF. tv and tz may
 * be NULL; tz is set to 0. */
int gettimepid(int pid, struct timeval *tv, struct timezone *tz);

/* The same for a container, by its name. */
int gettimename(char *lxcname, struct timeval *tv, struct timezone *tz);

/* The system's time, even where the caller is in virtual time. */
int gettimeofdayoriginal(struct timeval *tv, struct timezone *tz);

/* Adds a process to the experiment, at the TDF it has. timeline: 0 or more, the one it follows, for an
 * experiment that a simulator moves (concurrent synchronization); below 0, for one that runs by itself
 * (concurrent best effort). */
int addToExp(int pid, int timeline);

/* Freezes all that were added, at one virtual time: the latest of theirs. */
int synchronizeAndFreeze(void);

/* Starts the rounds. After synchronizeAndFreeze(), without timelines. */
int startExp(void);

/* How far a process goes with each progress() of its timeline: virtual microseconds, above 0. After
 * synchronizeAndFreeze(). */
int setInterval(int pid, int interval, int timeline);

/* Moves all on the timeline by their intervals; those without one stay. Returns when all have arrived. */
int progress(int timeline, int force);

/* Forgets the intervals of all on the timeline. */
int reset(int timeline);

/* Ends the experiment: all go on by themselves, each at its TDF. */
int stopExp(void);

#ifdef __cplusplus
}
#endif

#endif
