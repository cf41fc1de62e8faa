/*
 * reads: one thread reads CLOCK_MONOTONIC again and again, another one only the processor's counter, until stdin ends.
 * At each byte of stdin it prints for each the sum of its stops since the byte before, of those longer than a
 * millisecond or so; at the end the length of the whole run; all in ticks. Two timers are armed meanwhile.
 */
#include "../lt.h"
#include <stdatomic.h>
#include <sys/timerfd.h>
#include <x86intrin.h>

static volatile int stop;
static atomic_ullong stalled[2];
static unsigned long long reads;

static void watch(int which)
{
	/* A millisecond at 2 GHz. */
	const unsigned long long stall = 2000000;
	unsigned long long before = __rdtsc(), count = 0;
	struct timespec now;
	while (!stop) {
		if (which == 0)
			clock_gettime(CLOCK_MONOTONIC, &now);
		unsigned long long here = __rdtsc();
		if (here - before > stall)
			atomic_fetch_add(&stalled[which], here - before);
		before = here;
		count++;
	}
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
	for (ssize_t got; (got = read(0, &c, 1)) > 0 || (got < 0 && errno == EINTR);) {
		if (got < 0)
			continue;
		unsigned long long reader = atomic_exchange(&stalled[0], 0), control = atomic_exchange(&stalled[1], 0);
		lt_emit("stops", ",\"stalled\":%llu,\"control\":%llu", reader, control);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	lt_emit("reads", ",\"reads\":%llu,\"elapsed\":%llu", reads, __rdtsc() - begun);
	return 0;
}
