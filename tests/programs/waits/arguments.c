/*
 * arguments FOLDER: every call that has to do with time, with every combination of lists of good and bad arguments.
 * One line each,
 *     {"ev":"error","case":"as-is: clock_settime(0,nsec-1)","ret":-1,"err":22}
 * The kernel is the oracle: natively and inside every line is the same. It is done three times: with the rights it has
 * ("as-is"), as nobody ("nobody"), and without CAP_SYS_TIME ("no-time"). Nothing here sets a clock of the machine: with
 * CAP_SYS_TIME it passes only values that the kernel refuses, or that change nothing.
 */
#include "../lt.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/timex.h>

/* An argument: its name in the output, and its value. */
struct arg { const char *name; long value; };
#define END { NULL, 0 }
#define MOST_SECONDS 8277292036LL /* KTIME_SEC_MAX - 30 years: the first that the kernel does not take */

static const char *rights;
static int early_alarm = -1; /* made before rights were given up */
static char *edge; /* the last 8 bytes before a page that cannot be read */
static char scratch[4096] __attribute__((aligned(64)));

/* ---------------------------------------------------------------------------------- values in memory */

/* Two words each: a timespec or timeval. An itimerspec takes two of them. */
struct words { const char *name; long w[4]; };
static const struct words times_in_memory[] = {
	{ "zero", { 0, 0, 0, 0 } },
	{ "nsec1", { 0, 1, 0, 1 } },
	{ "nsec-1", { 0, -1, 0, -1 } },
	{ "nsec1e6", { 0, 1000000, 0, 1000000 } },
	{ "nsec1e9", { 0, 1000000000, 0, 1000000000 } },
	{ "nsecmin", { 0, LONG_MIN, 0, LONG_MIN } },
	{ "sec-1", { -1, 0, -1, 0 } },
	{ "secmin", { LONG_MIN, 0, LONG_MIN, 0 } },
	{ "far", { MOST_SECONDS, 0, MOST_SECONDS, 0 } },
	{ "farther", { MOST_SECONDS, 999999999, MOST_SECONDS, 999999999 } },
	{ "secmax", { LONG_MAX, 0, LONG_MAX, 0 } },
	{ "day", { 86400, 0, 86400, 0 } },
	{ "value-bad", { 0, 0, 0, -1 } },
	{ "interval-bad", { -1, 0, 1, 0 } },
};
#define TIMES (sizeof times_in_memory / sizeof *times_in_memory)
/* The kernel writes into some of them: filled anew before each call. */
static struct { long w[4]; char pad[32]; } memory[TIMES] __attribute__((aligned(64)));
static struct { char pad[1]; long w[4]; } __attribute__((packed, aligned(64))) misaligned;

static void fresh(void)
{
	for (size_t i = 0; i < TIMES; i++)
		memcpy(memory[i].w, times_in_memory[i].w, sizeof memory[i].w);
	memset((void *)&misaligned, 0, sizeof misaligned);
}

/* The pointers to those called `names`, space-separated, then the bad ones. */
static struct arg *pointers(const char *names, int with_null)
{
	static struct arg lists[64][TIMES + 6];
	static int used;
	struct arg *list = lists[used++ % 64], *at = list;
	for (size_t i = 0; i < TIMES; i++) {
		char padded[64], all[512];
		snprintf(padded, sizeof padded, " %s ", times_in_memory[i].name);
		snprintf(all, sizeof all, " %s ", names);
		if (strstr(all, padded))
			*at++ = (struct arg){ times_in_memory[i].name, (long)memory[i].w };
	}
	*at++ = (struct arg){ "misaligned", (long)misaligned.w };
	if (with_null)
		*at++ = (struct arg){ "null", 0 };
	*at++ = (struct arg){ "bad", 8 };
	*at++ = (struct arg){ "edge", (long)edge };
	*at++ = (struct arg){ "kernel", -4096 };
	*at = (struct arg)END;
	return list;
}

static const struct arg outputs[] = {
	{ "out", (long)scratch }, { "out+1", (long)scratch + 1 }, { "null", 0 }, { "bad", 8 },
	{ "edge", -1 }, { "kernel", -4096 }, END
};
static const struct arg olds[] = { { "null", 0 }, { "out", (long)scratch }, { "bad", 8 }, END };

