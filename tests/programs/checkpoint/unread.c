/*
 * unread: expiries of periodic timers that nobody takes for a while.
 *
 * prints {"ev":"ready"} when some have come, and takes them seconds later:
 *
 *     {"ev":"done","case":"descriptor","count":8,"least":8,"most":8,"again":0,"others":0}
 *
 * count: the expiries taken; least, most: those that have come by the clock before and after; again: whether there are more;
 * others: signals of the same number that the timer has not sent
 *
 * descriptor: a timer descriptor; signal: a timer of timer_create; queued: one whose signal waits behind one that the
 * program has sent itself
 */
#include "../lt.h"
#include <sys/timerfd.h>

#define PERIOD (LT_SEC / 2)

static int fd;
static timer_t timers[2];
static const int signals[2] = { SIGUSR1, 40 };

static void done(const char *name, int (*take)(int, int *), int which, lt_ns begun)
{
	int others = 0;
	lt_ns least = (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD;
	int count = take(which, &others);
	lt_ns most = (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD;
	/* The next one may come between the two. */
	int again = most == least && take(which, &others) > 0 && (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD == most;
	lt_emit("done", ",\"case\":\"%s\",\"count\":%d,\"least\":%lld,\"most\":%lld,\"again\":%d,\"others\":%d", name, count, least,
		most, again, others);
}

static int from_descriptor(int which, int *others)
{
	uint64_t count = 0;
	(void)which, (void)others;
	return read(fd, &count, sizeof count) == sizeof count ? (int)count : 0;
}

static int from_signal(int which, int *others)
{
	struct timespec at_once = { 0, 0 };
	siginfo_t info;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signals[which]);
	while (sigtimedwait(&set, &info, &at_once) > 0) {
		if (info.si_code == SI_TIMER)
			return info.si_overrun + 1;
		++*others;
	}
	return 0;
}

static void sleep_until(lt_ns ns)
{
	struct timespec t = lt_ts(ns);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

int main(void)
{
	lt_block(signals[0]);
	lt_block(signals[1]);
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	struct itimerspec periodic = { lt_ts(PERIOD), lt_ts(begun + PERIOD) };
	LT_CHECK(fd >= 0 && timerfd_settime(fd, TFD_TIMER_ABSTIME, &periodic, NULL) == 0);
	for (int i = 0; i < 2; i++) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signals[i] };
		LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0);
		LT_CHECK(timer_settime(timers[i], TIMER_ABSTIME, &periodic, NULL) == 0);
	}
	LT_CHECK(sigqueue(getpid(), signals[1], (union sigval){ .sival_int = 7 }) == 0);
	sleep_until(begun + PERIOD * 5 / 2);
	lt_emit("ready", NULL);
	sleep_until(begun + PERIOD * 17 / 2);
	done("descriptor", from_descriptor, 0, begun);
	done("signal", from_signal, 0, begun);
	done("queued", from_signal, 1, begun);
	return 0;
}
