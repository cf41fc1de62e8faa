// Prints how long a fixed computation took, LOOPS times over.
//
//     print_time LOOPS
//
// It prints its container's time: it knows no other.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 150 * 1000 * 1000 };

static int64_t now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

static void compute(void)
{
	static volatile uint64_t result;
	uint64_t value = 1;
	for (int i = 0; i < STEPS; i++)
		value = value * 6364136223846793005u + 1442695040888963407u;
	result = value;
	(void)result;
}

int main(int argc, char **argv)
{
	int loops = argc == 2 ? atoi(argv[1]) : 0;
	if (loops < 1) {
		fprintf(stderr, "usage: print_time LOOPS\n");
		return 2;
	}
	for (int i = 0; i < loops; i++) {
		int64_t start = now_us();
		compute();
		int64_t took = now_us() - start;
		printf("%lld:%06lld\n", (long long)(took / 1000000), (long long)(took % 1000000));
		fflush(stdout);
	}
	return 0;
}
