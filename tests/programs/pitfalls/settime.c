/*
 * settime SECONDS: moves the wall clock that far by clock_settime, settimeofday and adjtimex; says
 * what each returned and what the clocks show.
 */
#include "../lt.h"
#include <sys/timex.h>

int main(int argc, char **argv)
{
	lt_ns by = argc > 1 ? atoll(argv[1]) * LT_SEC : 0;
	struct timex tx;
	int r, e;
	for (int how = 0; how < 3; how++) {
		lt_ns real = lt_now(CLOCK_REALTIME), mono = lt_now(CLOCK_MONOTONIC);
		struct timespec ts = lt_ts(real + by);
		struct timeval tv = lt_tv(real + by);
		memset(&tx, 0, sizeof tx);
		tx.modes = ADJ_SETOFFSET | ADJ_NANO;
		tx.time.tv_sec = by / LT_SEC;
		errno = 0;
		if (how == 0)
			r = (int)syscall(SYS_clock_settime, CLOCK_REALTIME, &ts);
		else if (how == 1)
			r = (int)syscall(SYS_settimeofday, &tv, NULL);
		else
			r = (int)syscall(SYS_adjtimex, &tx);
		e = errno;
		lt_emit("settime", ",\"how\":%d,\"ret\":%d,\"err\":%d,\"real_moved\":%.6f,"
			"\"mono_moved\":%.6f", how, r < 0 ? -1 : 0, r < 0 ? e : 0,
			lt_sec(lt_now(CLOCK_REALTIME) - real), lt_sec(lt_now(CLOCK_MONOTONIC) - mono));
	}
	return 0;
}
