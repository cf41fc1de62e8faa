/* alarm, setitimer, POSIX timers and timerfds: relative, absolute, periodic, what remains. */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#ifndef TFD_TIMER_CANCEL_ON_SET
#define TFD_TIMER_CANCEL_ON_SET 2
#endif
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile sig_atomic_t handled;
static volatile long handled_tid, handled_value;

static void on_signal(int sig) { (void)sig; handled++; }

static void on_info(int sig, siginfo_t *si, void *ctx)
{
	(void)sig, (void)ctx;
	handled++;
	handled_tid = syscall(SYS_gettid);
	handled_value = si->si_value.sival_int;
}

static struct itimerval itv(lt_ns first, lt_ns every)
{
	return (struct itimerval){ .it_value = lt_tv(first), .it_interval = lt_tv(every) };
}

static struct itimerspec its(lt_ns first, lt_ns every)
{
	return (struct itimerspec){ .it_value = lt_ts(first), .it_interval = lt_ts(every) };
}

/* ------------------------------------------------------------------------ alarm and itimers */

static void do_alarm(struct lt *lt)
{
	sigset_t old = lt_block(SIGALRM);
	unsigned secs = (unsigned)((lt->nominal + LT_SEC - 1) / LT_SEC);
	lt->expect = lt->nominal = secs * LT_SEC;
	lt_handle(SIGALRM, on_signal, 0);
	LT_READY(lt);
	alarm(secs);
	LT_CALL(lt, sigsuspend(&old));
	lt_done(lt, ",\"same_handled\":%d,\"same_left\":%u", handled, alarm(0));
}

/* alarm() returns what was left of the one before, rounded as the kernel rounds. */
static void do_alarm_left(struct lt *lt)
{
	unsigned left;
	lt->expect = 0;
	LT_READY(lt);
	alarm(1000);
	left = alarm(0);
	LT_CALL(lt, 0);
	lt_done(lt, ",\"same_left\":%u,\"same_none\":%u", left, alarm(0));
}

static void do_setitimer(struct lt *lt)
{
	sigset_t old = lt_block(SIGALRM);
	struct itimerval t = itv(lt->nominal, 0);
	lt_handle(SIGALRM, on_signal, 0);
	LT_READY(lt);
	LT_CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
	LT_CALL(lt, sigsuspend(&old));
	lt_done(lt, ",\"same_handled\":%d", handled);
}

/* The signal ends pause(), which itself bears no time. */
static void do_setitimer_pause(struct lt *lt)
{
	struct itimerval t = itv(lt->nominal, 0);
	lt_handle(SIGALRM, on_signal, SA_RESTART);
	LT_READY(lt);
	LT_CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
	LT_CALL(lt, pause());
	lt_done(lt, ",\"same_handled\":%d", handled);
}

static void do_setitimer_periodic(struct lt *lt)
{
	struct itimerval t = itv(lt->nominal / 10, lt->nominal / 10);
	sigset_t s, old = lt_block(SIGALRM);
	(void)old;
	int i;
	sigemptyset(&s);
	sigaddset(&s, SIGALRM);
	LT_READY(lt);
	LT_CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
	for (i = 0; i < 10; i++)
		LT_CHECK(sigwaitinfo(&s, NULL) == SIGALRM);
	LT_CALL(lt, 0);
	t = itv(0, 0);
	setitimer(ITIMER_REAL, &t, NULL);
	lt_done(lt, NULL);
}

static void do_getitimer(struct lt *lt)
{
	struct itimerval t = itv(lt->nominal, lt->nominal * 3), old;
	lt_block(SIGALRM);
	lt->expect = lt->nominal / 2;
	LT_READY(lt);
	LT_CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
	lt_sleep(lt->expect);
	LT_CALL(lt, getitimer(ITIMER_REAL, &t));
	struct itimerval off = itv(0, 0);
	LT_CHECK(setitimer(ITIMER_REAL, &off, &old) == 0);
	lt_done(lt, ",\"remaining\":%.6f,\"old\":%.6f,\"interval_ratio\":%.6f", lt_tv_sec(t.it_value),
		lt_tv_sec(old.it_value), lt_tv_sec(t.it_interval) / lt_sec(lt->nominal));
}

/* ------------------------------------------------------------------------------ POSIX timers */

