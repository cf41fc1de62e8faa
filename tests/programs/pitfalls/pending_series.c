/*
 * pending_series TAKEN LEFT: a POSIX timer of 0.1 s whose signal is blocked. The program takes signals until they stand for TAKEN
 * expiries, leaves LEFT more and half of a period pending, and waits for a line of input. Then it takes signals until 3 more have come,
 * and up to 50 more where some are missing.
 *
 *     {"ev":"ready","count":5}
 *     {"ev":"taken","count":11,"passed":11}
 *
 * "count" is the number of expiries that the signals stand for, "passed" that of the periods that have passed.
 */
#include "../lt.h"

#define PERIOD (LT_SEC / 10)
#define MORE 50

static timer_t timer;
static sigset_t set;

static int take(void)
{
	siginfo_t info;
	while (sigwaitinfo(&set, &info) < 0)
		LT_CHECK(errno == EINTR);
	return 1 + timer_getoverrun(timer);
}

int main(int argc, char **argv)
{
	int taken = argc > 1 ? atoi(argv[1]) : 1, left = argc > 2 ? atoi(argv[2]) : 0, count = 0;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 };
	char line[8];
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	LT_CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	struct itimerspec t = { .it_value = lt_ts(begun + PERIOD), .it_interval = lt_ts(PERIOD) };
	LT_CHECK(timer_settime(timer, TIMER_ABSTIME, &t, NULL) == 0);
	while (count < taken)
		count += take();
	while (lt_now(CLOCK_MONOTONIC) < begun + (count + left) * PERIOD + PERIOD / 2)
		;
	lt_emit("ready", ",\"count\":%d", count);
	LT_CHECK(read(0, line, sizeof line) >= 0);
	int end = count + left + 3;
	lt_ns passed;
	do { /* a period may end between the two looks */
		count += take();
		passed = (lt_now(CLOCK_MONOTONIC) - begun) / PERIOD;
	} while (count < end || (count < passed && count < end + MORE));
	lt_emit("taken", ",\"count\":%d,\"passed\":%lld", count, passed);
	return 0;
}
