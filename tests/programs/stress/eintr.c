/*
 * eintr N NS: N times a signal from another process, at a random moment, while this one waits. Counts
 * the waits that went on to their end although the handler had run in the midst of them (lost),
 * and those that ended with EINTR though no handler ran (spurious). sigsuspend must never hang.
 */
#include "../lt.h"
#include <poll.h>
#include <sched.h>

/* Sender and receiver on a CPU each, so that the receiver is in its wait when the signal comes. */
static void pin(int cpu)
{
	cpu_set_t s;
	CPU_ZERO(&s);
	CPU_SET(cpu, &s);
	sched_setaffinity(0, sizeof s, &s); /* one CPU only, or not allowed: never mind */
}

static volatile sig_atomic_t handled;
static void on_signal(int sig) { (void)sig; handled++; }

static void one(const char *name, int n, lt_ns ns, int kind, int ask, int answer)
{
	int lost = 0, spurious = 0;
	sigset_t none, old;
	sigemptyset(&none);
	for (int i = 0; i < n; i++) {
		struct timespec t = lt_ts(ns);
		char c = (char)(rand() % 100);
		int r, e;
		handled = 0;
		if (kind == 2)
			old = lt_block(SIGUSR1);
		LT_CHECK(write(ask, &c, 1) == 1);
		errno = 0;
		if (kind == 0)
			r = nanosleep(&t, NULL);
		else if (kind == 1)
			r = poll(NULL, 0, (int)(ns / 1000000));
		else
			r = sigsuspend(&old);
		e = errno;
		if (r == 0 && handled)
			lost++;
		if (r == -1 && e == EINTR && !handled)
			spurious++;
		if (kind == 2)
			sigprocmask(SIG_SETMASK, &old, NULL);
		while (read(answer, &c, 1) < 0 && errno == EINTR)
			;
	}
	lt_emit("eintr", ",\"how\":\"%s\",\"n\":%d,\"lost\":%d,\"spurious\":%d", name, n, lost,
		spurious);
}

int main(int argc, char **argv)
{
	int to[2], back[2], n = argc > 1 ? atoi(argv[1]) : 500;
	lt_ns ns = argc > 2 ? atoll(argv[2]) : 20000000;
	pid_t me = getpid(), child;
	LT_CHECK(pipe(to) == 0 && pipe(back) == 0);
	lt_handle(SIGUSR1, on_signal, 0);
	if ((child = fork()) == 0) {
		char c;
		pin(1);
		close(to[1]);
		while (read(to[0], &c, 1) == 1) {
			for (volatile int i = 0; i < (unsigned char)c * 1000; i++)
				;
			kill(me, SIGUSR1);
			LT_CHECK(write(back[1], &c, 1) == 1);
		}
		_exit(0);
	}
	pin(0);
	one("nanosleep", n, ns, 0, to[1], back[0]);
	one("poll", n, ns, 1, to[1], back[0]);
	one("sigsuspend", n, ns, 2, to[1], back[0]);
	close(to[1]);
	waitpid(child, NULL, 0);
	lt_emit("end", NULL);
	return 0;
}
