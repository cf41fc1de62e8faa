/*
 * timens MONOTONIC BOOTTIME: enters a time namespace with these offsets, in seconds, in each possible way.
 *
 * "here" is a process outside of it. "fork" is a child after unshare(CLONE_NEWTIME), "exec" the program that this child
 * executes, "thread" its thread, "vfork" the program that a child of vfork executes, "setns" a process that has joined,
 * "back" one that has left again. Each reads every clock as a raw system call, by libc and raw again. Then it waits 50 ms
 * until a time on each clock that supports waits, and prints the duration by its CLOCK_MONOTONIC, and of a timer the time
 * left just after it was set, else 0.
 *
 *     {"ev":"clock","who":"fork","id":1,"raw":1,"libc":2,"raw2":3}
 *     {"ev":"uptime","who":"fork","sysinfo":100,"proc":100.2,"start":99.1,"btime":1900000000}
 *     {"ev":"waited","who":"fork","how":"timerfd 7","elapsed":0.0503,"left":0.0499,"ok":1}
 */
#define _GNU_SOURCE
#include "../lt.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>

#define NEWTIME 0x00000080
#define WAIT (LT_SEC / 20)

static lt_ns raw(int id)
{
	struct timespec t;
	return syscall(SYS_clock_gettime, id, &t) ? -1 : t.tv_sec * LT_SEC + t.tv_nsec;
}

static lt_ns libc(int id)
{
	struct timespec t;
	return clock_gettime(id, &t) ? -1 : t.tv_sec * LT_SEC + t.tv_nsec;
}

/* The seconds since boot at which this process began: field 22 of its stat. */
static double start(void)
{
	char text[1024] = "", *at;
	int fd = open("/proc/self/stat", O_RDONLY);
	LT_CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	at = strrchr(text, ')') + 2;
	for (int field = 3; field < 22; field++)
		at = strchr(at, ' ') + 1;
	return strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
}

/* The date of boot. */
static long long btime(void)
{
	char line[4096];
	long long date = -1;
	FILE *stat = fopen("/proc/stat", "r");
	LT_CHECK(stat != NULL);
	while (date < 0 && fgets(line, sizeof line, stat))
		sscanf(line, "btime %lld", &date);
	fclose(stat);
	return date;
}

static void read_all(const char *who)
{
	struct sysinfo info;
	char text[64] = "";
	double up = 0;
	for (int id = 0; id < 12; id++) {
		if (id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID || raw(id) == -1)
			continue;
		lt_ns first = raw(id), by_libc = libc(id), again = raw(id);
		lt_emit("clock", ",\"who\":\"%s\",\"id\":%d,\"raw\":%lld,\"libc\":%lld,\"raw2\":%lld", who, id,
			first, by_libc, again);
	}
	LT_CHECK(sysinfo(&info) == 0);
	int fd = open("/proc/uptime", O_RDONLY);
	if (fd >= 0) {
		LT_CHECK(read(fd, text, sizeof text - 1) > 0);
		up = strtod(text, NULL);
		close(fd);
	}
	lt_emit("uptime", ",\"who\":\"%s\",\"sysinfo\":%ld,\"proc\":%.2f,\"start\":%.2f,\"btime\":%lld", who,
		(long)info.uptime, up, start(), btime());
}

static int wait_until(int kind, int id, struct timespec until, double *left)
{
	static uint32_t word;
	struct itimerspec its = { .it_value = until }, now = { 0 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	uint64_t count;
	sigset_t set;
	timer_t timer;
	int fd, sig, ok;
	switch (kind) {
	case 0:
		return clock_nanosleep(id, TIMER_ABSTIME, &until, NULL) == 0;
	case 1:
		fd = timerfd_create(id, 0);
		ok = timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL) == 0 && timerfd_gettime(fd, &now) == 0 &&
		     read(fd, &count, 8) == 8;
		*left = lt_sec(now.it_value.tv_sec * LT_SEC + now.it_value.tv_nsec);
		close(fd);
		return ok;
	case 2:
		lt_block(SIGUSR1);
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		LT_CHECK(timer_create(id, &event, &timer) == 0);
		ok = timer_settime(timer, TIMER_ABSTIME, &its, NULL) == 0 && timer_gettime(timer, &now) == 0 &&
		     sigwait(&set, &sig) == 0;
		*left = lt_sec(now.it_value.tv_sec * LT_SEC + now.it_value.tv_nsec);
		timer_delete(timer);
		return ok;
	default:
		return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | (id ? 0 : FUTEX_CLOCK_REALTIME), 0, &until,
			       NULL, -1) == -1 && errno == ETIMEDOUT;
	}
}

