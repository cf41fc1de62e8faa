/*
 * Signals in the middle of waits: EINTR and SA_RESTART, SIGSTOP and SIGCONT, masks, alternate
 * stacks, handlers that sleep, jumps and cancellation out of a wait.
 */
#include "../lt.h"
#include <mqueue.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>

#define FUTEX_WAIT 0
#define FUTEX_WAIT_BITSET 9

static volatile sig_atomic_t handled;
static void on_signal(int sig) { (void)sig; handled++; }

/* ------------------------------------------------- every wait, with its result in one number */

struct wait_call {
	const char *name;
	long (*fn)(struct lt *, double *remaining);
};

static long w_nanosleep(struct lt *lt, double *rem)
{
	struct timespec t = lt_ts(lt->nominal), r = { 0, 0 };
	long ret = syscall(SYS_nanosleep, &t, &r);
	*rem = lt_ts_sec(r);
	return ret;
}

static long w_clock_nanosleep(struct lt *lt, double *rem)
{
	struct timespec t = lt_ts(lt->nominal), r = { 0, 0 };
	long ret = syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, &t, &r);
	*rem = lt_ts_sec(r);
	return ret;
}

static long w_clock_nanosleep_abs(struct lt *lt, double *rem)
{
	struct timespec t = lt_deadline(lt, CLOCK_MONOTONIC), r = { -5, 0 };
	long ret = syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, &r);
	*rem = lt_ts_sec(r); /* not written for absolute sleeps */
	return ret;
}

static long w_poll(struct lt *lt, double *rem)
{
	(void)rem;
	return syscall(SYS_poll, NULL, 0, (int)(lt->nominal / 1000000));
}

static long w_ppoll(struct lt *lt, double *rem)
{
	struct timespec t = lt_ts(lt->nominal);
	long ret = syscall(SYS_ppoll, NULL, 0, &t, NULL, 8);
	int e = errno;
	*rem = lt_ts_sec(t);
	errno = e;
	return ret;
}

static long w_select(struct lt *lt, double *rem)
{
	struct timeval t = lt_tv(lt->nominal);
	long ret = syscall(SYS_select, 0, NULL, NULL, NULL, &t);
	*rem = lt_tv_sec(t);
	return ret;
}

static long w_pselect6(struct lt *lt, double *rem)
{
	struct timespec t = lt_ts(lt->nominal);
	long ret = syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL);
	*rem = lt_ts_sec(t);
	return ret;
}

static long w_epoll_wait(struct lt *lt, double *rem)
{
	struct epoll_event e;
	(void)rem;
	return syscall(SYS_epoll_wait, epoll_create1(0), &e, 1, (int)(lt->nominal / 1000000));
}

static long w_epoll_pwait2(struct lt *lt, double *rem)
{
	struct epoll_event e;
	struct timespec t = lt_ts(lt->nominal);
	(void)rem;
	return syscall(SYS_epoll_pwait2, epoll_create1(0), &e, 1, &t, NULL, 8);
}

static long w_futex(struct lt *lt, double *rem)
{
	static uint32_t u = 1;
	struct timespec t = lt_ts(lt->nominal);
	(void)rem;
	return syscall(SYS_futex, &u, FUTEX_WAIT, 1, &t, NULL, 0);
}

static long w_futex_bitset(struct lt *lt, double *rem)
{
	static uint32_t u = 1;
	struct timespec t = lt_deadline(lt, CLOCK_MONOTONIC);
	(void)rem;
	return syscall(SYS_futex, &u, FUTEX_WAIT_BITSET, 1, &t, NULL, 0xffffffff);
}

static long w_sigtimedwait(struct lt *lt, double *rem)
{
	struct timespec t = lt_ts(lt->nominal);
	sigset_t s;
	(void)rem;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	return syscall(SYS_rt_sigtimedwait, &s, NULL, &t, 8);
}

static long w_semtimedop(struct lt *lt, double *rem)
{
	int id = semget(IPC_PRIVATE, 1, 0600), e;
	struct sembuf op = { 0, -1, 0 };
	struct timespec t = lt_ts(lt->nominal);
	long ret;
	(void)rem;
	ret = semtimedop(id, &op, 1, &t);
	e = errno;
	semctl(id, 0, IPC_RMID);
	errno = e;
	return ret;
}

