/*
 * masks: waits while every signal is blocked, by each way there is to block them. Each line is
 * {"ev":"masked","case":...,"ok":1,"slept":s}; the process must live to the end.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static lt_ns ns;
static volatile double in_handler;

static double nap(void)
{
	lt_ns t0 = lt_now(CLOCK_MONOTONIC);
	lt_sleep(ns);
	return lt_sec(lt_now(CLOCK_MONOTONIC) - t0);
}

static void say(const char *name, int ok, double slept)
{
	lt_emit("masked", ",\"case\":\"%s\",\"ok\":%d,\"slept\":%.9f", name, ok, slept);
}

static void on_signal(int sig) { (void)sig; in_handler = nap(); }
static void on_alarm(int sig) { (void)sig; }

static void *thread_nap(void *p) { *(double *)p = nap(); return NULL; }

int main(int argc, char **argv)
{
	sigset_t all, none, but_alarm;
	struct sigaction sa;
	struct timespec t;
	struct epoll_event e;
	pthread_t th;
	double d = 0;
	lt_ns t0;
	int r;
	ns = argc > 1 ? atoll(argv[1]) : 100000000;
	t = lt_ts(ns);
	sigfillset(&all);
	sigemptyset(&none);
	sigfillset(&but_alarm);
	sigdelset(&but_alarm, SIGALRM);

	LT_CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	say("sigprocmask", 1, nap());
	th = lt_thread(thread_nap, &d); /* a thread inherits the mask */
	pthread_join(th, NULL);
	say("thread", 1, d);
	pid_t pid = fork();
	if (pid == 0) {
		say("fork", 1, nap());
		_exit(0);
	}
	LT_CHECK(waitpid(pid, &r, 0) == pid && r == 0);
	LT_CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);

	unsigned long raw = ~0UL;
	LT_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &raw, NULL, 8) == 0);
	say("raw sigprocmask", 1, nap());
	raw = 0;
	LT_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &raw, NULL, 8) == 0);

	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal;
	sa.sa_mask = all;
	LT_CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	raise(SIGUSR1);
	say("sa_mask", 1, in_handler);

	t0 = lt_now(CLOCK_MONOTONIC);
	r = ppoll(NULL, 0, &t, &all);
	say("ppoll", r == 0, lt_sec(lt_now(CLOCK_MONOTONIC) - t0));
	t0 = lt_now(CLOCK_MONOTONIC);
	r = pselect(0, NULL, NULL, NULL, &t, &all);
	say("pselect", r == 0, lt_sec(lt_now(CLOCK_MONOTONIC) - t0));
	t0 = lt_now(CLOCK_MONOTONIC);
	r = epoll_pwait(epoll_create1(0), &e, 1, (int)(ns / 1000000), &all);
	say("epoll_pwait", r == 0, lt_sec(lt_now(CLOCK_MONOTONIC) - t0));

	lt_handle(SIGALRM, on_alarm, 0);
	struct itimerval iv = { .it_value = lt_tv(ns) };
	/* Blocked: it comes in sigsuspend, however late that begins. */
	sigset_t before = lt_block(SIGALRM);
	t0 = lt_now(CLOCK_MONOTONIC);
	LT_CHECK(setitimer(ITIMER_REAL, &iv, NULL) == 0);
	r = sigsuspend(&but_alarm);
	say("sigsuspend", r == -1 && errno == EINTR, lt_sec(lt_now(CLOCK_MONOTONIC) - t0));
	LT_CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	say("after", 1, nap());
	lt_emit("end", NULL);
	return 0;
}