/* --------------------------------------------------------------------------------------- the grid */

static void tell(const char *call, const char *args, long ret, int err)
{
	lt_emit("error", ",\"case\":\"%s: %s(%s)\",\"ret\":%ld,\"err\":%d", rights, call, args, ret,
		ret == -1 ? err : 0);
}

/* Makes the call with each combination of the lists. A descriptor or number that it returns is told as 0. */
static void grid(const char *name, long number, int returns_id, const struct arg *const *lists)
{
	const struct arg *at[6] = { 0 };
	int count = 0;
	while (count < 6 && lists[count])
		at[count] = lists[count], count++;
	for (;;) {
		char text[256] = "";
		long v[6] = { 0 };
		for (int i = 0; i < count; i++) {
			v[i] = at[i]->value == -1 && !strcmp(at[i]->name, "edge") ? (long)edge : at[i]->value;
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "",
				 at[i]->name);
		}
		fresh();
		errno = 0;
		long ret = syscall(number, v[0], v[1], v[2], v[3], v[4], v[5]);
		int err = errno;
		if (ret >= 0 && returns_id) {
			close((int)ret);
			ret = 0;
		}
		tell(name, text, ret, err);
		int i = count - 1;
		while (i >= 0 && !(++at[i])->name)
			at[i] = lists[i], i--;
		if (i < 0)
			return;
	}
}
#define GRID(name, returns_id, ...) \
	grid(#name, SYS_##name, returns_id, (const struct arg *const[]){ __VA_ARGS__, NULL, NULL })
#define LIST(...) ((const struct arg[]){ __VA_ARGS__, END })
#define N(value) { #value, (long)(value) }
/* An int argument whose upper half, which the kernel does not look at, is not zero. */
#define UPPER(value) { #value "+2^32", (long)(value) + (1L << 32) }

static struct arg *clock_ids(int from, int to)
{
	static struct arg all[4][64];
	static char names[64][8];
	static int used;
	struct arg *list = all[used++ % 4];
	int n = 0;
	for (int id = from; id <= to; id++, n++) {
		snprintf(names[id + 20], sizeof *names, "%d", id);
		list[n] = (struct arg){ names[id + 20], id };
	}
	list[n++] = (struct arg)N(INT_MAX);
	list[n++] = (struct arg)N(INT_MIN);
	list[n++] = (struct arg)UPPER(1);
	list[n] = (struct arg)END;
	return list;
}

/* ---------------------------------------------------------------------------------------- families */

static int has_time_right(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2] = { 0 };
	LT_CHECK(syscall(SYS_capget, &head, caps) == 0);
	return caps[0].effective >> CAP_SYS_TIME & 1;
}

static void reading(void)
{
	GRID(clock_gettime, 0, clock_ids(-10, 20), outputs);
	GRID(clock_getres, 0, clock_ids(-10, 20), outputs);
	GRID(gettimeofday, 0, LIST(N(0), { "out", (long)scratch }, { "bad", 8 }, { "edge", -1 }),
	     LIST(N(0), { "out", (long)scratch + 64 }, { "bad", 8 }));
	GRID(getrusage, 0, LIST(N(-3), N(-2), N(-1), N(0), N(1), N(2), N(5), UPPER(0)), outputs);
	GRID(sysinfo, 0, outputs);
	GRID(getitimer, 0, LIST(N(-1), N(0), N(1), N(2), N(3), UPPER(0)), outputs);
	GRID(sched_rr_get_interval, 0, LIST(N(-1), N(0), N(0x3fffffff), UPPER(0)), outputs);
	/* Calls that return a time. */
	tell("time", "bad", syscall(SYS_time, 8L), errno);
	tell("time", "edge+4", syscall(SYS_time, edge + 4), errno);
	tell("times", "bad", syscall(SYS_times, 8L), errno);
	tell("times", "edge", syscall(SYS_times, edge), errno);
	tell("times", "null", syscall(SYS_times, NULL) == -1, 0);
}

