/* A timer descriptor every hour, a hundred times, and a POSIX timer every two hours, with its signals counted. */
#include "../lt.h"
#include <sys/timerfd.h>

static volatile sig_atomic_t signals;

static void count(int number)
{
	(void)number;
	signals++;
}

int main(void)
{
	struct itimerspec hour = { { 3600, 0 }, { 3600, 0 } }, two = { { 7200, 0 }, { 7200, 0 } };
	struct sigaction action = { .sa_handler = count };
	struct timespec start, end;
	uint64_t total = 0, expired;
	timer_t timer;
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	sigaction(SIGALRM, &action, NULL);
	clock_gettime(CLOCK_MONOTONIC, &start);
	timer_create(CLOCK_MONOTONIC, NULL, &timer);
	timer_settime(timer, 0, &two, NULL);
	timerfd_settime(fd, 0, &hour, NULL);
	while (total < 100)
		if (read(fd, &expired, sizeof(expired)) == sizeof(expired))
			total += expired;
	clock_gettime(CLOCK_MONOTONIC, &end);
	/* The fiftieth signal is due at the moment of the hundredth expiry. Time does not leap while this thread runs. */
	for (lt_ns late = lt_now(CLOCK_MONOTONIC) + 10 * LT_SEC; signals < 50 && lt_now(CLOCK_MONOTONIC) < late;)
		sched_yield();
	printf("{\"ev\":\"timers\",\"fd\":%lu,\"posix\":%d,\"seconds\":%ld}\n", (unsigned long)total,
	       (int)signals, (long)(end.tv_sec - start.tv_sec));
	return 0;
}
