/*
 * phase FILES: reads 300 expiries of a timer descriptor with a period of 10 ms, with so many other files open.
 *
 *     {"ev":"ready","pid":1}                 after the first 20
 *     {"ev":"done","late":60000,"period":10000000}
 *
 * "late": by how much a read came behind its expiry, ns, at the least among the last hundred.
 */
#include "../lt.h"
#include <sys/eventfd.h>
#include <sys/timerfd.h>

int main(int argc, char **argv)
{
	const lt_ns period = 10000000;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), ready = 0;
	uint64_t more;
	LT_CHECK(argc == 2 && fd >= 0);
	for (int left = atoi(argv[1]); left > 0; left--)
		LT_CHECK(eventfd(0, EFD_CLOEXEC) >= 0);
	lt_ns begun = lt_now(CLOCK_MONOTONIC), least = LT_SEC;
	struct itimerspec value = { lt_ts(period), lt_ts(begun + period) };
	LT_CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &value, NULL) == 0);
	for (lt_ns count = 0; count < 300;) {
		LT_CHECK(read(fd, &more, sizeof more) == sizeof more);
		count += (lt_ns)more;
		lt_ns late = lt_now(CLOCK_MONOTONIC) - begun - count * period;
		if (count > 200 && late < least)
			least = late;
		if (count > 20 && !ready++)
			lt_emit("ready", ",\"pid\":%d", (int)getpid());
	}
	lt_emit("done", ",\"late\":%lld,\"period\":%lld", least, period);
	return 0;
}
