/* The waits of the storm, and what is checked of each. */
#pragma once
#include "storm_seen.h"

struct wait {
	const char *name;
	/* Waits for `ns`: 0 at the timeout, EINTR, -1 where something came, else a wrong errno. */
	int (*call)(lt_ns ns);
	lt_ns unit; /* its timeout is a whole number of these */
	clockid_t clock;
	/* The kernel does not begin it anew where no handler ran after all: another thread took the
	 * process's signal, or the task was frozen. It ends by EINTR (signal(7)). */
	int ends_without_handler;
};

static int told(long ret, int timeout)
{
	return ret >= 0 ? -1 : errno == timeout ? 0 : errno;
}

static int w_nanosleep(lt_ns ns)
{
	struct timespec t = lt_ts(ns), left = { -1, -1 };
	if (!nanosleep(&t, &left))
		return 0;
	/* The kernel counts the timer's slack, 50 us, as left. */
	lt_ns slack = (lt_ns)(1e6 * (scale > 1 ? scale : 1));
	int e = errno;
	if (e == EINTR && (left.tv_sec < 0 || left.tv_sec * LT_SEC + left.tv_nsec > ns + slack))
		finding("more left than asked for", ns, left.tv_sec * LT_SEC + left.tv_nsec);
	return e;
}

static int until(clockid_t id, lt_ns ns)
{
	struct timespec t = lt_ts(lt_now(id) + ns);
	int e = clock_nanosleep(id, TIMER_ABSTIME, &t, NULL);
	if (!e && (id != CLOCK_REALTIME || !steps)) {
		lt_ns now = lt_now(id), at = t.tv_sec * LT_SEC + t.tv_nsec;
		if (now < at)
			finding("early", at, now);
	}
	return e;
}

static int w_until_mono(lt_ns ns) { return until(CLOCK_MONOTONIC, ns); }
static int w_until_boot(lt_ns ns) { return until(CLOCK_BOOTTIME, ns); }
static int w_until_real(lt_ns ns) { return until(CLOCK_REALTIME, ns); }

static int w_poll(lt_ns ns)
{
	int r = poll(NULL, 0, (int)(ns / 1000000));
	return r < 0 ? errno : 0;
}

static int w_ppoll(lt_ns ns)
{
	struct timespec t = lt_ts(ns);
	return ppoll(NULL, 0, &t, NULL) < 0 ? errno : 0;
}

static int w_select(lt_ns ns)
{
	struct timeval t = lt_tv(ns);
	return select(0, NULL, NULL, NULL, &t) < 0 ? errno : 0;
}

static int w_epoll(lt_ns ns)
{
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);
	int e = epoll_wait(fd, &event, 1, (int)(ns / 1000000)) < 0 ? errno : 0;
	close(fd);
	return e;
}

static int w_futex(lt_ns ns)
{
	int word = 0;
	struct timespec t = lt_ts(ns);
	return told(syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &t), ETIMEDOUT);
}

static int w_futex_until(lt_ns ns)
{
	int word = 0;
	struct timespec t = lt_ts(lt_now(CLOCK_MONOTONIC) + ns);
	return told(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &t, NULL,
			    FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
}

static int w_semaphore(lt_ns ns)
{
	struct timespec t = lt_ts(lt_now(CLOCK_REALTIME) + ns);
	return told(sem_timedwait(&posted, &t), ETIMEDOUT);
}

static int w_condition(lt_ns ns)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_condattr_t attr;
	pthread_cond_t cond;
	struct timespec t = lt_ts(lt_now(CLOCK_MONOTONIC) + ns);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&cond, &attr);
	pthread_mutex_lock(&mutex);
	int e = pthread_cond_timedwait(&cond, &mutex, &t);
	pthread_mutex_unlock(&mutex);
	pthread_cond_destroy(&cond);
	return e == ETIMEDOUT ? 0 : e ? e : -1;
}