/* Values that no kernel takes. CLOCK_REALTIME is never before CLOCK_MONOTONIC: "zero" and the like are refused. */
static void setting(void)
{
	const char *refused = "zero nsec1 nsec-1 nsec1e9 nsecmin sec-1 secmin far farther secmax";
	const char *settable = has_time_right() ? refused : "zero nsec-1 far day";
	const struct arg *zones = LIST(N(0), { "bad", 8 }, { "minutes", (long)scratch });
	GRID(clock_settime, 0, clock_ids(-10, 15), pointers(settable, 1));
	memset(scratch, 0, sizeof scratch);
	((int *)scratch)[0] = 901; /* minutes west of Greenwich: out of range */
	GRID(settimeofday, 0, pointers(settable, 0), zones);
	GRID(settimeofday, 0, LIST(N(0)), zones);
}

static void adjust(const char *what, struct timex tx)
{
	static const int clocks[] = { -1, 0, 1, 2, 4, 7, 8, 9, 11, 12, 99 };
	char text[96];
	struct timex copy = tx;
	snprintf(text, sizeof text, "%s", what);
	errno = 0;
	long ret = syscall(SYS_adjtimex, &copy);
	tell("adjtimex", text, ret, errno);
	for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		copy = tx;
		snprintf(text, sizeof text, "%d,%s", clocks[i], what);
		errno = 0;
		ret = syscall(SYS_clock_adjtime, clocks[i], &copy);
		tell("clock_adjtime", text, ret, errno);
	}
}

static void adjusting(void)
{
	static const struct { const char *name; unsigned modes; int harmless; } modes[] = {
		{ "read", 0, 1 }, { "offset", ADJ_OFFSET, 0 }, { "frequency", ADJ_FREQUENCY, 0 },
		{ "maxerror", ADJ_MAXERROR, 0 }, { "esterror", ADJ_ESTERROR, 0 },
		{ "status", ADJ_STATUS, 0 }, { "timeconst", ADJ_TIMECONST, 0 }, { "tai", ADJ_TAI, 0 },
		{ "nano", ADJ_NANO, 0 }, { "micro", ADJ_MICRO, 0 },
		{ "tick0", ADJ_TICK, 1 }, { "unknown40", 0x40, 1 }, { "unknown200", 0x200, 1 },
		{ "unknown10000", 0x10000, 1 }, { "unknown80000000", 0x80000000, 1 },
		{ "adjtime", 0x8000, 1 }, { "adjtime-read-alone", 0xa000, 1 },
		{ "ss_read", ADJ_OFFSET_SS_READ, 1 }, { "singleshot", ADJ_OFFSET_SINGLESHOT, 0 },
		{ "adjtime+tick0", 0x8000 | ADJ_TICK, 1 }, { "ss_read+tick0", 0xa001 | ADJ_TICK, 1 },
		{ "all", 0xffffffff & ~0xa001u, 0 }, { "tick0+offset", ADJ_TICK | ADJ_OFFSET, 1 },
	};
	static const struct { const char *name; long sec, usec; unsigned nano; } offsets[] = {
		{ "setoffset usec-1", 0, -1, 0 }, { "setoffset usec1e6", 0, 1000000, 0 },
		{ "setoffset nsec1e9", 0, 1000000000, ADJ_NANO }, { "setoffset back", -(1L << 40), 0, 0 },
		{ "setoffset far", MOST_SECONDS, 0, 0 }, { "setoffset farther", LONG_MAX, 0, 0 },
		{ "setoffset min", LONG_MIN, 0, ADJ_NANO },
	};
	struct timex tx;
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		if (has_time_right() && !modes[i].harmless)
			continue;
		memset(&tx, 0, sizeof tx);
		tx.modes = modes[i].modes;
		adjust(modes[i].name, tx);
	}
	for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
		memset(&tx, 0, sizeof tx);
		tx.modes = ADJ_SETOFFSET | offsets[i].nano;
		tx.time = (struct timeval){ offsets[i].sec, offsets[i].usec };
		adjust(offsets[i].name, tx);
	}
	memset(&tx, 0, sizeof tx);
	tx.modes = ADJ_FREQUENCY;
	tx.freq = LONG_MAX;
	adjust("frequency max", tx);
	tx.freq = LONG_MIN;
	adjust("frequency min", tx);
	GRID(adjtimex, 0, LIST(N(0), { "bad", 8 }, { "edge", -1 }));
	GRID(clock_adjtime, 0, LIST(N(0), N(1), N(99)), LIST(N(0), { "bad", 8 }, { "edge", -1 }));
}

