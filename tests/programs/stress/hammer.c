/*
 * hammer THREADS: threads read CLOCK_MONOTONIC, half of them by the vDSO and half raw, until stdin
 * ends. They share the greatest value that a thread has read: a smaller value in a later read went
 * backwards. Each thread checks BOOTTIME, MONOTONIC_RAW and MONOTONIC_COARSE for itself.
 */
#include "../lt.h"
#include <sched.h>

static _Atomic long long greatest, backwards, worst, reads, widest;
static const clockid_t others[] = { CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE };
static _Atomic long long others_backwards[3];
static _Atomic int stop;

static void at_most(_Atomic long long *to, long long v)
{
	long long old = *to;
	while (old < v && !__atomic_compare_exchange_n((long long *)to, &old, v, 0, __ATOMIC_SEQ_CST,
						       __ATOMIC_SEQ_CST))
		;
}

static lt_ns raw(clockid_t id)
{
	struct timespec t;
	LT_CHECK(syscall(SYS_clock_gettime, id, &t) == 0);
	return t.tv_sec * LT_SEC + t.tv_nsec;
}

static void *run(void *p)
{
	lt_ns (*read_clock)(clockid_t) = (long)p % 2 ? raw : lt_now;
	lt_ns mine[3] = { 0, 0, 0 }, n = 0, before = 0;
	while (!stop) {
		lt_ns seen = greatest, t = read_clock(CLOCK_MONOTONIC);
		if (t < seen) {
			backwards++;
			at_most(&worst, seen - t);
		}
		at_most(&greatest, t);
		if (before)
			at_most(&widest, t - before);
		before = t;
		for (int i = 0; i < 3 && n % 4 == 0; i++) {
			lt_ns o = read_clock(others[i]);
			if (o < mine[i])
				others_backwards[i]++;
			mine[i] = o;
		}
		n++;
	}
	reads += n;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[64];
	long n = argc > 1 ? atol(argv[1]) : 4;
	char c;
	if (n < 1 || n > 64)
		return 96;
	for (long i = 0; i < n; i++)
		t[i] = lt_thread(run, (void *)i);
	lt_emit("ready", ",\"case\":\"hammer\",\"pid\":%d", getpid());
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
	stop = 1;
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	lt_emit("hammer", ",\"reads\":%lld,\"backwards\":%lld,\"worst_ns\":%lld,\"widest\":%.6f,"
		"\"boottime\":%lld,\"raw\":%lld,\"coarse\":%lld", reads, backwards, worst, lt_sec(widest),
		others_backwards[0], others_backwards[1], others_backwards[2]);
	return 0;
}
