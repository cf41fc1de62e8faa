/*
 * threads N NS: N threads, each sleeping NS in its own way and reading the clock after it.
 * Prints the shortest and longest of their durations.
 */
#include "../lt.h"
#include <poll.h>

static lt_ns ns, longest, shortest = LT_FOREVER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;

static void *run(void *p)
{
	long i = (long)p;
	struct timespec t = lt_ts(ns);
	uint32_t word = 1;
	pthread_barrier_wait(&start);
	lt_ns t0 = lt_now(CLOCK_MONOTONIC);
	switch (i % 4) {
	case 0: LT_CHECK(nanosleep(&t, NULL) == 0); break;
	case 1: LT_CHECK(poll(NULL, 0, (int)(ns / 1000000)) == 0); break;
	case 2: LT_CHECK(syscall(SYS_futex, &word, 0, 1, &t, NULL, 0) == -1 && errno == ETIMEDOUT); break;
	default: LT_CHECK(select(0, NULL, NULL, NULL, &(struct timeval){ ns / LT_SEC,
			  ns % LT_SEC / 1000 }) == 0);
	}
	lt_ns took = lt_now(CLOCK_MONOTONIC) - t0;
	pthread_mutex_lock(&lock);
	if (took > longest)
		longest = took;
	if (took < shortest)
		shortest = took;
	pthread_mutex_unlock(&lock);
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t t[4096];
	long n = argc > 1 ? atol(argv[1]) : 0;
	pthread_attr_t small;
	if (argc != 3 || n < 1 || n > 4096)
		return 96;
	ns = atoll(argv[2]);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 * 1024);
	pthread_barrier_init(&start, NULL, (unsigned)n + 1);
	for (long i = 0; i < n; i++)
		LT_CHECK(pthread_create(&t[i], &small, run, (void *)i) == 0);
	lt_emit("ready", ",\"case\":\"threads\",\"pid\":%d", getpid());
	pthread_barrier_wait(&start);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	lt_emit("threads", ",\"n\":%ld,\"shortest\":%.6f,\"longest\":%.6f", n, lt_sec(shortest),
		lt_sec(longest));
	return 0;
}
