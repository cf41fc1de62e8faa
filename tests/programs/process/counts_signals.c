/*
 * counts_signals: the child sends queued signals, numbered, as fast as the parent's queue takes them, until
 * standard input is closed. Says how many were sent, and how many came in their order.
 */
#include "../lt.h"
#include <poll.h>

static volatile sig_atomic_t came, in_order = 1;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_value.sival_int != came)
		in_order = 0;
	came++;
}

static volatile sig_atomic_t trapped;
static void on_trap(int sig) { (void)sig; trapped++; }

/* Returns the number of signals sent. */
static int send_until_told(pid_t to)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	int sent = 0;
	while (poll(&in, 1, 0) == 0) {
		union sigval value = {.sival_int = sent};
		if (sigqueue(to, SIGRTMIN, value) == 0)
			sent++;
	}
	return sent;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	int back[2], go[2], sent;
	pid_t me = getpid();
	LT_CHECK(pipe(back) == 0 && pipe(go) == 0);
	LT_CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	lt_handle(SIGTRAP, on_trap, 0);
	if (fork() == 0) {
		LT_CHECK(read(go[0], &sent, 1) == 1);
		sent = send_until_told(me);
		LT_CHECK(write(back[1], &sent, sizeof sent) == sizeof sent);
		_exit(0);
	}
	/* Once they come, this process may do nothing but handle them. */
	lt_emit("ready", ",\"pid\":%d", me);
	LT_CHECK(write(go[1], "", 1) == 1);
	LT_CHECK(read(back[0], &sent, sizeof sent) == sizeof sent);
	raise(SIGTRAP);
	lt_emit("signals", ",\"sent\":%d,\"came\":%d,\"in_order\":%d,\"trapped\":%d", sent, (int)came,
		(int)in_order, (int)trapped);
	return 0;
}
