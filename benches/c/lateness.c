// Measures the lateness of a sleep of one millisecond.
//
//     lateness COUNT
//
// Prints `median ticks` and `p99 ticks`: the duration of clock_nanosleep(1 ms). The caller
// subtracts the millisecond: only the caller knows the length of a tick.
#define _GNU_SOURCE
#include <time.h>

#include "bench.h"

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0;
	if (count < 1) {
		fprintf(stderr, "usage: lateness COUNT\n");
		return 2;
	}
	double *each = calloc((size_t)count, sizeof *each);
	const struct timespec millisecond = {0, 1000000};
	for (int i = 0; i < count; i++) {
		uint64_t start = ticks();
		if (clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL) != 0)
			die("clock_nanosleep");
		each[i] = (double)(ticks() - start);
	}
	printf("median %.0f\n", quantile(each, (size_t)count, 0.5));
	printf("p99 %.0f\n", quantile(each, (size_t)count, 0.99));
	return 0;
}
