/* The state of the storm, what its threads see of the clocks, and their random numbers. */
#pragma once
#include "../lt.h"
#include <dlfcn.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#define WORKERS 6
#define MOST_THREADS 24
#define MOST_NS 20000000.0
/* The signal of each thread's periodic timer. It is blocked, and taken by sigwaitinfo. */
#define SERIES (SIGRTMIN + 1)
/* The signal of a timer that goes off once, to the process; likewise. */
#define ONCE (SIGRTMIN + 2)

extern char **environ;

static const clockid_t SEEN[] = {
	CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE,
};
#define NSEEN (sizeof SEEN / sizeof *SEEN)

/* Shared by all processes of the storm. */
static struct {
	_Atomic lt_ns seen[NSEEN];
	atomic_int begun, stop, findings;
	atomic_long actions, waits, interrupted, jumps, children;
} *all;

/* State of one thread. */
struct self {
	int number;
	uint64_t random;
	_Atomic long n;
	const char *_Atomic in;
	volatile long handled; /* signals whose handler ran here */
	volatile int may_jump;
	sigjmp_buf jump;
	timer_t rain, single, series;
	pthread_t thread;
};

static struct self workers[WORKERS];
static __thread struct self *self;
static double scale;
static int steps, files, handler_flags;
static sem_t posted;
static char *own_path;

/* --------------------------------------------------------------------------------- what is seen */

static void finding(const char *what, lt_ns a, lt_ns b)
{
	atomic_fetch_add(&all->findings, 1);
	lt_emit("finding", ",\"what\":\"%s\",\"in\":\"%s\",\"thread\":%d,\"n\":%ld,\"a\":%lld,\"b\":%lld",
		what, self->in, self->number, self->n, a, b);
}

/* Reads one clock and checks it: not less than any earlier reading of any thread. */
static lt_ns see(unsigned which)
{
	lt_ns before = atomic_load(&all->seen[which]);
	lt_ns now = lt_now(SEEN[which]);
	if (now < before)
		finding("back", before, now);
	while (now > before && !atomic_compare_exchange_weak(&all->seen[which], &before, now))
		;
	return now;
}

static lt_ns mono(void) { return see(0); }

static uint64_t draw(void)
{
	uint64_t z = (self->random += 0x9e3779b97f4a7c15ULL);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static unsigned below(unsigned n) { return (unsigned)(draw() % n); }

/* Up to 20 ms of real time, most of them far shorter. */
static lt_ns some_ns(void)
{
	double part = (double)(draw() >> 11) / 9007199254740992.0;
	return (lt_ns)(MOST_NS * part * part * part * scale);
}

static void on_signal(int sig)
{
	int kept = errno;
	(void)sig;
	if (self) {
		self->handled++;
		mono();
	}
	errno = kept;
}

static void on_jump(int sig)
{
	if (self && self->may_jump) {
		self->may_jump = 0;
		siglongjmp(self->jump, 1);
	}
	on_signal(sig);
}
