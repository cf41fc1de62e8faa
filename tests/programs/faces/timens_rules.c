/*
 * timens_rules: the kernel's rules for time namespaces.
 *
 *     {"ev":"rule","what":"setns with a thread","err":87}     0: the call succeeds
 *     {"ev":"offsets","who":"nested","monotonic":300,"boottime":40}   as /proc/self/timens_offsets has them
 *     {"ev":"ahead","who":"nested","monotonic":300.0001}     seconds ahead of a process outside
 */
#define _GNU_SOURCE
#include "../lt.h"
#include <fcntl.h>
#include <sched.h>

#define NEWTIME 0x00000080

static void rule(const char *what, long result)
{
	lt_emit("rule", ",\"what\":\"%s\",\"err\":%d", what, result < 0 ? errno : 0);
}

static long offsets(const char *text)
{
	int fd = open("/proc/self/timens_offsets", O_WRONLY);
	long result = write(fd, text, strlen(text));
	int err = errno;
	close(fd);
	errno = err;
	return result;
}

static void show_offsets(const char *who)
{
	char text[256] = "";
	long monotonic = -1, boottime = -1;
	int fd = open("/proc/self/timens_offsets", O_RDONLY);
	LT_CHECK(read(fd, text, sizeof text - 1) > 0);
	close(fd);
	LT_CHECK(sscanf(text, "monotonic %ld %*d boottime %ld", &monotonic, &boottime) == 2);
	lt_emit("offsets", ",\"who\":\"%s\",\"monotonic\":%ld,\"boottime\":%ld", who, monotonic, boottime);
}

static void *sleeper(void *unused)
{
	pause();
	return unused;
}

static lt_ns now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * LT_SEC + t.tv_nsec;
}

/* A child says when it is, and waits until the parent has said it too. */
static void tell(int fd)
{
	lt_ns time = now();
	LT_CHECK(write(fd, &time, sizeof time) == sizeof time);
}

int main(void)
{
	int fds[2];
	lt_ns inner, nested;
	char path[64], byte;
	int wait_fds[2];

	LT_CHECK(pipe(fds) == 0 && pipe(wait_fds) == 0);
	if (syscall(SYS_unshare, NEWTIME)) {
		lt_emit("refused", ",\"err\":%d", errno);
		return 0;
	}
	rule("offsets without a number", offsets("monotonic\n"));
	rule("offsets of an unknown clock", offsets("realtime 5 0\n"));
	rule("offsets with too many nanoseconds", offsets("monotonic 5 1000000000\n"));
	rule("offsets that make the clock negative", offsets("monotonic -4000000000 0\n"));
	rule("offsets beyond the range", offsets("monotonic 9000000000 0\n"));
	rule("offsets", offsets("monotonic 100 0\nboottime 40 0\n"));
	rule("offsets twice", offsets("monotonic 200 0\n"));
	show_offsets("made");
	pid_t child = fork();
	LT_CHECK(child >= 0);
	if (child == 0) {
		tell(fds[1]);
		rule("offsets once a process is in", offsets("monotonic 300 0\n"));
		LT_CHECK(syscall(SYS_unshare, NEWTIME) == 0);
		show_offsets("nested, inherited");
		rule("offsets of a nested namespace", offsets("monotonic 300 0\n"));
		show_offsets("nested");
		pid_t grandchild = fork();
		LT_CHECK(grandchild >= 0);
		if (grandchild == 0) {
			tell(fds[1]);
			return 0;
		}
		int status;
		LT_CHECK(waitpid(grandchild, &status, 0) == grandchild);
		LT_CHECK(write(wait_fds[1], "x", 1) == 1);
		pause();
	}
	LT_CHECK(read(fds[0], &inner, sizeof inner) == sizeof inner);
	LT_CHECK(read(fds[0], &nested, sizeof nested) == sizeof nested);
	lt_emit("ahead", ",\"who\":\"inner\",\"monotonic\":%.3f", lt_sec(inner - now()));
	lt_emit("ahead", ",\"who\":\"nested\",\"monotonic\":%.3f", lt_sec(nested - now()));
	LT_CHECK(read(wait_fds[0], &byte, 1) == 1);
	snprintf(path, sizeof path, "/proc/%d/ns/time", child);
	int fd = open(path, O_RDONLY);
	pthread_t thread = lt_thread(sleeper, NULL);
	rule("setns with a thread", setns(fd, NEWTIME));
	rule("unshare with a thread", syscall(SYS_unshare, NEWTIME));
	LT_CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
	rule("setns", setns(fd, NEWTIME));
	kill(child, SIGKILL);
	LT_CHECK(waitpid(child, NULL, 0) == child);
	return 0;
}
