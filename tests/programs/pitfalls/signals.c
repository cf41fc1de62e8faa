/*
 * signals rt N      queues N signals of the highest real-time number to itself: all are handled
 * signals jump N    N times out of a sleep by siglongjmp from a handler, then a sleep to its end
 * signals stops     a child is waited for with WUNTRACED and WCONTINUED: what was reported
 */
#include "../lt.h"
#include <setjmp.h>

static volatile sig_atomic_t handled;
static volatile long sum;
static sigjmp_buf out;

static void on_rt(int sig, siginfo_t *si, void *ctx)
{
	(void)sig, (void)ctx;
	handled++;
	sum += si->si_value.sival_int;
}

static void on_alarm(int sig) { (void)sig; handled++; siglongjmp(out, 1); }

static void do_rt(int n)
{
	struct sigaction sa, back;
	int top = SIGRTMAX;
	long want = 0;
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_rt;
	sa.sa_flags = SA_SIGINFO;
	LT_CHECK(sigaction(top, &sa, NULL) == 0);
	LT_CHECK(sigaction(top, NULL, &back) == 0);
	for (int i = 1; i <= n; i++) {
		want += i;
		while (sigqueue(getpid(), top, (union sigval){ .sival_int = i }) == -1 && errno == EAGAIN)
			sched_yield();
		lt_sleep(1000000);
	}
	lt_emit("rt", ",\"sent\":%d,\"handled\":%d,\"sum_right\":%d,\"mine\":%d", n, handled, sum == want,
		back.sa_sigaction == on_rt);
}

static void do_jump(int n)
{
	struct itimerval iv = { .it_value = { 0, 2000 } };
	struct timespec longer = { 1000, 0 }, shorter = { 0, 1000000 };
	volatile int jumped = 0, wrong = 0;
	lt_handle(SIGALRM, on_alarm, 0);
	for (volatile int i = 0; i < n; i++) {
		if (sigsetjmp(out, 1) == 0) {
			LT_CHECK(setitimer(ITIMER_REAL, &iv, NULL) == 0);
			nanosleep(&longer, NULL);
			wrong++;
		} else
			jumped++;
		lt_ns t0 = lt_now(CLOCK_MONOTONIC);
		if (nanosleep(&shorter, NULL) || lt_now(CLOCK_MONOTONIC) - t0 < 1000000)
			wrong++;
	}
	lt_emit("jump", ",\"jumped\":%d,\"wrong\":%d", jumped, wrong);
}

static void do_stops(void)
{
	int status, reports = 0;
	char c;
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			lt_sleep(10000000);
	lt_emit("ready", ",\"case\":\"stops\"");
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
	while (waitpid(pid, &status, WUNTRACED | WCONTINUED | WNOHANG) > 0)
		reports++;
	kill(pid, SIGSTOP);
	LT_CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	lt_emit("stops", ",\"reports\":%d,\"a_real_one\":%d", reports, WIFSTOPPED(status) != 0);
	kill(pid, SIGKILL);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "rt"))
		do_rt(atoi(argv[2]));
	else if (argc > 2 && !strcmp(argv[1], "jump"))
		do_jump(atoi(argv[2]));
	else if (argc > 1 && !strcmp(argv[1], "stops"))
		do_stops();
	else
		return 96;
	return 0;
}
