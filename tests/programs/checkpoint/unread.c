/*
 * unread: expiries of a periodic timer descriptor that nobody reads for a while.
 *
 * prints {"ev":"ready"} when some have come, and reads them seconds later:
 *
 *     {"ev":"done","count":8,"least":8,"most":8,"again":0}
 *
 * count: the expiries read; least, most: those that have come by the clock before and after the read; again: whether there are more
 */
#include "../lt.h"
#include <sys/timerfd.h>

#define PERIOD (LT_SEC / 2)

int main(void)
{
	uint64_t count = 0, more = 0;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	struct itimerspec periodic = { lt_ts(PERIOD), lt_ts(begun + PERIOD) };
	LT_CHECK(fd >= 0 && timerfd_settime(fd, TFD_TIMER_ABSTIME, &periodic, NULL) == 0);
	struct timespec some = lt_ts(begun + PERIOD * 5 / 2), many = lt_ts(begun + PERIOD * 17 / 2);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &some, NULL))
		;
	lt_emit("ready", NULL);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &many, NULL))
		;
	lt_ns least = (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD;
	LT_CHECK(read(fd, &count, sizeof count) == sizeof count);
	lt_ns most = (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD;
	/* The next one may come between the two reads. */
	int again = most == least && read(fd, &more, sizeof more) > 0 &&
		    (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD == most;
	lt_emit("done", ",\"count\":%d,\"least\":%lld,\"most\":%lld,\"again\":%d", (int)count, least, most, again);
	return 0;
}
