/*
 * fork_timers NS: an itimer and a POSIX timer armed before fork() go off in the parent, once each,
 * and not in the child.
 */
#include "../lt.h"

static volatile sig_atomic_t fired;
static void on_signal(int sig) { (void)sig; fired++; }

int main(int argc, char **argv)
{
	lt_ns ns = argc > 1 ? atoll(argv[1]) : LT_SEC;
	struct itimerval iv = { .it_value = lt_tv(ns) }, now;
	struct itimerspec is = { .it_value = lt_ts(ns + ns / 10) };
	struct sigevent ev;
	timer_t t;
	memset(&ev, 0, sizeof ev);
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = SIGUSR1;
	lt_handle(SIGALRM, on_signal, 0);
	lt_handle(SIGUSR1, on_signal, 0);
	/* Blocked until the child is there: none of the parent's signals is counted before. */
	sigset_t old = lt_block(SIGALRM);
	lt_block(SIGUSR1);
	LT_CHECK(setitimer(ITIMER_REAL, &iv, NULL) == 0);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
	LT_CHECK(timer_settime(t, 0, &is, NULL) == 0);
	pid_t pid = fork();
	LT_CHECK(pid >= 0);
	LT_CHECK(getitimer(ITIMER_REAL, &now) == 0);
	LT_CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	lt_sleep(2 * ns);
	lt_emit(pid ? "parent" : "child", ",\"fired\":%d,\"left\":%.6f", fired,
		lt_tv_sec(now.it_value));
	if (pid)
		waitpid(pid, NULL, 0);
	return 0;
}