static void sleeping(void)
{
	const char *refused = "zero nsec-1 nsec1e9 nsecmin sec-1 secmin";
	GRID(nanosleep, 0, pointers("zero nsec1 nsec-1 nsec1e9 nsecmin sec-1 secmin", 1), olds);
	/* A process that sleeps uses no CPU time: there only zero is past. */
	GRID(clock_nanosleep, 0, clock_ids(-10, 20), LIST(N(1), N(3), N(-1), UPPER(1), N(0), N(2), N(64)),
	     pointers(refused, 1), olds);
}

/*
 * alarm returns what is left of the alarm before, rounded to whole seconds. Where that is what the clock lets be left,
 * the seconds are told for which the alarm was set.
 */
static void alarms(void)
{
	const struct arg *at = LIST(N(0), N(86400), N(0), N(0xffffffff), UPPER(86400), N(0));
	lt_ns set = 0, since = 0, by = 0;
	for (; at->name; at++) {
		errno = 0;
		lt_ns before = lt_now(CLOCK_MONOTONIC);
		long ret = syscall(SYS_alarm, at->value);
		int err = errno;
		lt_ns after = lt_now(CLOCK_MONOTONIC), left = ret * LT_SEC;
		if (set && left >= set - (after - since) - LT_SEC / 2 && left <= set - (before - by) + LT_SEC / 2)
			ret = set / LT_SEC;
		tell("alarm", at->name, ret, err);
		set = (lt_ns)(unsigned)at->value * LT_SEC, since = before, by = after;
	}
}

static void interval_timers(void)
{
	const struct arg *which = LIST(N(-1), N(0), N(1), N(2), N(3), UPPER(0));
	const struct arg *values = pointers("zero day nsec-1 nsec1e6 nsec1e9 sec-1 value-bad interval-bad", 1);
	/* SIGALRM never comes: a day, and at once back to none. */
	GRID(setitimer, 0, which, values, LIST({ "null", 0 }, { "bad", 8 }, { "edge", -1 }));
	GRID(setitimer, 0, LIST(N(0), N(1), N(2)), LIST({ "null", 0 }), LIST({ "null", 0 }));
	alarms();
}

static void timer_descriptors(void)
{
	static struct arg fds[40];
	static char names[40][24];
	int n = 0;
	const struct arg *flags =
		LIST(N(0), N(TFD_NONBLOCK), N(TFD_CLOEXEC), N(1), N(-1), N(0x80808), UPPER(0));
	GRID(timerfd_create, 1, clock_ids(-10, 20), flags);
	for (int id = 0; id < 12; id++) {
		int fd = timerfd_create(id, TFD_NONBLOCK);
		if (fd < 0)
			continue;
		snprintf(names[n], sizeof names[n], "fd of %d", id);
		fds[n] = (struct arg){ names[n], fd };
		n++;
	}
	fds[n++] = (struct arg)N(-1);
	fds[n++] = (struct arg){ "early alarm", early_alarm };
	fds[n++] = (struct arg){ "closed", 1000 };
	fds[n++] = (struct arg){ "not one", 0 };
	fds[n++] = (struct arg){ "upper", fds[0].value + (1L << 32) };
	fds[n] = (struct arg)END;
	GRID(timerfd_settime, 0, fds, LIST(N(0), N(1), N(2), N(3), N(4), N(-1), UPPER(1)),
	     pointers("zero day nsec-1 nsec1e9 sec-1 value-bad interval-bad secmax", 1), olds);
	GRID(timerfd_gettime, 0, fds, outputs);
	for (int i = 0; strcmp(fds[i].name, "-1"); i++)
		close((int)fds[i].value);
}

