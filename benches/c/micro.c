// Measures the cost of single calls: clock reads, plain syscalls, waits that return at once.
//
//     micro [NAME-PREFIX [PARTS]]
//
// Prints one line per call, `name ticks`: the median over BATCHES batches of the time-stamp
// counter's ticks per call. With PARTS the batches are shorter and more by that factor, for a
// program that is stopped from time to time. The program is linked dynamically and calls through
// libc, as programs do, so that every competitor can intercept the call. If libc has no function,
// the call is a raw syscall.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { BATCHES = 25, MOST_PARTS = 1000 };

static int zero_fd;	 // /dev/zero
static int ready_fd;	 // an eventfd that is always readable
static int ready_epoll;	 // an epoll that watches ready_fd
static int silent_epoll; // an epoll that watches nothing
static uint32_t futex_word = 1;

static struct timespec ts;
static char byte;
static struct epoll_event event;

static long futex(int operation, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, &futex_word, operation, value, timeout, NULL, 0);
}

// Each case makes one call and returns whether the call succeeded.
static int clock_monotonic(void) { return clock_gettime(CLOCK_MONOTONIC, &ts) == 0; }
static int clock_realtime(void) { return clock_gettime(CLOCK_REALTIME, &ts) == 0; }
static int clock_coarse(void) { return clock_gettime(CLOCK_MONOTONIC_COARSE, &ts) == 0; }
static int clock_time(void) { return time(NULL) != (time_t)-1; }
static int clock_gettimeofday(void)
{
	struct timeval tv;
	return gettimeofday(&tv, NULL) == 0;
}
static int clock_syscall(void) { return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts) == 0; }
static int plain_getppid(void) { return syscall(SYS_getppid) >= 0; }
static int plain_read(void) { return read(zero_fd, &byte, 1) == 1; }
static int endless_epoll(void) { return epoll_wait(ready_epoll, &event, 1, -1) == 1; }
static int endless_poll(void)
{
	struct pollfd watched = {ready_fd, POLLIN, 0};
	return poll(&watched, 1, -1) == 1;
}
static int endless_epoll_zero(void) { return epoll_wait(silent_epoll, &event, 1, 0) == 0; }
static int endless_futex_wake(void) { return futex(FUTEX_WAKE_PRIVATE, 1, NULL) == 0; }
static int endless_futex_wait(void)
{
	return futex(FUTEX_WAIT_PRIVATE, 0, NULL) == -1 && errno == EAGAIN;
}
static int finite_epoll(void) { return epoll_wait(ready_epoll, &event, 1, 1000) == 1; }
static int finite_futex(void)
{
	struct timespec second = {1, 0};
	return futex(FUTEX_WAIT_PRIVATE, 0, &second) == -1 && errno == EAGAIN;
}
static int finite_nanosleep(void)
{
	struct timespec nothing = {0, 0};
	return nanosleep(&nothing, NULL) == 0;
}

static const struct {
	const char *name;
	int (*call)(void);
	int calls; // in one batch
} cases[] = {
	{"clock_monotonic", clock_monotonic, 20000},
	{"clock_realtime", clock_realtime, 20000},
	{"clock_coarse", clock_coarse, 20000},
	{"clock_time", clock_time, 20000},
	{"clock_gettimeofday", clock_gettimeofday, 20000},
	{"clock_syscall", clock_syscall, 2000},
	{"plain_getppid", plain_getppid, 5000},
	{"plain_read", plain_read, 5000},
	{"endless_epoll", endless_epoll, 5000},
	{"endless_poll", endless_poll, 5000},
	{"endless_epoll_zero", endless_epoll_zero, 5000},
	{"endless_futex_wake", endless_futex_wake, 5000},
	{"endless_futex_wait", endless_futex_wait, 5000},
	{"finite_epoll", finite_epoll, 1000},
	{"finite_futex", finite_futex, 1000},
	{"finite_nanosleep", finite_nanosleep, 40},
};

static void prepare(void)
{
	zero_fd = open("/dev/zero", O_RDONLY);
	ready_fd = eventfd(1, EFD_NONBLOCK);
	ready_epoll = epoll_create1(0);
	silent_epoll = epoll_create1(0);
	struct epoll_event readable = {.events = EPOLLIN};
	if (zero_fd < 0 || ready_fd < 0 || ready_epoll < 0 || silent_epoll < 0 ||
	    epoll_ctl(ready_epoll, EPOLL_CTL_ADD, ready_fd, &readable) != 0)
		die("prepare");
}

// Binds the program to the last processor that it may use: all levels then run in the same place.
static void stay_on_one_processor(void)
{
	cpu_set_t allowed, last;
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		die("sched_getaffinity");
	CPU_ZERO(&last);
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &allowed)) {
			CPU_SET(cpu, &last);
			break;
		}
	if (sched_setaffinity(0, sizeof last, &last) != 0)
		die("sched_setaffinity");
}

static double ticks_per_call(const char *name, int (*call)(void), int calls, int parts)
{
	static double batches[BATCHES * MOST_PARTS];
	int count = BATCHES * parts;
	calls = calls > parts ? calls / parts : 1;
	for (int batch = -1; batch < count; batch++) { // batch -1 warms up
		int good = 0;
		uint64_t start = ticks();
		for (int i = 0; i < calls; i++)
			good += call();
		uint64_t end = ticks();
		if (good != calls) {
			fprintf(stderr, "%s: %d of %d calls went wrong\n", name, calls - good, calls);
			exit(1);
		}
		if (batch >= 0)
			batches[batch] = (double)(end - start) / calls;
	}
	return quantile(batches, (size_t)count, 0.5);
}

int main(int argc, char **argv)
{
	const char *prefix = argc > 1 ? argv[1] : "";
	int parts = argc > 2 ? atoi(argv[2]) : 1;
	if (parts < 1 || parts > MOST_PARTS) {
		fprintf(stderr, "usage: micro [NAME-PREFIX [PARTS]], PARTS from 1 to %d\n", MOST_PARTS);
		return 2;
	}
	prepare();
	stay_on_one_processor();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (strncmp(cases[i].name, prefix, strlen(prefix)) == 0)
			printf("%s %.2f\n", cases[i].name,
			       ticks_per_call(cases[i].name, cases[i].call, cases[i].calls, parts));
	return 0;
}