static long w_mq_receive(struct lt *lt, double *rem)
{
	struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	struct timespec t = lt_deadline(lt, CLOCK_REALTIME);
	char name[32], buf[8];
	mqd_t q;
	(void)rem;
	snprintf(name, sizeof name, "/lt-sig-%d", getpid());
	q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &a);
	LT_CHECK(q != (mqd_t)-1);
	mq_unlink(name);
	return mq_timedreceive(q, buf, sizeof buf, NULL, &t);
}

static long w_recv(struct lt *lt, double *rem)
{
	struct timeval t = lt_tv(lt->nominal);
	int sv[2];
	char c;
	(void)rem;
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	LT_CHECK(setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
	return recv(sv[0], &c, 1, 0);
}

static const struct wait_call waits[] = {
	{ "nanosleep", w_nanosleep }, { "clock_nanosleep", w_clock_nanosleep },
	{ "clock_nanosleep-abs", w_clock_nanosleep_abs }, { "poll", w_poll }, { "ppoll", w_ppoll },
	{ "select", w_select }, { "pselect6", w_pselect6 }, { "epoll_wait", w_epoll_wait },
	{ "epoll_pwait2", w_epoll_pwait2 }, { "futex", w_futex }, { "futex-bitset", w_futex_bitset },
	{ "sigtimedwait", w_sigtimedwait }, { "semtimedop", w_semtimedop },
	{ "mq_timedreceive", w_mq_receive }, { "rcvtimeo", w_recv },
};

/* A child sends `sig`, then `sig2` if set, when half the nominal time has passed. */
static pid_t kill_half_way(struct lt *lt, int sig, int sig2)
{
	pid_t me = getpid(), child = fork();
	LT_CHECK(child >= 0);
	if (child == 0) {
		lt_sleep(lt->nominal / 2);
		kill(me, sig);
		if (sig2) {
			lt_sleep(lt->nominal / 10);
			kill(me, sig2);
		}
		_exit(0);
	}
	return child;
}

/* The half-way point: where an interrupted call ends. A restarted one may take longer. */
static void with_signal(struct lt *lt, int sig, int sig2, int flags)
{
	const char *name = strchr(lt->name, ':') + 1;
	double rem = -1;
	const struct wait_call *w = NULL;
	pid_t child;
	for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
		if (!strcmp(waits[i].name, name))
			w = &waits[i];
	LT_CHECK(w);
	if (!sig2)
		lt_handle(sig, on_signal, flags);
	LT_READY(lt);
	child = kill_half_way(lt, sig, sig2);
	LT_CALL(lt, w->fn(lt, &rem));
	waitpid(child, NULL, 0);
	if (lt->err == EINTR && !sig2)
		lt->expect = lt->nominal / 2;
	else if (lt->err == EINTR)
		lt->expect = lt->nominal * 6 / 10;
	lt_done(lt, ",\"remaining\":%.9f,\"same_handled\":%d", rem, handled);
}

static void do_eintr(struct lt *lt) { with_signal(lt, SIGUSR1, 0, 0); }
static void do_restart(struct lt *lt) { with_signal(lt, SIGUSR1, 0, SA_RESTART); }
static void do_stopcont(struct lt *lt) { with_signal(lt, SIGSTOP, SIGCONT, 0); }

/* ----------------------------------------------------------------------------------- masks */

static int members(const sigset_t *s)
{
	int n = 0, i;
	for (i = 1; i < 65; i++)
		n += sigismember(s, i) == 1;
	return n;
}

/* All signals blocked through a sleep; the mask reads back as it was set, SIGSYS included. */
static void do_full_mask(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	sigset_t s, back;
	sigfillset(&s);
	LT_CHECK(sigprocmask(SIG_SETMASK, &s, NULL) == 0);
	LT_READY(lt);
	LT_CALL(lt, nanosleep(&t, NULL));
	sigprocmask(SIG_SETMASK, NULL, &back);
	lt_done(lt, ",\"same_members\":%d,\"same_sigsys\":%d", members(&back),
		sigismember(&back, SIGSYS));
}

/* A blocked signal does not end the wait, and is there after it. */
static void do_blocked(struct lt *lt)
{
	sigset_t pending;
	pid_t child;
	lt_handle(SIGUSR1, on_signal, 0);
	lt_block(SIGUSR1);
	LT_READY(lt);
	child = kill_half_way(lt, SIGUSR1, 0);
	LT_CALL(lt, poll(NULL, 0, (int)(lt->nominal / 1000000)));
	waitpid(child, NULL, 0);
	sigpending(&pending);
	lt_done(lt, ",\"same_handled\":%d,\"same_pending\":%d", handled,
		sigismember(&pending, SIGUSR1));
}

/* A blocked signal that is ignored by default waits all the same. */
static void do_blocked_child(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	sigset_t pending;
	lt_block(SIGCHLD);
	LT_READY(lt);
	pid_t child = fork();
	LT_CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	LT_CALL(lt, nanosleep(&t, NULL));
	sigpending(&pending);
	waitpid(child, NULL, 0);
	lt_done(lt, ",\"same_pending\":%d", sigismember(&pending, SIGCHLD));
}

/* p* calls put their own mask on for the wait alone. */
static void pmask(struct lt *lt, int which)
{
	struct timespec t = lt_ts(lt->nominal);
	struct epoll_event e;
	sigset_t old = lt_block(SIGUSR1), back;
	pid_t child;
	int ep = epoll_create1(0);
	lt_handle(SIGUSR1, on_signal, 0);
	lt->expect = lt->nominal / 2;
	LT_READY(lt);
	child = kill_half_way(lt, SIGUSR1, 0);
	if (which == 0)
		LT_CALL(lt, ppoll(NULL, 0, &t, &old));
	else if (which == 1)
		LT_CALL(lt, pselect(0, NULL, NULL, NULL, &t, &old));
	else
		LT_CALL(lt, epoll_pwait(ep, &e, 1, (int)(lt->nominal / 1000000), &old));
	waitpid(child, NULL, 0);
	sigprocmask(SIG_BLOCK, NULL, &back);
	lt_done(lt, ",\"same_handled\":%d,\"same_blocked\":%d,\"same_members\":%d", handled,
		sigismember(&back, SIGUSR1), members(&back));
}

static void do_ppoll_mask(struct lt *lt) { pmask(lt, 0); }
static void do_pselect_mask(struct lt *lt) { pmask(lt, 1); }
static void do_epoll_pwait_mask(struct lt *lt) { pmask(lt, 2); }

/* --------------------------------------------------------------------- SIGSYS is the program's */

static volatile sig_atomic_t sys_code;
static void on_sigsys(int sig, siginfo_t *si, void *ctx)
{
	(void)sig, (void)ctx;
	handled++;
	sys_code = si->si_code;
}

static void do_own_sigsys(struct lt *lt)
{
	struct sigaction sa, old, ign = { .sa_handler = SIG_IGN }, back, mine;
	struct timespec t = lt_ts(lt->nominal);
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_sigsys;
	sa.sa_flags = SA_SIGINFO;
	LT_CHECK(sigaction(SIGSYS, &ign, &old) == 0);
	LT_CHECK(sigaction(SIGSYS, NULL, &back) == 0);
	LT_READY(lt);
	nanosleep(&(struct timespec){ 0, 1000 }, NULL); /* trapped while "ignored" */
	LT_CHECK(sigaction(SIGSYS, &sa, NULL) == 0);
	LT_CHECK(sigaction(SIGSYS, NULL, &mine) == 0);
	kill(getpid(), SIGSYS);
	LT_CALL(lt, nanosleep(&t, NULL));
	lt_done(lt, ",\"same_first\":%d,\"same_ignored\":%d,\"same_mine\":%d,\"same_handled\":%d,"
		"\"same_code\":%d", old.sa_handler == SIG_DFL, back.sa_handler == SIG_IGN,
		mine.sa_sigaction == on_sigsys, handled, sys_code);
}

/* --------------------------------------------------------------------- stacks and nesting */

static lt_ns nested_ns;
static volatile int on_alt;
static char *alt_lo, *alt_hi;

static void sleep_in_handler(int sig)
{
	char here;
	(void)sig;
	on_alt = &here >= alt_lo && &here < alt_hi;
	lt_sleep(nested_ns);
	handled++;
}

/* A handler that itself sleeps, while the program is in a sleep. */
static void nested(struct lt *lt, size_t stack)
{
	struct timespec t = lt_ts(lt->nominal), rem = { 0, 0 };
	stack_t ss = { .ss_size = stack }, back;
	pid_t child;
	int ok = 0;
	if (stack) {
		alt_lo = ss.ss_sp = malloc(stack);
		alt_hi = alt_lo + stack;
		ok = sigaltstack(&ss, NULL) == 0;
		sigaltstack(NULL, &back);
	}
	nested_ns = lt->nominal / 4;
	lt->expect = lt->nominal / 2 + nested_ns;
	lt_handle(SIGUSR1, sleep_in_handler, ok ? SA_ONSTACK : 0);
	LT_READY(lt);
	child = kill_half_way(lt, SIGUSR1, 0);
	LT_CALL(lt, nanosleep(&t, &rem));
	waitpid(child, NULL, 0);
	/* Below 32 KiB the stack is replaced by a larger one (docs/limits.md): the handler is elsewhere. */
	lt_done(lt, ",\"remaining\":%.9f,\"same_handled\":%d,\"same_altstack\":%d,\"%s_on_alt\":%d,"
		"\"same_size\":%d", lt_ts_sec(rem), handled, ok, stack < 32768 ? "replaced" : "same", on_alt,
		ok && back.ss_size == stack);
}

static void do_nested(struct lt *lt) { nested(lt, 0); }
static void do_altstack(struct lt *lt) { nested(lt, 32768); }
static void do_altstack_replaced(struct lt *lt) { nested(lt, 16384); }
static void do_altstack_small(struct lt *lt) { nested(lt, 4096); }

static sigjmp_buf jump;
static void jump_out(int sig) { (void)sig; handled++; siglongjmp(jump, 1); }

/* siglongjmp out of a sleep, then go on sleeping as if nothing were. */
static void do_longjmp(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	pid_t child = -1;
	lt->expect = lt->nominal / 2 + lt->nominal;
	lt_handle(SIGUSR1, jump_out, 0);
	LT_READY(lt);
	if (sigsetjmp(jump, 1) == 0) {
		child = kill_half_way(lt, SIGUSR1, 0);
		nanosleep(&t, NULL);
		lt_die("not interrupted");
	}
	LT_CALL(lt, nanosleep(&t, NULL));
	waitpid(child, NULL, 0);
	lt_done(lt, ",\"same_handled\":%d", handled);
}

static volatile int cleaned;
static void cleanup(void *p) { (void)p; cleaned = 1; }
static void *sleeper(void *p)
{
	pthread_cleanup_push(cleanup, NULL);
	lt_sleep(*(lt_ns *)p);
	pthread_cleanup_pop(0);
	return NULL;
}

/* pthread_cancel ends a sleep half way and unwinds. */
static void do_cancel(struct lt *lt)
{
	pthread_t t;
	void *ret = NULL;
	lt_ns twice = 2 * lt->nominal;
	lt->expect = lt->nominal;
	LT_READY(lt);
	t = lt_thread(sleeper, &twice);
	lt_sleep(lt->nominal);
	pthread_cancel(t);
	LT_CALL_E(lt, pthread_join(t, &ret));
	lt_done(lt, ",\"same_cleaned\":%d,\"same_canceled\":%d", cleaned, ret == PTHREAD_CANCELED);
}

int main(int argc, char **argv)
{
	static struct lt_case cases[80] = {
		{ "full-mask", do_full_mask, 0 },
		{ "blocked-signal", do_blocked, 0 },
		{ "blocked-child", do_blocked_child, 0 },
		{ "ppoll-mask", do_ppoll_mask, 0 },
		{ "pselect-mask", do_pselect_mask, 0 },
		{ "epoll_pwait-mask", do_epoll_pwait_mask, 0 },
		{ "own-sigsys", do_own_sigsys, 0 },
		{ "nested-sleep", do_nested, 0 },
		{ "altstack-32k", do_altstack, 0 },
		{ "altstack-16k", do_altstack_replaced, 0 },
		{ "altstack-4k", do_altstack_small, 0 },
		{ "siglongjmp", do_longjmp, 0 },
		{ "pthread_cancel", do_cancel, 0 },
	};
	static char names[3 * sizeof waits / sizeof *waits][48];
	static const char *kinds[] = { "eintr", "restart", "stopcont" };
	static void (*const fns[])(struct lt *) = { do_eintr, do_restart, do_stopcont };
	size_t n = 0, named = 0, k, i;
	while (cases[n].name)
		n++;
	for (k = 0; k < 3; k++)
		for (i = 0; i < sizeof waits / sizeof *waits; i++, n++, named++) {
			snprintf(names[named], sizeof names[0], "%s:%s", kinds[k], waits[i].name);
			cases[n] = (struct lt_case){ names[named], fns[k], 0 };
		}
	return lt_main(argc, argv, cases);
}