static void wait_on(const char *who, const char *how, int kind, int id, int shown_by)
{
	lt_ns begun = libc(CLOCK_MONOTONIC);
	double left = 0;
	int ok = wait_until(kind, id, lt_ts(libc(shown_by) + WAIT), &left);
	lt_emit("waited", ",\"who\":\"%s\",\"how\":\"%s %d\",\"elapsed\":%.9f,\"left\":%.9f,\"ok\":%d", who, how, id,
		lt_sec(libc(CLOCK_MONOTONIC) - begun), left, ok);
}

static void wait_on_all(const char *who)
{
	static const int ids[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME };
	static const char *const kinds[] = { "clock_nanosleep", "timerfd", "timer", "futex" };
	for (int kind = 0; kind < 4; kind++)
		for (int i = 0; i < (kind == 3 ? 2 : 3); i++)
			wait_on(who, kinds[kind], kind, ids[i], ids[i]);
	/* Descriptors on the clocks of alarms need no real-time clock. Reading these clocks does. */
	wait_on(who, kinds[1], 1, CLOCK_REALTIME_ALARM, CLOCK_REALTIME);
	wait_on(who, kinds[1], 1, CLOCK_BOOTTIME_ALARM, CLOCK_BOOTTIME);
}

static void look(const char *who)
{
	read_all(who);
	wait_on_all(who);
}

static void *in_thread(void *unused)
{
	read_all("thread");
	return unused;
}

int main(int argc, char **argv)
{
	char text[128];
	int pipe_in[2], pipe_out[2], status, bad = 0;
	if (argc == 2) {
		look(argv[1]);
		return 0;
	}
	LT_CHECK(argc == 3);
	int from = geteuid() ? CLONE_NEWUSER : 0, first = open("/proc/self/ns/time", O_RDONLY);
	LT_CHECK(first >= 0);
	if (syscall(SYS_unshare, NEWTIME | from)) {
		lt_emit("refused", ",\"err\":%d", errno);
		return 0;
	}
	int n = snprintf(text, sizeof text, "monotonic %s 0\nboottime %s 0\n", argv[1], argv[2]);
	int fd = open("/proc/self/timens_offsets", O_WRONLY);
	LT_CHECK(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
	LT_CHECK(pipe(pipe_in) == 0 && pipe(pipe_out) == 0);
	read_all("here");
	pid_t child = fork();
	LT_CHECK(child >= 0);
	if (child == 0) {
		look("fork");
		pthread_join(lt_thread(in_thread, NULL), NULL);
		LT_CHECK(write(pipe_out[1], "x", 1) == 1 && read(pipe_in[0], text, 1) == 1);
		execl("/proc/self/exe", argv[0], "exec", NULL);
		lt_die("execl");
	}
	LT_CHECK(read(pipe_out[0], text, 1) == 1);
	pid_t started = vfork();
	if (started == 0) {
		execl("/proc/self/exe", argv[0], "vfork", NULL);
		_exit(1);
	}
	LT_CHECK(started > 0 && waitpid(started, &status, 0) == started);
	bad |= status;
	look("here, later");
	snprintf(text, sizeof text, "/proc/%d/ns/time", child);
	fd = open(text, O_RDONLY);
	LT_CHECK(fd >= 0 && setns(fd, NEWTIME) == 0);
	look("setns");
	LT_CHECK(setns(first, NEWTIME) == 0);
	look("back");
	LT_CHECK(write(pipe_in[1], "x", 1) == 1 && waitpid(child, &status, 0) == child);
	bad |= status;
	lt_emit("end", ",\"bad\":%d", bad);
	return bad != 0;
}
