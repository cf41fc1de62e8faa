/*
 * tsc NS: prints the gain of the time-stamp counter by rdtsc and rdtscp over a nanosleep of NS. By the clock the span
 * lasts "least" seconds or more, and no more than "most".
 */
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
	lt_ns t1 = lt_now(CLOCK_MONOTONIC);
	lt_sleep(ns);
	lt_ns t2 = lt_now(CLOCK_MONOTONIC);
	unsigned long long b = tsc(), q = tscp();
	lt_ns t3 = lt_now(CLOCK_MONOTONIC);
	lt_emit("tsc", ",\"least\":%.9f,\"most\":%.9f,\"cycles\":%llu,\"cycles_p\":%llu,\"ordered\":%d",
		lt_sec(t2 - t1), lt_sec(t3 - t0), b - a, q - p, a <= p && p <= b && b <= q);
	return 0;
}
