/*
 * clones NS: children made in unusual ways sleep NS; then the parent does.
 *     vfork          shares the parent's memory while it sleeps
 *     clear_sighand  clone3 with CLONE_CLEAR_SIGHAND: handlers are gone in the child
 *     vm             clone(CLONE_VM) without CLONE_THREAD: two processes, one memory
 */
#include "../lt.h"
#include <sched.h>

static lt_ns ns;

static double nap(void)
{
	lt_ns t0 = lt_now(CLOCK_MONOTONIC);
	lt_sleep(ns);
	return lt_sec(lt_now(CLOCK_MONOTONIC) - t0);
}

static void say(const char *how, const char *who, int err, double slept)
{
	lt_emit("clone", ",\"how\":\"%s\",\"who\":\"%s\",\"err\":%d,\"slept\":%.9f", how, who, err, slept);
}

struct clone3_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, rest[6]; };
#define CLEAR_SIGHAND 0x100000000ULL

static volatile double shared_nap;
static int in_shared_memory(void *p)
{
	(void)p;
	struct timespec t = lt_ts(ns), a, b;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a);
	syscall(SYS_nanosleep, &t, NULL);
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &b);
	shared_nap = lt_ts_sec(b) - lt_ts_sec(a);
	syscall(SYS_exit, 0);
	return 0;
}

int main(int argc, char **argv)
{
	static char stack[65536] __attribute__((aligned(16)));
	volatile double child = 0;
	int status;
	ns = argc > 1 ? atoll(argv[1]) : 100000000;
	pid_t pid = vfork();
	if (pid == 0) {
		child = nap();
		_exit(0);
	}
	LT_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	say("vfork", "child", 0, child);
	say("vfork", "parent", 0, nap());

	struct clone3_args a = { .flags = CLEAR_SIGHAND, .exit_signal = SIGCHLD };
	errno = 0;
	long r = syscall(435 /* clone3 */, &a, sizeof a);
	if (r == 0) {
		say("clear_sighand", "child", 0, nap());
		_exit(0);
	}
	if (r > 0) {
		LT_CHECK(waitpid((pid_t)r, &status, 0) == r);
		if (status)
			say("clear_sighand", "child", status, 0);
	} else
		say("clear_sighand", "refused", errno, 0);
	say("clear_sighand", "parent", 0, nap());

	pid = clone(in_shared_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	LT_CHECK(pid > 0);
	say("vm", "parent", 0, nap());
	LT_CHECK(waitpid(pid, &status, 0) == pid);
	say("vm", "child", status, shared_nap);
	lt_emit("end", NULL);
	return 0;
}