static void posix_timers(void)
{
	static struct { struct sigevent e; } events[16];
	static struct arg event_args[24], ids[64];
	static char names[64][24];
	static const struct { const char *name; int notify, signo; long tid; } all[] = {
		{ "none", SIGEV_NONE, 0, 0 }, { "none signo99", SIGEV_NONE, 99, 0 },
		{ "signal", SIGEV_SIGNAL, SIGUSR1, 0 }, { "signal 0", SIGEV_SIGNAL, 0, 0 },
		{ "signal 64", SIGEV_SIGNAL, 64, 0 }, { "signal 65", SIGEV_SIGNAL, 65, 0 },
		{ "signal -1", SIGEV_SIGNAL, -1, 0 }, { "thread", SIGEV_THREAD, SIGUSR1, 0 },
		{ "notify 3", 3, SIGUSR1, 0 }, { "notify -1", -1, SIGUSR1, 0 },
		{ "tid 0", 4, SIGUSR1, 0 }, { "tid 1", 4, SIGUSR1, 1 }, { "tid -1", 4, SIGUSR1, -1 },
		{ "tid own", 4, SIGUSR1, -2 }, { "tid none", 5, SIGUSR1, -2 },
	};
	static int out[4];
	int n = 0, made = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++, n++) {
		events[i].e = (struct sigevent){ .sigev_notify = all[i].notify, .sigev_signo = all[i].signo };
		long tid = all[i].tid == -2 ? syscall(SYS_gettid) : all[i].tid;
		((int *)&events[i].e)[4] = (int)tid;
		event_args[n] = (struct arg){ all[i].name, (long)&events[i].e };
	}
	event_args[n++] = (struct arg){ "null", 0 };
	event_args[n++] = (struct arg){ "bad", 8 };
	event_args[n++] = (struct arg){ "edge", -1 };
	event_args[n] = (struct arg)END;
	GRID(timer_create, 0, clock_ids(-10, 20), event_args,
	     LIST({ "id", (long)out }, { "id+1", (long)out + 1 }, { "null", 0 }, { "bad", 8 }));
	for (int id = 0; id < 100000; id++) /* all that were made: the kernel counts on */
		syscall(SYS_timer_delete, id);
	for (int clock = -10; clock < 20; clock++) {
		if (syscall(SYS_timer_create, clock, &events[0].e, out))
			continue;
		snprintf(names[made], sizeof names[made], "timer of %d", clock);
		ids[made] = (struct arg){ names[made], out[0] };
		made++;
	}
	ids[made++] = (struct arg)N(-1);
	ids[made++] = (struct arg){ "none", 1 << 30 };
	ids[made++] = (struct arg){ "upper", ids[0].value + (1L << 32) };
	ids[made] = (struct arg)END;
	GRID(timer_settime, 0, ids, LIST(N(0), N(1), N(2), N(-1), UPPER(1)),
	     pointers("zero day nsec-1 nsec1e9 sec-1 value-bad interval-bad secmax", 1), olds);
	GRID(timer_gettime, 0, ids, outputs);
	GRID(timer_getoverrun, 0, ids);
	GRID(timer_delete, 0, ids);
	GRID(timer_delete, 0, ids);
}

