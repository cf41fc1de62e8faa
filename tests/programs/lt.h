/*
 * lt.h: common parts of the small test programs. Plain C, no library; builds with glibc and musl.
 *
 * A program is a table of cases. `prog NOMINAL_NS CASE...` runs each case in a child process of
 * its own (with -t: in a thread of its own), all at once; `prog -l` lists them. A case prints
 *
 *     {"ev":"ready","case":"poll","pid":1,"tid":1}            just before the call under test
 *     {"ev":"done","case":"poll","ret":0,"err":0,"elapsed":1.0,"expect":1.0,...}
 *
 * each line by one write(2), so that the reader's timestamp of the line is the host's time of
 * the event. "elapsed" and "expect" are seconds of the program's own CLOCK_MONOTONIC; "expect"
 * is the duration that the case expects of its call. Further fields are the case's own; those
 * called "same_..." must be equal in every run, native or inside.
 */
#ifndef LT_H
#define LT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif
#ifndef SYS_io_pgetevents
#define SYS_io_pgetevents 333
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#endif
#ifndef CLOCK_TAI
#define CLOCK_TAI 11
#endif
#ifndef SIGEV_THREAD_ID
#define SIGEV_THREAD_ID 4
#endif

#define LT_SEC 1000000000LL
#define LT_FOREVER (1000000 * LT_SEC)
#define LT_MAX_CASES 256

typedef long long lt_ns;

struct lt {
	const char *name;
	lt_ns nominal, expect; /* expect: nominal unless the case says otherwise */
	lt_ns t0, t1;
	long ret;
	int err;
	volatile int started; /* t0 has been taken */
};

struct lt_case {
	const char *name;
	void (*run)(struct lt *);
	int threads; /* may share its process with the other cases: no signals, no process-wide state */
};

/* ------------------------------------------------------------------------------------ output */

