/*
 * Letters of the commands that send_to_timekeeper() takes, with the numbers that follow each, by commas.
 *
 * A TDF is in thousandths, as fixDilation() returns it above 0; "1,N" is the inverse of N thousandths. The
 * commands have the effects of the functions in timekeeper.h, and their errors.
 */
#ifndef TIMEKEEPER_DEFINITIONS_H
#define TIMEKEEPER_DEFINITIONS_H

#define DILATE 'A'                 /* pid,TDF: dilate() */
#define DILATE_ALL 'B'             /* pid,TDF: dilate_all() */
#define FREEZE_OR_UNFREEZE 'C'     /* pid,SIGSTOP: freeze(); pid,SIGCONT: unfreeze() */
#define FREEZE_OR_UNFREEZE_ALL 'D' /* pid,SIGSTOP: freeze_all(); pid,SIGCONT: unfreeze_all() */
#define LEAP 'E'                   /* pid,interval: leap() */

#define ADD_TO_EXP_CBE 'F'        /* pid: addToExp(pid, -1) */
#define ADD_TO_EXP_CS 'G'         /* pid,timeline: addToExp() */
#define SYNC_AND_FREEZE 'H'       /* synchronizeAndFreeze() */
#define START_EXP 'I'             /* startExp() */
#define SET_INTERVAL 'J'          /* pid,interval,timeline: setInterval() */
#define PROGRESS 'K'              /* timeline,tid,force: progress(). Nothing is sent to the thread tid. */
#define FIX_TIMELINE 'L'          /* timeline: no effect; no progress() is left waiting here */
#define RESET 'M'                 /* timeline: reset() */
#define STOP_EXP 'N'              /* stopExp() */
#define SET_CBE_EXP_TIMESLICE 'T' /* nanoseconds: set_cbe_experiment_timeslice() */

/* These print into the kernel's log, or change a device of the kernel: refused with EINVAL. */
#define DEBUG_PROC_INFO 'O'
#define DEBUG_PROGRESS_EXP 'P'
#define DEBUG_CHILDREN_INFO 'Q'
#define DEBUG_THREAD_INFO 'R'
#define DEBUG_SEND_MESSAGE 'S'
#define SET_NETDEVICE_OWNER 'U'

#endif
