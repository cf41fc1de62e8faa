/*
 * waiting_signal: expiries of periodic timers that the program has not taken yet when the clock
 * changes.
 *
 * Each case sets a timer for 1 ms with an interval of 20 s, and prints "ready" after its first expiry. It blocks
 * the signal, and waits in a read of standard input. At the end of its input it takes all pending expiries:
 *
 *     {"ev":"done","case":"thread","ret":10,...,"count":1,"again":0,"left":1}
 *
 * count: expiries; again: whether a second one is pending; left: until the next one, in intervals, rounded up
 *
 * thread: the signal goes to the second thread; the clock-change signal goes to the first one
 * process: the signal goes to the process
 * descriptor: a timer descriptor
 *
 * Another case, interval, takes 20 signals of an interval timer with a period of 10 ms; the first has been pending
 * since before the change. It prints the number of early ones: {"ev":"done","case":"interval","ret":14,...,"early":0}
 */
#include "../lt.h"
#include <poll.h>
#include <sys/timerfd.h>

#define INTERVAL 20

static const struct itimerspec VALUE = { { INTERVAL, 0 }, { 0, 1000000 } };

static void await_end_of_input(void)
{
	char line[8];
	while (read(0, line, sizeof line) > 0)
		;
}

static int intervals(struct itimerspec left)
{
	lt_ns ns = left.it_value.tv_sec * LT_SEC + left.it_value.tv_nsec;
	return (int)((ns + INTERVAL * LT_SEC - 1) / (INTERVAL * LT_SEC));
}

static void wait_for_signal(struct lt *lt, int notify)
{
	struct sigevent event = { .sigev_notify = notify, .sigev_signo = SIGUSR1 };
	struct timespec none = { 0, 0 };
	struct itimerspec left;
	siginfo_t info = { 0 };
	sigset_t pending, set;
	timer_t timer;
	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	LT_CHECK(timer_settime(timer, 0, &VALUE, NULL) == 0);
	do {
		sched_yield();
		sigpending(&pending);
	} while (!sigismember(&pending, SIGUSR1));
	LT_READY(lt);
	await_end_of_input();
	LT_CALL(lt, sigtimedwait(&set, &info, &none));
	LT_CHECK(timer_gettime(timer, &left) == 0);
	int again = sigtimedwait(&set, NULL, &none) > 0;
	lt_done(lt, ",\"count\":%d,\"again\":%d,\"left\":%d", info.si_overrun + 1, again, intervals(left));
}

static void process(struct lt *lt)
{
	lt_block(SIGUSR1);
	wait_for_signal(lt, SIGEV_SIGNAL);
}

static void *in_thread(void *lt)
{
	wait_for_signal(lt, SIGEV_THREAD_ID);
	return NULL;
}

static void thread(struct lt *lt)
{
	lt_block(SIGUSR1);
	pthread_join(lt_thread(in_thread, lt), NULL);
}

static void descriptor(struct lt *lt)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	struct itimerspec left;
	uint64_t count = 0, more = 0;
	LT_CHECK(fd >= 0 && timerfd_settime(fd, 0, &VALUE, NULL) == 0);
	LT_CHECK(poll(&readable, 1, -1) == 1);
	LT_READY(lt);
	await_end_of_input();
	LT_CALL(lt, read(fd, &count, sizeof count));
	LT_CHECK(timerfd_gettime(fd, &left) == 0);
	int again = read(fd, &more, sizeof more) > 0;
	lt_done(lt, ",\"count\":%d,\"again\":%d,\"left\":%d", (int)count, again, intervals(left));
}

static void interval(struct lt *lt)
{
	const lt_ns every = 10000000;
	struct itimerval value = { { 0, every / 1000 }, { 0, every / 1000 } };
	sigset_t pending, set;
	int early = 0;
	lt_block(SIGALRM);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	LT_CHECK(setitimer(ITIMER_REAL, &value, NULL) == 0);
	do {
		sched_yield();
		sigpending(&pending);
	} while (!sigismember(&pending, SIGALRM));
	LT_READY(lt);
	await_end_of_input();
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	/* The first came before, and the second may come at once. */
	for (int i = 0; i < 20; i++) {
		LT_CALL(lt, sigtimedwait(&set, NULL, NULL));
		early += lt_now(CLOCK_MONOTONIC) < begun + (i - 1) * every;
	}
	lt_done(lt, ",\"early\":%d", early);
}

static const struct lt_case cases[] = {
	{ "process", process, 0 }, { "thread", thread, 0 }, { "descriptor", descriptor, 0 },
	{ "interval", interval, 0 }, { 0 },
};

int main(int argc, char **argv) { return lt_main(argc, argv, cases); }
