// Common parts of the benchmark programs: the stopwatch and the median.
//
// The stopwatch is the processor's time-stamp counter. It is the same inside a container and outside,
// whatever the virtual clock shows; so it measures both.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

// Reads the counter, fenced on both sides: no measured instruction leaves the interval.
static inline uint64_t ticks(void)
{
	_mm_lfence();
	uint64_t now = __rdtsc();
	_mm_lfence();
	return now;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// Sorts `values` and returns the value at `share` (0.5 is the median).
static inline double quantile(double *values, size_t count, double share)
{
	qsort(values, count, sizeof *values, compare_doubles);
	return values[(size_t)(share * (double)(count - 1))];
}

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}