static void polling(void)
{
	const char *some = "zero nsec1 nsec-1 nsec1e9 nsecmin sec-1 secmin";
	struct arg *times = pointers(some, 0);
	const struct arg *mask = LIST({ "null", 0 }, { "mask", (long)scratch + 512 }, { "bad", 8 });
	const struct arg *size = LIST(N(8), N(0), N(7), N(16));
	int ep = epoll_create1(0);
	memset(scratch, 0, sizeof scratch);
	GRID(ppoll, 0, LIST({ "null", 0 }, { "bad", 8 }), LIST(N(0), N(1), N(-1)), times, mask, size);
	static unsigned long bad_mask[2] = { 8, 8 }, bad_size[2] = { 8, 7 };
	GRID(pselect6, 0, LIST(N(0), N(1), N(-1), UPPER(0)), LIST({ "null", 0 }, { "bad", 8 }),
	     LIST({ "null", 0 }), LIST({ "null", 0 }), times,
	     LIST({ "null", 0 }, { "bad", 8 }, { "zeroes", (long)scratch + 512 },
		  { "bad mask", (long)bad_mask }, { "bad size", (long)bad_size }));
	GRID(select, 0, LIST(N(0), N(1), N(-1)), LIST({ "null", 0 }, { "bad", 8 }), LIST({ "null", 0 }),
	     LIST({ "null", 0 }), pointers("zero nsec1 nsec-1 nsecmin sec-1 secmin", 0));
	GRID(poll, 0, LIST({ "null", 0 }, { "bad", 8 }), LIST(N(0), N(1)), LIST(N(0), N(1), UPPER(0)));
	const struct arg *sets = LIST({ "ep", ep }, N(-1), { "not one", 0 }, N(1000));
	const struct arg *events = LIST({ "out", (long)scratch }, { "null", 0 }, { "bad", 8 });
	const struct arg *most = LIST(N(1), N(0), N(-1), N(INT_MAX), UPPER(1));
	GRID(epoll_wait, 0, sets, events, most, LIST(N(0), N(1), UPPER(0)));
	GRID(epoll_pwait, 0, sets, events, LIST(N(1), N(0)), LIST(N(1)), mask, size);
	GRID(epoll_pwait2, 0, sets, LIST({ "out", (long)scratch }), LIST(N(1), N(0)), times, mask, size);
	close(ep);
}

static void futexes(void)
{
	static unsigned word[4] = { 1, 1, 1, 1 };
	static unsigned long waiter[3];
	const char *some = "zero nsec1 nsec-1 nsec1e9 sec-1";
	const struct arg *at = LIST({ "word", (long)word }, { "word+1", (long)word + 1 }, { "bad", 8 });
	static const long operations[] = { 0, 9, 11, 6, 13, 128, 137, 256, 262, 265, 7, 8, 512, 77 };
	static struct arg ops[16];
	static char names[16][16];
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		snprintf(names[i], sizeof *names, "op %ld", operations[i]);
		ops[i] = (struct arg){ names[i], operations[i] };
	}
	GRID(futex, 0, at, ops, LIST(N(1), N(2)), pointers(some, 0), LIST({ "second", (long)(word + 2) }),
	     LIST(N(-1), N(0)));
	GRID(futex_wait, 0, at, LIST(N(1), N(2)), LIST(N(-1), N(0), N(1)), LIST(N(2), N(0), N(3), N(64)),
	     pointers(some, 0), LIST(N(1), N(0), N(2), N(-1), UPPER(1)));
	waiter[0] = 1, waiter[1] = (unsigned long)word, waiter[2] = 2;
	GRID(futex_waitv, 0, LIST({ "waiter", (long)waiter }, { "null", 0 }, { "bad", 8 }),
	     LIST(N(1), N(0), N(129), UPPER(1)), LIST(N(0), N(1)), pointers(some, 0),
	     LIST(N(1), N(0), N(2), N(-1), UPPER(1)));
}

