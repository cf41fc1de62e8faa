/*
 * settime SECONDS: moves the wall clock that far by clock_settime, settimeofday and adjtimex; says
 * what each returned and what the clocks show.
 * settime limits: sets it to times about the kernel's limits. Only inside, where no host's clock is set.
 */
#include "../lt.h"
#include <sys/timex.h>

static void set_to(const char *name, lt_ns secs, long nsec)
{
	struct timespec ts = { secs, nsec }, now;
	errno = 0;
	int r = (int)syscall(SYS_clock_settime, CLOCK_REALTIME, &ts), e = errno;
	LT_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
	lt_emit("limit", ",\"case\":\"%s\",\"ret\":%d,\"err\":%d,\"ahead\":%lld", name, r,
		r < 0 ? e : 0, (long long)(now.tv_sec - secs));
}

static void step_by(const char *name, long secs, long nsec)
{
	struct timex tx;
	lt_ns before = lt_now(CLOCK_REALTIME) / LT_SEC;
	memset(&tx, 0, sizeof tx);
	tx.modes = ADJ_SETOFFSET | ADJ_NANO;
	tx.time = (struct timeval){ secs, nsec };
	errno = 0;
	int r = (int)syscall(SYS_clock_adjtime, CLOCK_REALTIME, &tx), e = errno;
	lt_emit("limit", ",\"case\":\"%s\",\"ret\":%d,\"err\":%d,\"ahead\":%lld", name, r < 0 ? -1 : 0,
		r < 0 ? e : 0, (long long)(lt_now(CLOCK_REALTIME) / LT_SEC - before - secs));
}

static int limits(void)
{
	const lt_ns most = 8277292036; /* KTIME_SEC_MAX - 30 years */
	lt_ns up = lt_now(CLOCK_MONOTONIC) / LT_SEC;
	set_to("earlier than monotonic", up - 10, 0);
	set_to("later than monotonic", up + 100, 0);
	step_by("back before monotonic", -1000, 0);
	set_to("last", most - 1, 0);
	set_to("first that is refused", most, 0);
	step_by("beyond", 1000, 0);
	step_by("back", -10, 500000000);
	set_to("now", 2000000000, 999999999);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "limits"))
		return limits();
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