static timer_t make_timer(clockid_t id, int notify, int sig)
{
	struct sigevent ev;
	timer_t t;
	memset(&ev, 0, sizeof ev);
	ev.sigev_notify = notify;
	ev.sigev_signo = sig;
	ev.sigev_value.sival_int = 4711;
	if (notify == SIGEV_THREAD_ID)
		ev.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	LT_CHECK(timer_create(id, &ev, &t) == 0);
	return t;
}

static void timer(struct lt *lt, clockid_t id, int absolute)
{
	timer_t t = make_timer(id, SIGEV_SIGNAL, SIGUSR1);
	struct itimerspec v = its(lt->nominal, 0);
	siginfo_t si;
	sigset_t s;
	memset(&si, 0, sizeof si);
	lt_block(SIGUSR1);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	LT_READY(lt);
	if (absolute)
		v.it_value = lt_deadline(lt, id);
	LT_CHECK(timer_settime(t, absolute ? TIMER_ABSTIME : 0, &v, NULL) == 0);
	LT_CALL(lt, sigwaitinfo(&s, &si));
	lt_done(lt, ",\"same_code\":%d,\"same_value\":%d,\"same_overrun\":%d", si.si_code,
		si.si_value.sival_int, timer_getoverrun(t));
}

static void do_timer_thread_id(struct lt *lt)
{
	struct itimerspec v = its(lt->nominal, 0);
	struct sigaction sa;
	sigset_t old = lt_block(SIGUSR1);
	timer_t t = make_timer(CLOCK_MONOTONIC, SIGEV_THREAD_ID, SIGUSR1);
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_info;
	sa.sa_flags = SA_SIGINFO;
	LT_CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	LT_CALL(lt, sigsuspend(&old));
	lt_done(lt, ",\"same_value\":%ld,\"same_thread\":%d", handled_value,
		handled_tid == syscall(SYS_gettid));
}

static int notify_pipe[2];

static void notified(union sigval v)
{
	char c = (char)v.sival_int;
	LT_CHECK(write(notify_pipe[1], &c, 1) == 1);
}

static void do_timer_thread(struct lt *lt)
{
	struct itimerspec v = its(lt->nominal, 0);
	struct sigevent ev;
	timer_t t;
	char c = 0;
	LT_CHECK(pipe(notify_pipe) == 0);
	memset(&ev, 0, sizeof ev);
	ev.sigev_notify = SIGEV_THREAD;
	ev.sigev_notify_function = notified;
	ev.sigev_value.sival_int = 7;
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	LT_CALL(lt, read(notify_pipe[0], &c, 1));
	lt_done(lt, ",\"same_value\":%d", c);
}

static void do_timer_none(struct lt *lt) /* SIGEV_NONE: polled with timer_gettime */
{
	timer_t t = make_timer(CLOCK_MONOTONIC, SIGEV_NONE, 0);
	struct itimerspec v = its(lt->nominal, 0), now;
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	do {
		lt_sleep(lt->nominal / 100);
		LT_CHECK(timer_gettime(t, &now) == 0);
	} while (now.it_value.tv_sec || now.it_value.tv_nsec);
	LT_CALL(lt, 0);
	lt_done(lt, NULL);
}

static void do_timer_periodic(struct lt *lt)
{
	timer_t t = make_timer(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1);
	struct itimerspec v = its(lt->nominal / 10, lt->nominal / 10);
	long fired = 0;
	sigset_t s;
	lt_block(SIGUSR1);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	while (fired < 10) {
		LT_CHECK(sigwaitinfo(&s, NULL) == SIGUSR1);
		fired += 1 + timer_getoverrun(t);
	}
	LT_CALL(lt, 0);
	lt_done(lt, NULL);
}

/* The signal stays blocked while the timer goes off again and again: overruns count. */
static void do_timer_overrun(struct lt *lt)
{
	timer_t t = make_timer(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1);
	struct itimerspec v = its(lt->nominal / 10, lt->nominal / 10);
	siginfo_t si;
	sigset_t s;
	lt_block(SIGUSR1);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	lt_sleep(lt->nominal);
	lt_ns slept = lt_now(CLOCK_MONOTONIC) - lt->t0;
	LT_CALL(lt, sigwaitinfo(&s, &si));
	lt_done(lt, ",\"slept\":%.9f,\"fired\":%d,\"siginfo_fired\":%d", lt_sec(slept),
		1 + timer_getoverrun(t), 1 + si.si_overrun);
}

