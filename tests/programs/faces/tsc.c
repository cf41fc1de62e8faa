/* tsc NS: prints the gain of the time-stamp counter in a nanosleep of NS, in seconds of a calibration. */
#include "../lt.h"

static unsigned long long tsc(void)
{
	unsigned lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return ((unsigned long long)hi << 32) | lo;
}

static unsigned long long tscp(void)
{
	unsigned lo, hi, aux;
	__asm__ volatile("rdtscp" : "=a"(lo), "=d"(hi), "=c"(aux));
	return ((unsigned long long)hi << 32) | lo;
}

int main(int argc, char **argv)
{
	lt_ns ns = argc > 1 ? atoll(argv[1]) : LT_SEC, t0 = lt_now(CLOCK_MONOTONIC);
	unsigned long long a = tsc(), p = tscp();
	lt_sleep(ns);
	unsigned long long b = tsc(), q = tscp();
	lt_emit("tsc", ",\"elapsed\":%.9f,\"cycles\":%llu,\"cycles_p\":%llu,\"ordered\":%d",
		lt_sec(lt_now(CLOCK_MONOTONIC) - t0), b - a, q - p, a <= p && p <= b && b <= q);
	return 0;
}
