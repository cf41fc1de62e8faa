// Prints the frequency of the time-stamp counter, Hz. Runs outside any container: the kernel's
// clock is the reference.
#include <time.h>

#include "bench.h"

static uint64_t monotonic_raw_ns(void)
{
	struct timespec ts;
	if (clock_gettime(CLOCK_MONOTONIC_RAW, &ts) != 0)
		die("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(void)
{
	double hertz[5];
	for (int i = 0; i < 5; i++) {
		uint64_t ns = monotonic_raw_ns(), start = ticks();
		struct timespec pause = {0, 100000000};
		nanosleep(&pause, NULL);
		uint64_t end = ticks(), elapsed = monotonic_raw_ns() - ns;
		hertz[i] = (double)(end - start) * 1e9 / (double)elapsed;
	}
	printf("hertz %.0f\n", quantile(hertz, 5, 0.5));
	return 0;
}
