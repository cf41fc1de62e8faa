/*
 * suspended SECONDS: waits so long on each clock, in each way. A line when all waits have begun, and one for each wait that ends:
 *
 *   {"ev":"ready","mono":1,"boot":1,"wall":1}
 *   {"ev":"due","case":"boot-sleep","mono":1,"boot":1,"wall":1,"count":1,"err":0}
 *
 * The clocks are in ns. `count` is how often a timer has gone off; the one called boot-series does so each sixth of the time.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/timerfd.h>

static lt_ns length;

static lt_ns on(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * LT_SEC + t.tv_nsec;
}

static struct timespec timespec_of(lt_ns ns)
{
	struct timespec t = { ns / LT_SEC, ns % LT_SEC };
	return t;
}

static void emit_due(const char *name, long long count, int err)
{
	lt_emit("due", ",\"case\":\"%s\",\"mono\":%lld,\"boot\":%lld,\"wall\":%lld,\"count\":%lld,\"err\":%d", name,
		on(CLOCK_MONOTONIC), on(CLOCK_BOOTTIME), on(CLOCK_REALTIME), count, err);
}

static struct one {
	const char *name;
	clockid_t clock;
	int absolute, cancelled, series;
	int fd;
} descriptors[] = {
	{ "mono", CLOCK_MONOTONIC, 0, 0, 0, -1 },
	{ "boot", CLOCK_BOOTTIME, 0, 0, 0, -1 },
	{ "boot-absolute", CLOCK_BOOTTIME, 1, 0, 0, -1 },
	{ "boot-series", CLOCK_BOOTTIME, 0, 0, 1, -1 },
	{ "wall", CLOCK_REALTIME, 0, 0, 0, -1 },
	{ "wall-absolute", CLOCK_REALTIME, 1, 0, 0, -1 },
	{ "wall-cancelled", CLOCK_REALTIME, 1, 1, 0, -1 },
};
enum { DESCRIPTORS = sizeof descriptors / sizeof *descriptors };

static struct sleeper {
	const char *name;
	clockid_t clock;
	int absolute;
} sleepers[] = {
	{ "mono-sleep", CLOCK_MONOTONIC, 0 },
	{ "boot-sleep", CLOCK_BOOTTIME, 0 },
	{ "boot-sleep-absolute", CLOCK_BOOTTIME, 1 },
	{ "wall-sleep-absolute", CLOCK_REALTIME, 1 },
};
enum { SLEEPERS = sizeof sleepers / sizeof *sleepers };

static void *sleeps(void *arg)
{
	struct sleeper *one = arg;
	struct timespec until = timespec_of(length + (one->absolute ? on(one->clock) : 0));
	int err = clock_nanosleep(one->clock, one->absolute ? TIMER_ABSTIME : 0, &until, NULL);
	emit_due(one->name, 1, err);
	return NULL;
}

/* A timer of timer_create on CLOCK_BOOTTIME; its signal is blocked in all threads. */
static void *takes_signal(void *arg)
{
	sigset_t set;
	siginfo_t info;
	(void)arg;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (sigwaitinfo(&set, &info) < 0)
		;
	emit_due("boot-timer", info.si_overrun + 1, 0);
	return NULL;
}

static void set_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec setting = { { 0, 0 }, timespec_of(length) };
	timer_t timer;
	if (timer_create(CLOCK_BOOTTIME, &event, &timer) || timer_settime(timer, 0, &setting, NULL))
		lt_die("timer_create");
}

static void set_descriptor(struct one *one)
{
	lt_ns first = one->series ? length / 6 : length;
	struct itimerspec setting = { timespec_of(one->series ? length / 6 : 0),
				      timespec_of(first + (one->absolute ? on(one->clock) : 0)) };
	int flags = (one->absolute ? TFD_TIMER_ABSTIME : 0) | (one->cancelled ? TFD_TIMER_CANCEL_ON_SET : 0);
	one->fd = timerfd_create(one->clock, TFD_NONBLOCK);
	if (one->fd < 0 || timerfd_settime(one->fd, flags, &setting, NULL))
		lt_die("timerfd");
}

int main(int argc, char **argv)
{
	struct pollfd polled[DESCRIPTORS];
	pthread_t thread;
	sigset_t set;

	length = (argc > 1 ? atoll(argv[1]) : 1) * LT_SEC;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_create(&thread, NULL, takes_signal, NULL);
	set_timer();
	for (int i = 0; i < SLEEPERS; i++)
		pthread_create(&thread, NULL, sleeps, &sleepers[i]);
	for (int i = 0; i < DESCRIPTORS; i++) {
		set_descriptor(&descriptors[i]);
		polled[i].fd = descriptors[i].fd;
		polled[i].events = POLLIN;
	}
	/* The threads go to sleep meanwhile. */
	usleep(200000);
	lt_emit("ready", ",\"mono\":%lld,\"boot\":%lld,\"wall\":%lld", on(CLOCK_MONOTONIC), on(CLOCK_BOOTTIME),
		on(CLOCK_REALTIME));
	for (;;) {
		poll(polled, DESCRIPTORS, -1);
		for (int i = 0; i < DESCRIPTORS; i++) {
			uint64_t count = 0;
			if (!polled[i].revents)
				continue;
			errno = 0;
			if (read(polled[i].fd, &count, sizeof count) < 0 && errno == EAGAIN)
				continue;
			emit_due(descriptors[i].name, (long long)count, errno);
		}
	}
}