static void do_timer_gettime(struct lt *lt)
{
	timer_t t = make_timer(CLOCK_REALTIME, SIGEV_NONE, 0);
	struct itimerspec v = its(lt->nominal, lt->nominal * 3), now, old;
	lt->expect = lt->nominal / 2;
	LT_READY(lt);
	LT_CHECK(timer_settime(t, 0, &v, NULL) == 0);
	lt_sleep(lt->expect);
	LT_CALL(lt, timer_gettime(t, &now));
	v = its(0, 0);
	LT_CHECK(timer_settime(t, 0, &v, &old) == 0);
	lt_done(lt, ",\"remaining\":%.9f,\"old\":%.9f,\"interval_ratio\":%.6f",
		lt_ts_sec(now.it_value), lt_ts_sec(old.it_value),
		lt_ts_sec(now.it_interval) / lt_sec(lt->nominal));
}

/* --------------------------------------------------------------------------------- timerfds */

static long read_fd(int fd, uint64_t *n)
{
	*n = 0;
	return read(fd, n, sizeof *n);
}

static int armed_fd(struct lt *lt, clockid_t id, int flags, lt_ns every)
{
	int fd = timerfd_create(id, TFD_CLOEXEC);
	struct itimerspec v = its(every ? every : lt->nominal, every);
	LT_CHECK(fd >= 0);
	LT_READY(lt);
	if (flags & TFD_TIMER_ABSTIME)
		v.it_value = lt_deadline(lt, id);
	LT_CHECK(timerfd_settime(fd, flags, &v, NULL) == 0);
	return fd;
}

static void fd_read(struct lt *lt, clockid_t id, int flags)
{
	int fd = armed_fd(lt, id, flags, 0);
	uint64_t n;
	LT_CALL(lt, read_fd(fd, &n));
	lt_done(lt, ",\"same_count\":%llu", (unsigned long long)n);
}

static void do_fd_poll(struct lt *lt)
{
	struct pollfd f = { .fd = armed_fd(lt, CLOCK_MONOTONIC, 0, 0), .events = POLLIN };
	LT_CALL(lt, poll(&f, 1, -1));
	lt_done(lt, ",\"same_revents\":%d", f.revents);
}

static void do_fd_epoll(struct lt *lt)
{
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(0), fd = armed_fd(lt, CLOCK_MONOTONIC, TFD_TIMER_ABSTIME, 0);
	LT_CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	LT_CALL(lt, epoll_wait(ep, &e, 1, -1));
	lt_done(lt, NULL);
}

static void do_fd_periodic(struct lt *lt)
{
	int fd = armed_fd(lt, CLOCK_MONOTONIC, 0, lt->nominal / 10);
	uint64_t n, sum = 0;
	while (sum < 10) {
		LT_CHECK(read_fd(fd, &n) == 8);
		sum += n;
	}
	LT_CALL(lt, 0);
	lt_done(lt, ",\"count\":%llu", (unsigned long long)sum);
}

static void do_fd_counts(struct lt *lt)
{
	int fd = armed_fd(lt, CLOCK_MONOTONIC, 0, lt->nominal / 10);
	uint64_t n;
	lt_sleep(lt->nominal);
	lt_ns slept = lt_now(CLOCK_MONOTONIC) - lt->t0;
	LT_CALL(lt, read_fd(fd, &n));
	lt_done(lt, ",\"slept\":%.9f,\"fired\":%llu", lt_sec(slept), (unsigned long long)n);
}

static void do_fd_gettime(struct lt *lt)
{
	int fd = armed_fd(lt, CLOCK_REALTIME, TFD_TIMER_ABSTIME, 0);
	struct itimerspec now;
	lt->expect = lt->nominal / 2;
	lt_sleep(lt->expect);
	LT_CALL(lt, timerfd_gettime(fd, &now));
	lt_done(lt, ",\"remaining\":%.9f", lt_ts_sec(now.it_value));
}

