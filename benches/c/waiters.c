// Many waits in flight at once.
//
//     waiters THREADS SECONDS
//
// Starts THREADS threads that each sleep SECONDS on CLOCK_MONOTONIC. Prints
// `sleeping` when all of them are about to sleep, and when the last one has woken
// `first ticks` and `last ticks`: the time-stamp counter when the first and the
// last of them came back.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "bench.h"

static long seconds;
static pthread_barrier_t all_started;
static pthread_barrier_t all_woken;

static void *sleeper(void *woken_at)
{
	pthread_barrier_wait(&all_started);
	const struct timespec duration = {seconds, 0};
	if (clock_nanosleep(CLOCK_MONOTONIC, 0, &duration, NULL) != 0)
		die("clock_nanosleep");
	*(double *)woken_at = (double)ticks();
	/* No thread ends before all have woken: the end of a thread must not be measured. */
	pthread_barrier_wait(&all_woken);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc == 3 ? atoi(argv[1]) : 0;
	seconds = argc == 3 ? atol(argv[2]) : 0;
	if (threads < 1 || seconds < 1) {
		fprintf(stderr, "usage: waiters THREADS SECONDS\n");
		return 2;
	}
	pthread_t *ids = calloc((size_t)threads, sizeof *ids);
	double *woken_at = calloc((size_t)threads, sizeof *woken_at);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	pthread_barrier_init(&all_started, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&all_woken, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], &small, sleeper, &woken_at[i]) != 0)
			die("pthread_create");
	pthread_barrier_wait(&all_started);
	puts("sleeping");
	fflush(stdout);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("first %.0f\n", quantile(woken_at, (size_t)threads, 0.0));
	printf("last %.0f\n", quantile(woken_at, (size_t)threads, 1.0));
	return 0;
}
