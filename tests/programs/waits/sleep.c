/* Plain sleeping: nanosleep, clock_nanosleep on each clock, relative and absolute, and libc's own. */
#include "../lt.h"

static void do_nanosleep(struct lt *lt)
{
	struct timespec rem = { 7, 7 }, t = lt_ts(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_nanosleep, &t, &rem));
	lt_done(lt, ",\"same_rem\":%ld", (long)rem.tv_sec); /* untouched when not interrupted */
}

static void do_usleep(struct lt *lt)
{
	LT_READY(lt);
	LT_CALL(lt, usleep((useconds_t)(lt->nominal / 1000)));
	lt_done(lt, NULL);
}

static void rel(struct lt *lt, clockid_t id)
{
	struct timespec t = lt_ts(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_clock_nanosleep, id, 0, &t, NULL));
	lt_done(lt, NULL);
}

static void abs_(struct lt *lt, clockid_t id)
{
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL_E(lt, clock_nanosleep(id, TIMER_ABSTIME, &t, NULL));
	lt_done(lt, NULL);
}

/* A deadline that has passed returns at once. */
static void do_past(struct lt *lt)
{
	struct timespec t = lt_ts(lt_now(CLOCK_MONOTONIC) - LT_SEC);
	lt->expect = 0;
	LT_READY(lt);
	LT_CALL_E(lt, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
	lt_done(lt, NULL);
}

/* One hundred short sleeps: rounding up must not add up, rounding down must not spin. */
static void do_many(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal / 20);
	int i;
	LT_READY(lt);
	for (i = 0; i < 20; i++)
		nanosleep(&t, NULL);
	LT_CALL(lt, 0);
	lt_done(lt, NULL);
}

static void rt_rel(struct lt *lt) { rel(lt, CLOCK_REALTIME); }
static void mono_rel(struct lt *lt) { rel(lt, CLOCK_MONOTONIC); }
static void boot_rel(struct lt *lt) { rel(lt, CLOCK_BOOTTIME); }
static void tai_rel(struct lt *lt) { rel(lt, CLOCK_TAI); }
static void rt_abs(struct lt *lt) { abs_(lt, CLOCK_REALTIME); }
static void mono_abs(struct lt *lt) { abs_(lt, CLOCK_MONOTONIC); }
static void boot_abs(struct lt *lt) { abs_(lt, CLOCK_BOOTTIME); }
static void tai_abs(struct lt *lt) { abs_(lt, CLOCK_TAI); }

int main(int argc, char **argv)
{
	static const struct lt_case cases[] = {
		{ "nanosleep", do_nanosleep, 1 },
		{ "usleep", do_usleep, 1 },
		{ "clock_nanosleep-realtime-rel", rt_rel, 1 },
		{ "clock_nanosleep-monotonic-rel", mono_rel, 1 },
		{ "clock_nanosleep-boottime-rel", boot_rel, 1 },
		{ "clock_nanosleep-tai-rel", tai_rel, 1 },
		{ "clock_nanosleep-realtime-abs", rt_abs, 1 },
		{ "clock_nanosleep-monotonic-abs", mono_abs, 1 },
		{ "clock_nanosleep-boottime-abs", boot_abs, 1 },
		{ "clock_nanosleep-tai-abs", tai_abs, 1 },
		{ "clock_nanosleep-past", do_past, 1 },
		{ "nanosleep-many", do_many, 1 },
		{ NULL, NULL, 0 },
	};
	return lt_main(argc, argv, cases);
}