/* Armed by the parent, waited for by a child that shares the descriptor. */
static void do_fd_fork(struct lt *lt)
{
	int fd = armed_fd(lt, CLOCK_MONOTONIC, 0, 0), status;
	uint64_t n;
	pid_t pid = fork();
	if (pid == 0)
		_exit(read_fd(fd, &n) == 8 && n == 1 ? 0 : 1);
	LT_CHECK(pid > 0);
	LT_CALL(lt, waitpid(pid, &status, 0));
	lt->ret = 0;
	lt_done(lt, ",\"same_status\":%d", status);
}

static void rt_rel(struct lt *lt) { timer(lt, CLOCK_REALTIME, 0); }
static void mono_rel(struct lt *lt) { timer(lt, CLOCK_MONOTONIC, 0); }
static void boot_rel(struct lt *lt) { timer(lt, CLOCK_BOOTTIME, 0); }
static void rt_abs(struct lt *lt) { timer(lt, CLOCK_REALTIME, 1); }
static void mono_abs(struct lt *lt) { timer(lt, CLOCK_MONOTONIC, 1); }
static void boot_abs(struct lt *lt) { timer(lt, CLOCK_BOOTTIME, 1); }
static void tai_abs(struct lt *lt) { timer(lt, CLOCK_TAI, 1); }
static void fd_rt_rel(struct lt *lt) { fd_read(lt, CLOCK_REALTIME, 0); }
static void fd_mono_rel(struct lt *lt) { fd_read(lt, CLOCK_MONOTONIC, 0); }
static void fd_boot_rel(struct lt *lt) { fd_read(lt, CLOCK_BOOTTIME, 0); }
static void fd_rt_abs(struct lt *lt) { fd_read(lt, CLOCK_REALTIME, TFD_TIMER_ABSTIME); }
static void fd_mono_abs(struct lt *lt) { fd_read(lt, CLOCK_MONOTONIC, TFD_TIMER_ABSTIME); }
static void fd_boot_abs(struct lt *lt) { fd_read(lt, CLOCK_BOOTTIME, TFD_TIMER_ABSTIME); }
static void fd_cancel(struct lt *lt)
{
	fd_read(lt, CLOCK_REALTIME, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET);
}

int main(int argc, char **argv)
{
	static const struct lt_case cases[] = {
		{ "alarm", do_alarm, 0 },
		{ "alarm-left", do_alarm_left, 0 },
		{ "setitimer", do_setitimer, 0 },
		{ "setitimer-pause", do_setitimer_pause, 0 },
		{ "setitimer-periodic", do_setitimer_periodic, 0 },
		{ "getitimer", do_getitimer, 0 },
		{ "timer-realtime-rel", rt_rel, 0 },
		{ "timer-monotonic-rel", mono_rel, 0 },
		{ "timer-boottime-rel", boot_rel, 0 },
		{ "timer-realtime-abs", rt_abs, 0 },
		{ "timer-monotonic-abs", mono_abs, 0 },
		{ "timer-boottime-abs", boot_abs, 0 },
		{ "timer-tai-abs", tai_abs, 0 },
		{ "timer-thread_id", do_timer_thread_id, 0 },
		{ "timer-thread", do_timer_thread, 0 },
		{ "timer-none", do_timer_none, 1 },
		{ "timer-periodic", do_timer_periodic, 0 },
		{ "timer-overrun", do_timer_overrun, 0 },
		{ "timer-gettime", do_timer_gettime, 1 },
		{ "timerfd-realtime-rel", fd_rt_rel, 1 },
		{ "timerfd-monotonic-rel", fd_mono_rel, 1 },
		{ "timerfd-boottime-rel", fd_boot_rel, 1 },
		{ "timerfd-realtime-abs", fd_rt_abs, 1 },
		{ "timerfd-monotonic-abs", fd_mono_abs, 1 },
		{ "timerfd-boottime-abs", fd_boot_abs, 1 },
		{ "timerfd-cancel_on_set", fd_cancel, 1 },
		{ "timerfd-poll", do_fd_poll, 1 },
		{ "timerfd-epoll", do_fd_epoll, 1 },
		{ "timerfd-periodic", do_fd_periodic, 1 },
		{ "timerfd-counts", do_fd_counts, 1 },
		{ "timerfd-gettime", do_fd_gettime, 1 },
		{ "timerfd-fork", do_fd_fork, 0 },
		{ NULL, NULL, 0 },
	};
	return lt_main(argc, argv, cases);
}
