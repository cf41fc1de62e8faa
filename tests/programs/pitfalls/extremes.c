/*
 * extremes tiny N     N times the shortest waits there are: none may end early, none be an error
 * extremes huge       the longest waits there are: none may end
 * extremes storm NS   a timerfd and a POSIX timer of 1 ms for NS: how often they went off
 */
#include "../lt.h"
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static const uint32_t word = 1;

static int tiny(int kind, lt_ns *least)
{
	struct timespec one = { 0, 1 }, t;
	struct timeval us = { 0, 1 };
	struct itimerspec its = { .it_value = { 0, 1 } };
	struct itimerval carry = { .it_value = { 0, 999999 }, .it_interval = { 0, 999999 } }, off;
	struct epoll_event e;
	uint64_t n;
	int fd, ok;
	*least = 1;
	memset(&off, 0, sizeof off);
	switch (kind) {
	case 0: return nanosleep(&one, NULL) == 0;
	case 1: *least = 1000000; return poll(NULL, 0, 1) == 0;
	case 2: *least = 1000; return select(0, NULL, NULL, NULL, &us) == 0;
	case 3: return ppoll(NULL, 0, &one, NULL) == 0;
	case 4: return syscall(SYS_futex, &word, 0, 1, &one, NULL, 0) == -1 && errno == ETIMEDOUT;
	case 5:
		*least = 1000000;
		fd = epoll_create1(0);
		ok = epoll_wait(fd, &e, 1, 1) == 0;
		close(fd);
		return ok;
	case 6:
		t = lt_ts(lt_now(CLOCK_MONOTONIC) + 1);
		return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0;
	case 7:
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		ok = timerfd_settime(fd, 0, &its, NULL) == 0 && read(fd, &n, 8) == 8 && n == 1;
		close(fd);
		return ok;
	default:
		*least = 0;
		signal(SIGALRM, SIG_IGN);
		return setitimer(ITIMER_REAL, &carry, NULL) == 0 && setitimer(ITIMER_REAL, &off, NULL) == 0;
	}
}

static void do_tiny(int n)
{
	int early = 0, wrong = 0;
	for (int i = 0; i < n; i++)
		for (int kind = 0; kind < 9; kind++) {
			lt_ns least, t0 = lt_now(CLOCK_MONOTONIC);
			if (!tiny(kind, &least))
				wrong++;
			else if (lt_now(CLOCK_MONOTONIC) - t0 < least)
				early++;
		}
	lt_emit("tiny", ",\"waits\":%d,\"early\":%d,\"wrong\":%d", n * 9, early, wrong);
}

static void *huge(void *p)
{
	struct timespec most = { LONG_MAX, 999999999 }, far = { LONG_MAX / 4, 0 };
	struct timeval tv = { LONG_MAX / 2, 0 };
	struct epoll_event e;
	struct itimerspec its = { .it_value = most };
	uint64_t n;
	int fd, r = -1;
	errno = 0;
	switch ((long)p) {
	case 0: r = nanosleep(&most, NULL); break;
	case 1: r = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &most, NULL); break;
	case 2: r = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &far, NULL); break;
	case 3: r = poll(NULL, 0, INT_MAX); break;
	case 4: r = ppoll(NULL, 0, &most, NULL); break;
	case 5: r = select(0, NULL, NULL, NULL, &tv); break;
	case 6: r = epoll_wait(epoll_create1(0), &e, 1, INT_MAX); break;
	case 7: r = (int)syscall(SYS_futex, &word, 0, 1, &most, NULL, 0); break;
	case 8: r = (int)syscall(SYS_futex, &word, 9, 1, &most, NULL, -1); break;
	default:
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		LT_CHECK(timerfd_settime(fd, 0, &its, NULL) == 0);
		r = (int)read(fd, &n, 8);
	}
	lt_emit("returned", ",\"which\":%ld,\"ret\":%d,\"err\":%d", (long)p, r, errno);
	return NULL;
}

static void do_huge(void)
{
	char c;
	for (long i = 0; i < 10; i++)
		lt_thread(huge, (void *)i);
	lt_emit("ready", ",\"case\":\"huge\"");
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
}

static void do_storm(lt_ns ns)
{
	struct itimerspec its = { .it_value = { 0, 1000000 }, .it_interval = { 0, 1000000 } };
	struct sigevent ev;
	timer_t t;
	uint64_t n = 0, sum = 0;
	long fired = 0;
	sigset_t s;
	struct timespec none = { 0, 0 };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	memset(&ev, 0, sizeof ev);
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = SIGUSR1;
	lt_block(SIGUSR1);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0);
	lt_ns t0 = lt_now(CLOCK_MONOTONIC);
	LT_CHECK(timerfd_settime(fd, 0, &its, NULL) == 0);
	LT_CHECK(timer_settime(t, 0, &its, NULL) == 0);
	while (lt_now(CLOCK_MONOTONIC) - t0 < ns) {
		lt_sleep(20000000);
		if (read(fd, &n, 8) == 8)
			sum += n;
		if (sigtimedwait(&s, NULL, &none) == SIGUSR1) /* one is queued at most */
			fired += 1 + timer_getoverrun(t);
	}
	lt_emit("storm", ",\"elapsed\":%.6f,\"timerfd\":%llu,\"posix\":%ld",
		lt_sec(lt_now(CLOCK_MONOTONIC) - t0), (unsigned long long)sum, fired);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "tiny"))
		do_tiny(atoi(argv[2]));
	else if (argc > 1 && !strcmp(argv[1], "huge"))
		do_huge();
	else if (argc > 2 && !strcmp(argv[1], "storm"))
		do_storm(atoll(argv[2]));
	else
		return 96;
	return 0;
}