static int w_timerfd(lt_ns ns)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (fd < 0)
		return errno;
	ns = ns ? ns : 1;
	struct itimerspec it = { lt_ts(ns), lt_ts(ns) };
	lt_ns t0 = mono();
	uint64_t count = 0;
	timerfd_settime(fd, 0, &it, NULL);
	int e = read(fd, &count, sizeof count) < 0 ? errno : 0;
	lt_ns took = mono() - t0;
	if (!e && (lt_ns)count > took / ns) {
		finding("too many expirations", (lt_ns)count, took / ns);
		finding("their interval, and the time that they took", ns, took);
	}
	close(fd);
	return e;
}

static int w_receive(lt_ns ns)
{
	int pair[2];
	char byte;
	struct timeval t = lt_tv(ns);
	if (ns < 1000)
		return 0; /* for ever, to the kernel */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return errno;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	int e = told(recv(pair[0], &byte, 1, 0), EAGAIN);
	close(pair[0]);
	close(pair[1]);
	return e;
}

static int w_signal(lt_ns ns)
{
	sigset_t set;
	struct timespec t = lt_ts(ns);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMAX);
	return told(sigtimedwait(&set, NULL, &t), EAGAIN);
}

static int w_pselect(lt_ns ns)
{
	struct timespec t = lt_ts(ns);
	return pselect(0, NULL, NULL, NULL, &t, NULL) < 0 ? errno : 0;
}

static int w_epoll_pwait2(lt_ns ns)
{
	struct epoll_event event;
	struct timespec t = lt_ts(ns);
	int fd = epoll_create1(EPOLL_CLOEXEC);
	int e = syscall(SYS_epoll_pwait2, fd, &event, 1, &t, NULL, 0) < 0 ? errno : 0;
	close(fd);
	return e;
}

/* A message that never comes. The queue has no name, so that nothing of it is left. */
static int w_message(lt_ns ns)
{
	char name[64], message[8];
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = sizeof message };
	snprintf(name, sizeof name, "/storm-%d-%d", getpid(), self->number);
	mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, &attr);
	if (queue == (mqd_t)-1)
		return errno;
	mq_unlink(name);
	struct timespec t = lt_ts(lt_now(CLOCK_REALTIME) + ns);
	int e = told(mq_timedreceive(queue, message, sizeof message, NULL, &t), ETIMEDOUT);
	mq_close(queue);
	return e;
}

static int w_wall_timerfd(lt_ns ns, int flags)
{
	int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
	lt_ns at = (flags ? lt_now(CLOCK_REALTIME) : 0) + (ns ? ns : 1), now;
	struct itimerspec it = { { 0, 0 }, lt_ts(at) };
	uint64_t count = 0;
	LT_CHECK(fd >= 0 && timerfd_settime(fd, flags, &it, NULL) == 0);
	int e = read(fd, &count, sizeof count) < 0 ? errno : 0;
	if (!e && count != 1)
		finding("expiries of one", 1, (lt_ns)count);
	if (!e && flags && !steps && (now = lt_now(CLOCK_REALTIME)) < at)
		finding("early", at, now);
	close(fd);
	return e;
}

static int w_wall_timerfd_for(lt_ns ns) { return w_wall_timerfd(ns, 0); }
static int w_wall_timerfd_until(lt_ns ns) { return w_wall_timerfd(ns, TFD_TIMER_ABSTIME); }

/* Waits for a blocked signal of the process, for which no other thread waits meanwhile. */
static int signalled(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	return sigwaitinfo(&set, NULL) < 0 ? errno : 0;
}

static void forget(int signal)
{
	const struct timespec at_once = { 0, 0 };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	while (sigtimedwait(&set, NULL, &at_once) > 0 || errno == EINTR)
		;
}