static void ipc(void)
{
	static struct sembuf op = { 0, -1, 0 };
	const char *some = "zero nsec1 nsec-1 nsec1e9 sec-1 secmin";
	int id = semget(IPC_PRIVATE, 1, 0600), sv[2];
	unsigned long context = 0;
	char queue[64];
	sigset_t *signals = (sigset_t *)(scratch + 1024);
	LT_CHECK(id >= 0);
	GRID(semtimedop, 0, LIST({ "set", id }, N(-1), { "none", 0x7ffffff0 }),
	     LIST({ "op", (long)&op }, { "null", 0 }, { "bad", 8 }), LIST(N(1), N(0), N(501)),
	     pointers(some, 0));
	semctl(id, 0, IPC_RMID);
	memset(scratch, 0, sizeof scratch);
	sigaddset(signals, SIGUSR1);
	GRID(rt_sigtimedwait, 0, LIST({ "set", (long)signals }, { "null", 0 }, { "bad", 8 }),
	     LIST({ "null", 0 }, { "bad", 8 }), pointers(some, 0), LIST(N(8), N(0), N(4), N(16)));
	snprintf(queue, sizeof queue, "/lt-arguments-%d", getpid());
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	mqd_t q = mq_open(queue, O_RDWR | O_CREAT, 0600, &attr);
	if (q >= 0) {
		mq_unlink(queue);
		const struct arg *queues = LIST({ "q", q }, N(-1), { "not one", 0 });
		GRID(mq_timedreceive, 0, queues, LIST({ "out", (long)scratch }), LIST(N(8), N(7)), olds,
		     pointers(some, 0));
		LT_CHECK(mq_send(q, "x", 1, 0) == 0);
		GRID(mq_timedsend, 0, queues, LIST({ "out", (long)scratch }, { "bad", 8 }),
		     LIST(N(8), N(9)), LIST(N(0), N(-1)), pointers(some, 0));
		close(q);
	}
	LT_CHECK(syscall(SYS_io_setup, 2, &context) == 0);
	GRID(io_getevents, 0, LIST({ "context", (long)context }, N(1)), LIST(N(1), N(0), N(-1), N(9)),
	     LIST(N(1), N(0)), LIST({ "out", (long)scratch }, { "bad", 8 }), pointers("zero nsec1", 0));
	syscall(SYS_io_destroy, context);
	LT_CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) == 0);
	/* With MSG_DONTWAIT: a timeout of recvmmsg is only looked at between messages. */
	GRID(recvmmsg, 0, LIST({ "socket", sv[0] }, N(-1), { "not one", 0 }),
	     LIST({ "null", 0 }, { "zeroes", (long)scratch + 2048 }), LIST(N(0), N(1)), LIST(N(0x40)),
	     pointers(some, 0));
	static const int names[] = { SO_RCVTIMEO, SO_SNDTIMEO };
	for (int i = 0; i < 2; i++)
		GRID(setsockopt, 0, LIST({ "socket", sv[0] }, N(-1), { "not one", 0 }),
		     LIST(N(SOL_SOCKET)),
		     LIST({ "timeout", names[i] }, { "timeout+2^32", names[i] + (1L << 32) }),
		     pointers("zero day nsec-1 nsec1e6 nsec1e9 sec-1 secmin secmax", 1),
		     LIST(N(16), N(0), N(8), N(15), N(17), N(-1)));
	close(sv[0]), close(sv[1]);
}

static void file_times(const char *folder)
{
	char path[512];
	snprintf(path, sizeof path, "%s/file-%s", folder, rights);
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	const char *some = "zero day nsec-1 nsec1e6 nsec1e9 value-bad sec-1";
	static struct { long w[4]; } special[4] = {
		{ { 0, UTIME_NOW, 0, UTIME_NOW } }, { { 0, UTIME_OMIT, 0, UTIME_OMIT } },
		{ { 0, UTIME_OMIT, 5, 1000000000 } }, { { -1, UTIME_NOW, -1, UTIME_OMIT } },
	};
	const struct arg *paths = LIST({ "path", (long)path }, { "none", (long)"/nowhere/at/all" },
				       { "null", 0 }, { "bad", 8 }, { "empty", (long)"" });
	const struct arg *flags = LIST(N(0), N(AT_SYMLINK_NOFOLLOW), N(AT_EMPTY_PATH), N(1), N(-1), UPPER(0));
	LT_CHECK(fd >= 0);
	GRID(utimensat, 0, LIST(N(AT_FDCWD), { "fd", fd }, N(-1)), paths, pointers(some, 1), flags);
	GRID(utimensat, 0, LIST(N(AT_FDCWD), { "fd", fd }), paths,
	     LIST({ "now", (long)&special[0] }, { "omit", (long)&special[1] },
		  { "omit and bad", (long)&special[2] }, { "now and omit", (long)&special[3] }), flags);
	GRID(utimes, 0, paths, pointers(some, 1));
	GRID(utime, 0, paths, pointers(some, 1));
	GRID(futimesat, 0, LIST(N(AT_FDCWD), { "fd", fd }, N(-1)), paths, pointers(some, 1));
	close(fd);
	unlink(path);
}

static void children(void)
{
	GRID(wait4, 0, LIST(N(-1), N(0), N(1), N(INT_MIN)), LIST({ "null", 0 }, { "bad", 8 }),
	     LIST(N(WNOHANG), N(-1), UPPER(1)), outputs);
	GRID(waitid, 0, LIST(N(0), N(1), N(3), N(9)), LIST(N(0), N(1), N(-1)), LIST({ "null", 0 }, { "bad", 8 }),
	     LIST(N(WNOHANG), N(WNOHANG | WEXITED)), outputs);
}

