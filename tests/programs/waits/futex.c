/* futex with a timeout, in every flavour, and the libc locks that stand on it. */
#include "../lt.h"
#include <semaphore.h>

enum { WAIT = 0, WAKE = 1, LOCK_PI = 6, WAIT_BITSET = 9, WAIT_REQUEUE_PI = 11, LOCK_PI2 = 13 };
#define FUTEX_REALTIME 256
#define FUTEX_SIZE_U32 2

struct waitv { uint64_t val, uaddr; uint32_t flags, reserved; };

static long futex(uint32_t *u, int op, uint32_t val, struct timespec *t, uint32_t *u2, uint32_t v3)
{
	return syscall(SYS_futex, u, op, val, t, u2, v3);
}

static uint32_t *word(uint32_t v)
{
	uint32_t *w = calloc(1, sizeof *w);
	*w = v;
	return w;
}

static void do_wait(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, futex(word(1), WAIT, 1, &t, NULL, 0));
	lt_done(lt, NULL);
}

struct wake { const struct lt *lt; uint32_t *word; };

static void *wake_half_way(void *arg)
{
	struct wake *w = arg;
	lt_await_start(w->lt);
	lt_sleep(w->lt->expect);
	/* The word stays, so a wake finds nobody while the freezer has the waiter out of its call. */
	for (int tries = 0; futex(w->word, WAKE, 1, NULL, NULL, 0) == 0 && tries < 1000; tries++)
		usleep(100);
	return NULL;
}

static void do_wait_woken(struct lt *lt)
{
	struct wake *w = malloc(sizeof *w);
	/* Far enough that a stalled machine's waker still comes first. */
	struct timespec t = lt_ts(10 * lt->nominal);
	lt->expect = lt->nominal / 2;
	*w = (struct wake){ lt, word(1) };
	lt_thread(wake_half_way, w);
	LT_READY(lt);
	LT_CALL(lt, futex(w->word, WAIT, 1, &t, NULL, 0));
	lt_done(lt, NULL);
}

static void do_wait_stale(struct lt *lt) /* the value has changed: EAGAIN at once */
{
	struct timespec t = lt_ts(lt->nominal);
	lt->expect = 0;
	LT_READY(lt);
	LT_CALL(lt, futex(word(1), WAIT, 2, &t, NULL, 0));
	lt_done(lt, NULL);
}

static void bitset(struct lt *lt, clockid_t id)
{
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL(lt, futex(word(1), WAIT_BITSET | (id == CLOCK_REALTIME ? FUTEX_REALTIME : 0), 1, &t,
			  NULL, 0xffffffff));
	lt_done(lt, NULL);
}

static void *hold_pi(void *u)
{
	LT_CHECK(futex(u, LOCK_PI, 0, NULL, NULL, 0) == 0);
	for (;;)
		pause();
	return NULL;
}

