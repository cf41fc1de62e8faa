/*
 * reads: one thread reads CLOCK_MONOTONIC again and again, another one only the processor's counter, until stdin ends.
 * Prints for each the sum of its stops longer than a millisecond or so, and the length of the whole run; all in ticks.
 * Two timers are armed meanwhile.
 */
#include "../lt.h"
#include <sys/timerfd.h>
#include <x86intrin.h>

static volatile int stop;
static unsigned long long stalled[2], reads;

static void watch(int which)
{
	/* A millisecond at 2 GHz. */
	const unsigned long long stall = 2000000;
	unsigned long long before = __rdtsc(), sum = 0, count = 0;
	struct timespec now;
	while (!stop) {
		if (which == 0)
			clock_gettime(CLOCK_MONOTONIC, &now);
		unsigned long long here = __rdtsc();
		if (here - before > stall)
			sum += here - before;
		before = here;
		count++;
	}
	stalled[which] = sum;
	if (which == 0)
		reads = count;
}

static void *run(void *which)
{
	watch((int)(long)which);
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	struct itimerspec far = { .it_value = { .tv_sec = 1000000 } };
	char c;
	for (int i = 0; i < 2; i++)
		LT_CHECK(timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, &far, NULL) == 0);
	unsigned long long begun = __rdtsc();
	for (long i = 0; i < 2; i++)
		threads[i] = lt_thread(run, (void *)i);
	lt_emit("ready", ",\"case\":\"reads\"");
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	lt_emit("reads", ",\"reads\":%llu,\"stalled\":%llu,\"control\":%llu,\"elapsed\":%llu", reads, stalled[0],
		stalled[1], __rdtsc() - begun);
	return 0;
}
