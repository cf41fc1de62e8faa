/*
 * threads SECONDS: sixteen threads make calls of every kind that is rewritten, from the first call on, while signals arrive every
 * 100 us, with SA_RESTART and without, threads jump out of waits, children are begun by vfork and fork, and a library is loaded
 * and unloaded. {"ev":"calls","thread":3,"count":12345,"wrong":0,"what":""}
 */
#include "../lt.h"
#include <dlfcn.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define FUTEX_WAIT_PRIVATE 128

enum { THREADS = 16 };

static volatile int over;
static pthread_t threads[THREADS];
static __thread sigjmp_buf *jump;
static char path[64];

static void on_signal(int signal) { (void)signal; }
static void on_jump(int signal)
{
	(void)signal;
	if (jump)
		siglongjmp(*jump, 1);
}

struct work {
	int thread, ends[2], epoll;
	long count, wrong;
	const char *what;
};

static void check(struct work *w, int right, const char *what)
{
	w->count++;
	if (!right && !w->wrong++)
		w->what = what;
}

/* A wait that a jump ends, or its deadline. */
static void jump_out(struct work *w)
{
	sigjmp_buf here;
	struct pollfd nothing = { -1, 0, 0 };
	if (sigsetjmp(here, 1) == 0) {
		jump = &here;
		int got = poll(&nothing, 1, 1);
		jump = NULL;
		check(w, got == 0 || (got < 0 && errno == EINTR), "poll for a millisecond");
	} else {
		jump = NULL;
		w->count++;
	}
}

static void children(struct work *w)
{
	int status = -1;
	pid_t child = w->thread % 2 ? vfork() : fork();
	if (child == 0)
		_exit(7);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	check(w, child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child's status");
}

static void load(struct work *w)
{
	void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
	/* A static program cannot load any. */
	check(w, !library || dlsym(library, "cos"), "dlopen");
	if (library)
		dlclose(library);
}

static int later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec >= b.tv_nsec);
}

static void *work(void *argument)
{
	struct work *w = argument;
	struct timespec last = { 0, 0 }, now, second = { 1, 0 };
	struct epoll_event event = { .events = EPOLLIN };
	struct sigaction action = { .sa_handler = on_signal };
	struct stat file;
	int word = 1;
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGUSR1);
	for (long round = 0; !over; round++) {
		struct pollfd ready = { w->ends[0], POLLIN, 0 };
		check(w, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0, "clock_gettime");
		check(w, later(now, last), "the clock goes on");
		last = now;
		check(w, stat("/", &file) == 0 && S_ISDIR(file.st_mode), "stat");
		check(w, fstat(w->ends[0], &file) == 0 && S_ISFIFO(file.st_mode), "fstat");
		check(w, stat("/nowhere", &file) < 0 && errno == ENOENT, "stat of nothing");
		int fd;
		while ((fd = open(path, O_RDONLY)) < 0 && errno == EINTR)
			;
		check(w, fd >= 0 && close(fd) == 0, "open");
		int got = poll(&ready, 1, 1000);
		check(w, got == 1 || (got < 0 && errno == EINTR), "poll");
		got = epoll_wait(w->epoll, &event, 1, 1000);
		check(w, got == 1 || (got < 0 && errno == EINTR), "epoll_wait");
		got = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &second, NULL, 0);
		check(w, got < 0 && (errno == EAGAIN || errno == EINTR), "futex");
		check(w, pthread_sigmask(SIG_BLOCK, &set, &old) == 0, "block");
		check(w, pthread_sigmask(SIG_SETMASK, &old, &set) == 0 && sigismember(&set, SIGUSR2) == 1, "mask");
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		check(w, sigaction(SIGHUP, &action, NULL) == 0, "sigaction");
		if (round % 8 == 0)
			jump_out(w);
		if (round % 64 == w->thread)
			children(w);
		if (w->thread == 0)
			load(w);
	}
	return NULL;
}

int main(int count, char **words)
{
	static struct work works[THREADS];
	struct sigaction restarts = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct sigaction jumps = { .sa_handler = on_jump };
	lt_ns end = lt_now(CLOCK_MONOTONIC) + (count > 1 ? atoi(words[1]) : 2) * LT_SEC;
	sigaction(SIGUSR1, &restarts, NULL);
	sigaction(SIGUSR2, &jumps, NULL);
	snprintf(path, sizeof path, "/proc/self/comm");
	for (int i = 0; i < THREADS; i++) {
		struct work *w = &works[i];
		w->thread = i;
		w->what = "";
		LT_CHECK(pipe(w->ends) == 0 && write(w->ends[1], "x", 1) == 1);
		struct epoll_event event = { .events = EPOLLIN };
		w->epoll = epoll_create1(0);
		LT_CHECK(epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->ends[0], &event) == 0);
		LT_CHECK(pthread_create(&threads[i], NULL, work, w) == 0);
	}
	for (int i = 0; lt_now(CLOCK_MONOTONIC) < end; i++) {
		pthread_kill(threads[i % THREADS], i % 3 ? SIGUSR1 : SIGUSR2);
		lt_sleep(100000);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		lt_emit("calls", ",\"thread\":%d,\"count\":%ld,\"wrong\":%ld,\"what\":\"%s\"", i, works[i].count,
		        works[i].wrong, works[i].what);
	}
	return 0;
}
