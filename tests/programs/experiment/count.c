/*
 * count STEP_NS: computes factorials forever. Every STEP_NS of its own time it prints their number so
 * far.
 */
#include "../lt.h"

static uint64_t factorial(unsigned n)
{
	uint64_t product = 1;
	for (unsigned i = 2; i <= n; i++) {
		product *= i;
		__asm__ volatile("" : "+r"(product));
	}
	return product;
}

int main(int argc, char **argv)
{
	lt_ns step = argc > 1 ? atoll(argv[1]) : 10000000, next = lt_now(CLOCK_MONOTONIC), now;
	unsigned long long work = 0, sum = 0;

	for (;;) {
		for (int i = 0; i < 20; i++, work++)
			sum += factorial(200);
		now = lt_now(CLOCK_MONOTONIC);
		if (now >= next) {
			lt_emit("count", ",\"now\":%lld,\"work\":%llu,\"odd\":%llu", now, work, sum & 1);
			next = now - now % step + step;
		}
	}
}
