/*
 * oracle SEED SEQUENCES: random calls of adjtimex and clock_settime, and what the kernel answers. It sets the machine's clock: for
 * a virtual machine alone, whose first program it is. A line for each call:
 *
 *   adjtimex MONOTONIC WALL REQUEST... : RESULT ANSWER...   the request's and the answer's fields in the order of struct timex
 *   set MONOTONIC WALL SECONDS : RESULT
 *
 * MONOTONIC and WALL are the clocks just before, in ns. No call is made within 50 ms of a second's end, where the kernel's tick is
 * still to come.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define MARGIN 50000000LL
#define DAY 86400LL

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % below;
}

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void pause_for(long long ns)
{
	struct timespec t = { ns / SECOND, ns % SECOND };

	nanosleep(&t, NULL);
}

static void leave_the_edge(void)
{
	long long fraction;

	while (fraction = now(CLOCK_REALTIME) % SECOND, fraction < MARGIN || fraction > SECOND - MARGIN)
		pause_for(MARGIN / 2);
}

/* Mostly within LIMIT, sometimes far beyond. */
static long value(long limit)
{
	static const long far[] = { INT64_MAX, INT64_MIN, INT64_MAX / 2, 1L << 40, -(1L << 40), 0 };

	if (draw(20) == 0)
		return far[draw(6)];
	return (long)draw(2 * limit + 1) - limit;
}

static void adjust(void)
{
	static const unsigned bits[] = { ADJ_OFFSET, ADJ_FREQUENCY, ADJ_MAXERROR, ADJ_ESTERROR,
		ADJ_STATUS, ADJ_TIMECONST, ADJ_TAI, ADJ_SETOFFSET, ADJ_MICRO, ADJ_NANO, ADJ_TICK };
	static const int useful[] = { STA_PLL, STA_PLL | STA_NANO, STA_PLL | STA_FLL, STA_INS, STA_DEL,
		STA_PLL | STA_INS, STA_UNSYNC, 0, STA_PLL | STA_FREQHOLD, STA_PPSFREQ, STA_PPSTIME };
	struct timex t = { 0 };
	long long mono, wall;
	int result, i;

	switch (draw(8)) {
	case 0:
		break;
	case 1:
		t.modes = draw(2) ? ADJ_OFFSET_SINGLESHOT : ADJ_OFFSET_SS_READ;
		break;
	case 2:
		t.modes = draw(0x10000);
		break;
	case 3:
		t.modes = ADJ_STATUS;
		break;
	case 4:
		t.modes = ADJ_OFFSET | (draw(2) ? ADJ_TIMECONST : 0);
		break;
	default:
		for (i = draw(4); i >= 0; i--)
			t.modes |= bits[draw(11)];
	}
	t.offset = value(draw(2) ? 1000000 : 600000000);
	t.freq = value(draw(4) ? 40000000 : 1000);
	t.maxerror = value(20000000);
	t.esterror = value(20000000);
	t.status = draw(3) ? useful[draw(11)] : (int)draw(0x10000);
	t.constant = value(12);
	t.time.tv_sec = (long)draw(7) - 3;
	t.time.tv_usec = draw(10) ? (long)draw(SECOND) : value(SECOND);
	if (draw(2))
		t.time.tv_usec %= 1000000;
	t.tick = draw(8) ? 10000 + value(900) : 10000 + value(2000);
	leave_the_edge();
	mono = now(CLOCK_MONOTONIC);
	wall = now(CLOCK_REALTIME);
	printf("adjtimex %lld %lld %u %ld %ld %ld %ld %d %ld %ld %ld %ld", mono, wall, t.modes, t.offset,
	       t.freq, t.maxerror, t.esterror, t.status, t.constant, (long)t.time.tv_sec,
	       (long)t.time.tv_usec, t.tick);
	/* Past glibc, whose adjtimex checks singleshot offsets itself. */
	result = syscall(SYS_adjtimex, &t);
	if (result < 0)
		printf(" : %d\n", -errno);
	else
		printf(" : %d %ld %ld %ld %ld %d %ld %ld %ld %ld %ld %ld %d\n", result, t.offset, t.freq,
		       t.maxerror, t.esterror, t.status, t.constant, t.precision, t.tolerance,
		       (long)t.time.tv_sec, (long)t.time.tv_usec, t.tick, t.tai);
}

static void set(void)
{
	/* Often just before the end of a day, where leap seconds come. */
	struct timespec t = { 1900000000 + draw(1000000), 200000000 };
	long long mono, wall;
	int result;

	if (draw(4))
		t.tv_sec += DAY - t.tv_sec % DAY - 3;
	leave_the_edge();
	mono = now(CLOCK_MONOTONIC);
	wall = now(CLOCK_REALTIME);
	printf("set %lld %lld %ld", mono, wall, (long)t.tv_sec);
	result = clock_settime(CLOCK_REALTIME, &t);
	printf(" : %d\n", result);
}

int main(int argc, char **argv)
{
	int sequence, call;

	state = argc > 1 ? atoll(argv[1]) : 1;
	for (sequence = 0; sequence < (argc > 2 ? atoi(argv[2]) : 10); sequence++) {
		if (draw(2))
			set();
		for (call = 0; call < 10; call++) {
			adjust();
			switch (draw(10)) {
			case 0:
			case 1:
				pause_for(draw(3 * SECOND));
				break;
			case 2:
				pause_for((300 + draw(2000)) * SECOND / (draw(4) ? 100 : 1));
				break;
			}
		}
	}
	printf("end\n");
	fflush(stdout);
	if (getpid() == 1)
		reboot(RB_POWER_OFF);
	return 0;
}