/* Signal masks and namespaces: trapped as well, and the kernel's in the end. */
static void neighbours(void)
{
	const struct arg *set = LIST({ "null", 0 }, { "zeroes", (long)scratch + 512 }, { "bad", 8 });
	const struct arg *size = LIST(N(8), N(0), N(7), N(16));
	static int lengths[3] = { 16, 0, -1 };
	int sv[2], own = open("/proc/self/ns/time", O_RDONLY), pid = open("/proc/self/ns/pid", O_RDONLY);
	memset(scratch, 0, sizeof scratch);
	GRID(rt_sigprocmask, 0, LIST(N(0), N(1), N(2), N(3), N(-1), UPPER(0)), set, olds, size);
	GRID(rt_sigaction, 0, LIST(N(0), N(1), N(9), N(31), N(64), N(65), N(-1), UPPER(64)),
	     LIST({ "null", 0 }, { "bad", 8 }), olds, size);
	GRID(rt_sigpending, 0, outputs, size);
	GRID(rt_sigsuspend, 0, LIST({ "null", 0 }, { "bad", 8 }), size);
	GRID(sigaltstack, 0, LIST({ "null", 0 }, { "bad", 8 }, { "edge", -1 }), olds);
	GRID(signalfd4, 1, LIST(N(-1), { "not one", 0 }, N(1000)), set, size, LIST(N(0), N(1), N(-1)));
	GRID(unshare, 0, LIST(N(0), N(0x80 | 0x1), N(0x80 | 0x8), UPPER(0)));
	GRID(setns, 0, LIST(N(-1), { "not one", 0 }, { "time", own }, { "pid", pid }),
	     LIST(N(0x80), N(0x20), N(1), N(-1)));
	LT_CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) == 0);
	GRID(getsockopt, 0, LIST({ "socket", sv[0] }, N(-1), { "not one", 0 }), LIST(N(SOL_SOCKET), UPPER(1)),
	     LIST(N(SO_RCVTIMEO), N(SO_SNDTIMEO), UPPER(SO_RCVTIMEO)), olds,
	     LIST({ "16", (long)&lengths[0] }, { "0", (long)&lengths[1] }, { "-1", (long)&lengths[2] },
		  { "null", 0 }, { "bad", 8 }));
	close(sv[0]), close(sv[1]), close(own), close(pid);
}

static void drop_time_right(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2] = { 0 };
	LT_CHECK(syscall(SYS_capget, &head, caps) == 0);
	caps[0].effective &= ~(1u << CAP_SYS_TIME);
	caps[0].permitted &= ~(1u << CAP_SYS_TIME);
	LT_CHECK(syscall(SYS_capset, &head, caps) == 0);
	LT_CHECK(!has_time_right());
}

static int under(const char *how, const char *folder)
{
	rights = how;
	signal(SIGALRM, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	early_alarm = timerfd_create(CLOCK_REALTIME_ALARM, TFD_NONBLOCK);
	if (!strcmp(how, "nobody")) {
		if (geteuid() == 0)
			LT_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		LT_CHECK(!has_time_right());
	} else if (!strcmp(how, "no-time")) {
		drop_time_right();
	}
	LT_CHECK(chdir(folder) == 0);
	char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	LT_CHECK(two != MAP_FAILED && mprotect(two + 4096, 4096, PROT_NONE) == 0);
	edge = two + 4096 - 8;
	reading();
	setting();
	adjusting();
	sleeping();
	interval_timers();
	timer_descriptors();
	posix_timers();
	polling();
	futexes();
	ipc();
	file_times(folder);
	children();
	neighbours();
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const all[] = { "as-is", "nobody", "no-time" };
	int status, bad = 0;
	LT_CHECK(argc == 2);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		LT_CHECK(child >= 0);
		if (child == 0)
			_exit(under(all[i], argv[1]));
		LT_CHECK(waitpid(child, &status, 0) == child);
		bad |= status;
	}
	lt_emit("end", ",\"bad\":%d", bad);
	return bad != 0;
}
