// One thread that sleeps a second at a time.
//
//     sleeper COUNT
//
// Prints `ticks N`: the duration of COUNT sleeps of one virtual second each, in ticks of the
// time-stamp counter.
#define _GNU_SOURCE
#include <time.h>

#include "bench.h"

int main(int argc, char **argv)
{
	const struct timespec second = {1, 0};
	long count = argc == 2 ? atol(argv[1]) : 0;

	if (count < 1) {
		fprintf(stderr, "usage: sleeper COUNT\n");
		return 2;
	}
	double start = (double)ticks();
	for (long i = 0; i < count; i++)
		if (clock_nanosleep(CLOCK_MONOTONIC, 0, &second, NULL) != 0)
			die("clock_nanosleep");
	printf("ticks %.0f\n", (double)ticks() - start);
	return 0;
}