static int w_interval_timer(lt_ns ns)
{
	static atomic_flag used = ATOMIC_FLAG_INIT;
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	struct itimerval it = { { 0, 0 }, lt_tv(ns) }, left;
	if (ns < 1000 || atomic_flag_test_and_set(&used))
		return -1;
	LT_CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0 && getitimer(ITIMER_REAL, &left) == 0);
	lt_ns rest = left.it_value.tv_sec * LT_SEC + left.it_value.tv_usec * 1000;
	if (rest > ns)
		finding("rest of an interval timer", rest, ns);
	int e = signalled(SIGALRM);
	LT_CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	forget(SIGALRM);
	atomic_flag_clear(&used);
	return e;
}

static int w_timer_of_the_process(lt_ns ns)
{
	static atomic_flag used = ATOMIC_FLAG_INIT;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = ONCE };
	struct itimerspec it = { { 0, 0 }, lt_ts(ns ? ns : 1) };
	timer_t timer;
	if (atomic_flag_test_and_set(&used))
		return -1;
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	LT_CHECK(timer_settime(timer, 0, &it, NULL) == 0);
	int e = signalled(ONCE);
	LT_CHECK(timer_delete(timer) == 0);
	forget(ONCE);
	atomic_flag_clear(&used);
	return e;
}

static const struct wait WAITS[] = {
	{ "nanosleep", w_nanosleep, 1, CLOCK_MONOTONIC, 0 },
	{ "until monotonic", w_until_mono, 1, CLOCK_MONOTONIC, 0 },
	{ "until boottime", w_until_boot, 1, CLOCK_MONOTONIC, 0 },
	{ "until realtime", w_until_real, 1, CLOCK_REALTIME, 0 },
	{ "poll", w_poll, 1000000, CLOCK_MONOTONIC, 0 },
	{ "ppoll", w_ppoll, 1, CLOCK_MONOTONIC, 0 },
	{ "select", w_select, 1000, CLOCK_MONOTONIC, 0 },
	{ "epoll_wait", w_epoll, 1000000, CLOCK_MONOTONIC, 1 },
	{ "futex", w_futex, 1, CLOCK_MONOTONIC, 0 },
	{ "futex until", w_futex_until, 1, CLOCK_MONOTONIC, 0 },
	{ "semaphore", w_semaphore, 1, CLOCK_REALTIME, 0 },
	{ "condition", w_condition, 1, CLOCK_MONOTONIC, 0 },
	{ "timerfd", w_timerfd, 1, CLOCK_MONOTONIC, 0 },
	{ "recv", w_receive, 1000, CLOCK_MONOTONIC, 1 },
	{ "sigtimedwait", w_signal, 1, CLOCK_MONOTONIC, 1 },
	{ "pselect", w_pselect, 1, CLOCK_MONOTONIC, 0 },
	{ "epoll_pwait2", w_epoll_pwait2, 1, CLOCK_MONOTONIC, 1 },
	{ "mq_timedreceive", w_message, 1, CLOCK_REALTIME, 0 },
	{ "wall timerfd", w_wall_timerfd_for, 1, CLOCK_MONOTONIC, 0 },
	{ "wall timerfd until", w_wall_timerfd_until, 1, CLOCK_REALTIME, 0 },
	{ "interval timer", w_interval_timer, 1000, CLOCK_MONOTONIC, 1 },
	{ "timer of the process", w_timer_of_the_process, 1, CLOCK_MONOTONIC, 1 },
};

static void some_wait(void)
{
	const struct wait *wait = &WAITS[below(sizeof WAITS / sizeof *WAITS)];
	lt_ns ns = some_ns() / wait->unit * wait->unit;
	self->in = wait->name;
	long handled = self->handled;
	lt_ns t0 = mono();
	int e = wait->call(ns);
	lt_ns took = mono() - t0;
	atomic_fetch_add(&all->waits, 1);
	if (e == 0 && took < ns && wait->clock != CLOCK_REALTIME)
		finding("early", ns, took);
	if (e == EINTR) {
		atomic_fetch_add(&all->interrupted, 1);
		if (self->handled == handled && !wait->ends_without_handler)
			finding("EINTR, and no handler ran", ns, took);
	} else if (e > 0) {
		finding("errno", 0, e);
	}
}