static void lt_vline(const char *head, const char *fmt, va_list ap)
{
	char buf[3500];
	int n = snprintf(buf, sizeof buf, "%s", head);
	if (fmt)
		n += vsnprintf(buf + n, sizeof buf - (size_t)n - 3, fmt, ap);
	if (n > (int)sizeof buf - 3)
		n = (int)sizeof buf - 3;
	buf[n++] = '}';
	buf[n++] = '\n';
	for (char *p = buf; n > 0;) {
		ssize_t w = write(1, p, (size_t)n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			_exit(98);
		p += w;
		n -= (int)w;
	}
}

/* One event line: lt_emit("mark", ",\"count\":%d", 3). */
__attribute__((unused, format(printf, 2, 3)))
static void lt_emit(const char *ev, const char *fmt, ...)
{
	char head[128];
	va_list ap;
	snprintf(head, sizeof head, "{\"ev\":\"%s\"", ev);
	va_start(ap, fmt);
	lt_vline(head, fmt, ap);
	va_end(ap);
}

__attribute__((unused, noreturn)) static void lt_die(const char *what)
{
	lt_emit("broken", ",\"what\":\"%s\",\"err\":%d", what, errno);
	_exit(97);
}

#define LT_CHECK(e) do { if (!(e)) lt_die(#e); } while (0)

/* -------------------------------------------------------------------------------------- time */

static lt_ns lt_now(clockid_t id)
{
	struct timespec t;
	if (clock_gettime(id, &t))
		lt_die("clock_gettime");
	return t.tv_sec * LT_SEC + t.tv_nsec;
}

__attribute__((unused)) static struct timespec lt_ts(lt_ns ns)
{
	return (struct timespec){ .tv_sec = ns / LT_SEC, .tv_nsec = ns % LT_SEC };
}

__attribute__((unused)) static struct timeval lt_tv(lt_ns ns)
{
	return (struct timeval){ .tv_sec = ns / LT_SEC, .tv_usec = ns % LT_SEC / 1000 };
}

__attribute__((unused)) static double lt_sec(lt_ns ns) { return (double)ns / 1e9; }
__attribute__((unused)) static double lt_ts_sec(struct timespec t)
{
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
__attribute__((unused)) static double lt_tv_sec(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* An absolute deadline `nominal` from now. Call after LT_READY, so that elapsed >= nominal. */
__attribute__((unused)) static struct timespec lt_deadline(const struct lt *lt, clockid_t id)
{
	return lt_ts(lt_now(id) + lt->nominal);
}

/* Sleeps to the end: continues with the rest after EINTR. */
__attribute__((unused)) static void lt_sleep(lt_ns ns)
{
	struct timespec t = lt_ts(ns);
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* --------------------------------------------------------------------------- the call under test */

__attribute__((unused)) static void lt_ready(struct lt *lt)
{
	lt_emit("ready", ",\"case\":\"%s\",\"pid\":%d,\"tid\":%ld", lt->name, getpid(),
		syscall(SYS_gettid));
	lt->t0 = lt_now(CLOCK_MONOTONIC);
	lt->started = 1;
}

/* For a helper thread whose own wait must not begin before the one that is measured. */
__attribute__((unused)) static void lt_await_start(const struct lt *lt)
{
	while (!lt->started)
		sched_yield();
}

__attribute__((unused)) static void lt_took(struct lt *lt, long ret, int err)
{
	lt->t1 = lt_now(CLOCK_MONOTONIC);
	lt->ret = ret;
	lt->err = err;
}

#define LT_READY(lt) lt_ready(lt)
/* a call that returns -1 and sets errno */
#define LT_CALL(lt, call) do { errno = 0; long r_ = (long)(call); int e_ = errno; \
	lt_took(lt, r_, r_ == -1 ? e_ : 0); } while (0)
/* a call that returns the error itself (pthreads, clock_nanosleep) */
#define LT_CALL_E(lt, call) do { int r_ = (call); lt_took(lt, r_, r_); } while (0)

__attribute__((unused, format(printf, 2, 3)))
static void lt_done(struct lt *lt, const char *fmt, ...)
{
	char head[256];
	va_list ap;
	snprintf(head, sizeof head,
		 "{\"ev\":\"done\",\"case\":\"%s\",\"ret\":%ld,\"err\":%d,\"elapsed\":%.9f,"
		 "\"expect\":%.9f", lt->name, lt->ret, lt->err, lt_sec(lt->t1 - lt->t0),
		 lt_sec(lt->expect));
	va_start(ap, fmt);
	lt_vline(head, fmt, ap);
	va_end(ap);
}

/* ------------------------------------------------------------------------------------ helpers */

/* Run fn(arg) in a thread; never joined. */
__attribute__((unused)) static pthread_t lt_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	int e = pthread_create(&t, NULL, fn, arg);
	if (e) {
		errno = e;
		lt_die("pthread_create");
	}
	return t;
}

/* Ids go up by one with each child: other programs use some, too. */
static inline void lt_use_up_ids(int amount)
{
	pid_t first = 0, child;
	do {
		child = fork();
		LT_CHECK(child >= 0);
		if (child == 0)
			_exit(0);
		LT_CHECK(waitpid(child, NULL, 0) == child);
		first = first ? first : child;
	} while (child >= first && child - first < amount - 1);
}

/* Starts n threads, the second half with ids that are `apart` and more behind those of the first. */
static inline void lt_threads_apart(pthread_t *threads, int n, int apart, void *(*fn)(void *))
{
	for (int i = 0; i < n; i++) {
		if (i == n / 2)
			lt_use_up_ids(apart - n / 2);
		threads[i] = lt_thread(fn, NULL);
	}
}

__attribute__((unused)) static void lt_handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = fn;
	sa.sa_flags = flags;
	LT_CHECK(sigaction(sig, &sa, NULL) == 0);
}

__attribute__((unused)) static sigset_t lt_block(int sig)
{
	sigset_t s, old;
	sigemptyset(&s);
	sigaddset(&s, sig);
	LT_CHECK(pthread_sigmask(SIG_BLOCK, &s, &old) == 0);
	return old;
}

/* --------------------------------------------------------------------------------------- main */

struct lt_job { const struct lt_case *c; lt_ns nominal; };

static void *lt_run_job(void *p)
{
	struct lt_job *j = p;
	struct lt lt = { .name = j->c->name, .nominal = j->nominal, .expect = j->nominal };
	j->c->run(&lt);
	return NULL;
}

static const struct lt_case *lt_find(const struct lt_case *cases, const char *name)
{
	for (; cases->name; cases++)
		if (!strcmp(cases->name, name))
			return cases;
	fprintf(stderr, "no such case: %s\n", name);
	exit(96);
}

__attribute__((unused)) static int lt_main(int argc, char **argv, const struct lt_case *cases)
{
	static struct lt_job jobs[LT_MAX_CASES];
	static pthread_t threads[LT_MAX_CASES];
	int use_threads = 0, bad = 0, n = 0, i = 1, status;

	signal(SIGPIPE, SIG_DFL);
	if (i < argc && !strcmp(argv[i], "-l")) {
		for (; cases->name; cases++)
			lt_emit("case", ",\"case\":\"%s\",\"threads\":%d", cases->name, cases->threads);
		return 0;
	}
	if (i < argc && !strcmp(argv[i], "-t"))
		use_threads = 1, i++;
	if (i + 1 >= argc || argc - i > LT_MAX_CASES) {
		fprintf(stderr, "usage: %s [-t] NOMINAL_NS CASE... | -l\n", argv[0]);
		return 96;
	}
	lt_ns nominal = atoll(argv[i++]);
	for (; i < argc; i++)
		jobs[n++] = (struct lt_job){ lt_find(cases, argv[i]), nominal };
	for (i = 0; i < n; i++) {
		if (use_threads) {
			threads[i] = lt_thread(lt_run_job, &jobs[i]);
			continue;
		}
		pid_t pid = fork();
		LT_CHECK(pid >= 0);
		if (pid == 0) {
			lt_run_job(&jobs[i]);
			_exit(0);
		}
	}
	if (use_threads)
		for (i = 0; i < n; i++)
			pthread_join(threads[i], NULL);
	else
		while (wait(&status) > 0 || errno == EINTR)
			bad |= status;
	lt_emit("end", ",\"bad\":%d", bad);
	return bad ? 95 : 0;
}
#endif
