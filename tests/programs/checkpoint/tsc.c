/*
 * tsc: two threads print each 50 ms what rdtsc reads, and CLOCK_MONOTONIC just before, in seconds.
 *
 *     {"ev":"look","thread":1,"ticks":123456789,"clock":41.25}
 */
#include "../lt.h"

static void *look(void *thread)
{
	for (;;) {
		lt_ns clock = lt_now(CLOCK_MONOTONIC);
		unsigned lo, hi;
		__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
		lt_emit("look", ",\"thread\":%d,\"ticks\":%llu,\"clock\":%.9f", *(int *)thread,
			((unsigned long long)hi << 32) | lo, lt_sec(clock));
		lt_sleep(LT_SEC / 20);
	}
	return NULL;
}

int main(void)
{
	static int first = 1, second = 2;
	lt_thread(look, &second);
	look(&first);
	return 0;
}