static uint32_t *held_pi(void)
{
	uint32_t *u = word(0);
	lt_thread(hold_pi, u);
	while (__atomic_load_n(u, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	return u;
}

static void lock_pi(struct lt *lt, int op, clockid_t id)
{
	uint32_t *u = held_pi();
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL(lt, futex(u, op, 0, &t, NULL, 0));
	lt_done(lt, NULL);
}

static void requeue_pi(struct lt *lt, clockid_t id)
{
	uint32_t *u = word(1), *u2 = word(0);
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL(lt, futex(u, WAIT_REQUEUE_PI | (id == CLOCK_REALTIME ? FUTEX_REALTIME : 0), 1, &t, u2,
			  0));
	lt_done(lt, NULL);
}

static void futex2_wait(struct lt *lt, clockid_t id)
{
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL(lt, syscall(SYS_futex_wait, word(1), 1UL, 0xffffffffUL, FUTEX_SIZE_U32, &t, id));
	lt_done(lt, NULL);
}

static void waitv(struct lt *lt, clockid_t id)
{
	struct waitv w[2] = {
		{ 1, (uintptr_t)word(1), FUTEX_SIZE_U32, 0 },
		{ 2, (uintptr_t)word(2), FUTEX_SIZE_U32, 0 },
	};
	struct timespec t;
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL(lt, syscall(SYS_futex_waitv, w, 2, 0, &t, id));
	lt_done(lt, NULL);
}

static void cond(struct lt *lt, clockid_t id)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_condattr_t a;
	pthread_cond_t c;
	struct timespec t;
	pthread_condattr_init(&a);
	LT_CHECK(pthread_condattr_setclock(&a, id) == 0);
	pthread_cond_init(&c, &a);
	pthread_mutex_lock(&m);
	LT_READY(lt);
	t = lt_deadline(lt, id);
	LT_CALL_E(lt, pthread_cond_timedwait(&c, &m, &t));
	lt_done(lt, NULL);
}

static void *hold_mutex(void *m)
{
	pthread_mutex_lock(m);
	for (;;)
		pause();
	return NULL;
}

static void do_mutex(struct lt *lt)
{
	pthread_mutex_t *m = malloc(sizeof *m);
	struct timespec t;
	pthread_mutex_init(m, NULL);
	lt_thread(hold_mutex, m);
	while (pthread_mutex_trylock(m) == 0) {
		pthread_mutex_unlock(m);
		sched_yield();
	}
	LT_READY(lt);
	t = lt_deadline(lt, CLOCK_REALTIME);
	LT_CALL_E(lt, pthread_mutex_timedlock(m, &t));
	lt_done(lt, NULL);
}

static void do_sem(struct lt *lt)
{
	sem_t s;
	struct timespec t;
	sem_init(&s, 0, 0);
	LT_READY(lt);
	t = lt_deadline(lt, CLOCK_REALTIME);
	LT_CALL(lt, sem_timedwait(&s, &t));
	lt_done(lt, NULL);
}

static void bitset_mono(struct lt *lt) { bitset(lt, CLOCK_MONOTONIC); }
static void bitset_real(struct lt *lt) { bitset(lt, CLOCK_REALTIME); }
static void lock_pi_real(struct lt *lt) { lock_pi(lt, LOCK_PI, CLOCK_REALTIME); }
static void lock_pi2_mono(struct lt *lt) { lock_pi(lt, LOCK_PI2, CLOCK_MONOTONIC); }
static void lock_pi2_real(struct lt *lt) { lock_pi(lt, LOCK_PI2 | FUTEX_REALTIME, CLOCK_REALTIME); }
static void requeue_mono(struct lt *lt) { requeue_pi(lt, CLOCK_MONOTONIC); }
static void requeue_real(struct lt *lt) { requeue_pi(lt, CLOCK_REALTIME); }
static void futex2_mono(struct lt *lt) { futex2_wait(lt, CLOCK_MONOTONIC); }
static void futex2_real(struct lt *lt) { futex2_wait(lt, CLOCK_REALTIME); }
static void waitv_mono(struct lt *lt) { waitv(lt, CLOCK_MONOTONIC); }
static void waitv_real(struct lt *lt) { waitv(lt, CLOCK_REALTIME); }
static void cond_mono(struct lt *lt) { cond(lt, CLOCK_MONOTONIC); }
static void cond_real(struct lt *lt) { cond(lt, CLOCK_REALTIME); }

int main(int argc, char **argv)
{
	static const struct lt_case cases[] = {
		{ "futex-wait", do_wait, 1 },
		{ "futex-wait-woken", do_wait_woken, 1 },
		{ "futex-wait-stale", do_wait_stale, 1 },
		{ "futex-wait_bitset-monotonic", bitset_mono, 1 },
		{ "futex-wait_bitset-realtime", bitset_real, 1 },
		{ "futex-lock_pi", lock_pi_real, 1 },
		{ "futex-lock_pi2-monotonic", lock_pi2_mono, 1 },
		{ "futex-lock_pi2-realtime", lock_pi2_real, 1 },
		{ "futex-wait_requeue_pi-monotonic", requeue_mono, 1 },
		{ "futex-wait_requeue_pi-realtime", requeue_real, 1 },
		{ "futex_wait-monotonic", futex2_mono, 1 },
		{ "futex_wait-realtime", futex2_real, 1 },
		{ "futex_waitv-monotonic", waitv_mono, 1 },
		{ "futex_waitv-realtime", waitv_real, 1 },
		{ "pthread_cond-monotonic", cond_mono, 1 },
		{ "pthread_cond-realtime", cond_real, 1 },
		{ "pthread_mutex", do_mutex, 1 },
		{ "sem", do_sem, 1 },
		{ NULL, NULL, 0 },
	};
	return lt_main(argc, argv, cases);
}
