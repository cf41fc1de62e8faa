/*
 * Calls that return at once: bad pointers, bad values, zero timeouts. One line each,
 *     {"ev":"error","case":"nanosleep bad nsec","ret":-1,"err":22}
 * The kernel is the oracle: inside at any rate every line is the same. Nothing here sets a clock.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/timex.h>

#define BAD ((void *)8)
#define T(name, call) do { errno = 0; long r_ = (long)(call); int e_ = errno; \
	lt_emit("error", ",\"case\":\"%s\",\"ret\":%ld,\"err\":%d", name, r_, r_ == -1 ? e_ : 0); \
	} while (0)
#define TS(s, n) (&(struct timespec){ s, n })
#define TV(s, u) (&(struct timeval){ s, u })
#define ITS(s, n) (&(struct itimerspec){ .it_value = { s, n } })
#define ITV(s, u) (&(struct itimerval){ .it_value = { s, u } })

static void sleeping(void)
{
	T("nanosleep bad nsec", syscall(SYS_nanosleep, TS(0, 1000000000), NULL));
	T("nanosleep negative nsec", syscall(SYS_nanosleep, TS(0, -1), NULL));
	T("nanosleep negative sec", syscall(SYS_nanosleep, TS(-1, 0), NULL));
	T("nanosleep bad pointer", syscall(SYS_nanosleep, BAD, NULL));
	T("nanosleep null", syscall(SYS_nanosleep, NULL, NULL));
	T("nanosleep zero", syscall(SYS_nanosleep, TS(0, 0), NULL));
	T("nanosleep bad rem, not interrupted", syscall(SYS_nanosleep, TS(0, 1), BAD));
	T("clock_nanosleep bad clock", syscall(SYS_clock_nanosleep, 99, 0, TS(0, 1), NULL));
	T("clock_nanosleep negative clock", syscall(SYS_clock_nanosleep, -1, 0, TS(0, 1), NULL));
	T("clock_nanosleep thread cpu",
	  syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, TS(0, 1), NULL));
	T("clock_nanosleep raw", syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, TS(0, 1), NULL));
	T("clock_nanosleep coarse",
	  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_COARSE, 0, TS(0, 1), NULL));
	T("clock_nanosleep bad nsec", syscall(SYS_clock_nanosleep, 1, 0, TS(0, 1000000000), NULL));
	T("clock_nanosleep abs bad nsec", syscall(SYS_clock_nanosleep, 1, 1, TS(0, -1), NULL));
	T("clock_nanosleep abs negative", syscall(SYS_clock_nanosleep, 1, 1, TS(-1, 0), NULL));
	T("clock_nanosleep abs zero", syscall(SYS_clock_nanosleep, 1, 1, TS(0, 0), NULL));
	T("clock_nanosleep bad pointer", syscall(SYS_clock_nanosleep, 1, 0, BAD, NULL));
	T("clock_nanosleep odd flags", syscall(SYS_clock_nanosleep, 1, 64, TS(0, 1), NULL));
}

static void polling(void)
{
	struct epoll_event e[2];
	struct pollfd f = { .fd = 0, .events = 0 };
	int ep = epoll_create1(0), p[2];
	fd_set s;
	LT_CHECK(pipe(p) == 0);
	T("poll zero", syscall(SYS_poll, &f, 0, 0));
	T("poll bad pointer", syscall(SYS_poll, BAD, 1, 10));
	T("poll too many", syscall(SYS_poll, &f, 100000000, 10));
	T("ppoll zero", syscall(SYS_ppoll, NULL, 0, TS(0, 0), NULL, 8));
	T("ppoll bad nsec", syscall(SYS_ppoll, NULL, 0, TS(0, 1000000000), NULL, 8));
	T("ppoll negative", syscall(SYS_ppoll, NULL, 0, TS(-1, 0), NULL, 8));
	T("ppoll bad timeout pointer", syscall(SYS_ppoll, NULL, 0, BAD, NULL, 8));
	T("ppoll bad mask size", syscall(SYS_ppoll, NULL, 0, TS(0, 1), &s, 7));
	T("ppoll bad mask pointer", syscall(SYS_ppoll, NULL, 0, TS(0, 1), BAD, 8));
	T("select zero", syscall(SYS_select, 0, NULL, NULL, NULL, TV(0, 0)));
	T("select negative n", syscall(SYS_select, -1, NULL, NULL, NULL, TV(0, 1)));
	T("select negative sec", syscall(SYS_select, 0, NULL, NULL, NULL, TV(-1, 0)));
	T("select negative usec", syscall(SYS_select, 0, NULL, NULL, NULL, TV(0, -1)));
	FD_ZERO(&s);
	FD_SET(p[0], &s);
	LT_CHECK(write(p[1], "x", 1) == 1);
	T("select large usec, data", syscall(SYS_select, p[0] + 1, &s, NULL, NULL, TV(0, 1000001)));
	T("select bad pointer", syscall(SYS_select, 0, NULL, NULL, NULL, BAD));
	FD_ZERO(&s);
	FD_SET(1000, &s);
	T("select closed fd", syscall(SYS_select, 1001, &s, NULL, NULL, TV(0, 1)));
	T("select bad set", syscall(SYS_select, 8, BAD, NULL, NULL, TV(0, 1)));
	T("pselect6 bad nsec", syscall(SYS_pselect6, 0, NULL, NULL, NULL, TS(0, 1000000000), NULL));
	T("pselect6 bad pointer", syscall(SYS_pselect6, 0, NULL, NULL, NULL, BAD, NULL));
	T("pselect6 bad mask", syscall(SYS_pselect6, 0, NULL, NULL, NULL, TS(0, 1), BAD));
	T("epoll_wait zero", syscall(SYS_epoll_wait, ep, e, 1, 0));
	T("epoll_wait bad fd", syscall(SYS_epoll_wait, 1000, e, 1, 10));
	T("epoll_wait not epoll", syscall(SYS_epoll_wait, p[0], e, 1, 10));
	T("epoll_wait no events", syscall(SYS_epoll_wait, ep, e, 0, 10));
	T("epoll_wait negative events", syscall(SYS_epoll_wait, ep, e, -1, 10));
	T("epoll_wait bad pointer", syscall(SYS_epoll_wait, ep, (void *)-4096L, 1, 10));
	T("epoll_pwait bad mask size", syscall(SYS_epoll_pwait, ep, e, 1, 10, &s, 3));
	T("epoll_pwait2 zero", syscall(SYS_epoll_pwait2, ep, e, 1, TS(0, 0), NULL, 8));
	T("epoll_pwait2 bad nsec", syscall(SYS_epoll_pwait2, ep, e, 1, TS(0, 1000000000), NULL, 8));
	T("epoll_pwait2 bad pointer", syscall(SYS_epoll_pwait2, ep, e, 1, BAD, NULL, 8));
}

static void futexes(void)
{
	static uint32_t u[2] = { 1, 1 }, odd = 1;
	uint64_t w[3] = { 1, (uintptr_t)u, 2 };
	T("futex stale", syscall(SYS_futex, u, 0, 2, TS(1, 0), NULL, 0));
	T("futex zero", syscall(SYS_futex, u, 0, 1, TS(0, 0), NULL, 0));
	T("futex bad nsec", syscall(SYS_futex, u, 0, 1, TS(0, 1000000000), NULL, 0));
	T("futex negative", syscall(SYS_futex, u, 0, 1, TS(-1, 0), NULL, 0));
	T("futex bad timeout pointer", syscall(SYS_futex, u, 0, 1, BAD, NULL, 0));
	T("futex bad word", syscall(SYS_futex, BAD, 0, 1, TS(0, 1000), NULL, 0));
	T("futex misaligned", syscall(SYS_futex, (char *)u + 1, 0, 1, TS(0, 1000), NULL, 0));
	T("futex bitset zero", syscall(SYS_futex, u, 9, 1, TS(1, 0), NULL, 0));
	T("futex bitset past", syscall(SYS_futex, u, 9, 1, TS(1, 0), NULL, -1));
	T("futex bitset past real", syscall(SYS_futex, u, 9 | 256, 1, TS(1, 0), NULL, -1));
	T("futex realtime on wait", syscall(SYS_futex, u, 0 | 256, 2, TS(1, 0), NULL, 0));
	T("futex lock_pi odd word", syscall(SYS_futex, &odd, 6, 0, TS(1, 0), NULL, 0));
	T("futex unknown op", syscall(SYS_futex, u, 77, 1, TS(1, 0), NULL, 0));
	T("futex wake", syscall(SYS_futex, u, 1, 1, NULL, NULL, 0));
	T("futex_wait stale", syscall(SYS_futex_wait, u, 2UL, 0xffffffffUL, 2, TS(1, 0), 1));
	T("futex_wait bad clock", syscall(SYS_futex_wait, u, 1UL, 0xffffffffUL, 2, TS(1, 0), 9));
	T("futex_wait past", syscall(SYS_futex_wait, u, 1UL, 0xffffffffUL, 2, TS(0, 1), 1));
	T("futex_waitv past", syscall(SYS_futex_waitv, w, 1, 0, TS(0, 1), 1));
	T("futex_waitv bad clock", syscall(SYS_futex_waitv, w, 1, 0, TS(0, 1), 7));
	T("futex_waitv none", syscall(SYS_futex_waitv, w, 0, 0, TS(0, 1), 1));
	T("futex_waitv bad flags", syscall(SYS_futex_waitv, w, 1, 1, TS(0, 1), 1));
	T("futex_waitv bad timeout", syscall(SYS_futex_waitv, w, 1, 0, BAD, 1));
}

static void ipc(void)
{
	struct sembuf op = { 0, -1, 0 };
	int id = semget(IPC_PRIVATE, 1, 0600), sv[2], i = 1;
	unsigned long ctx = 0;
	struct timeval tv = { 0, 1000000 };
	char ev[64];
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	T("sigtimedwait zero", syscall(SYS_rt_sigtimedwait, &s, NULL, TS(0, 0), 8));
	T("sigtimedwait bad nsec", syscall(SYS_rt_sigtimedwait, &s, NULL, TS(0, 1000000000), 8));
	T("sigtimedwait bad timeout", syscall(SYS_rt_sigtimedwait, &s, NULL, BAD, 8));
	T("sigtimedwait bad size", syscall(SYS_rt_sigtimedwait, &s, NULL, TS(0, 1), 4));
	T("semtimedop zero", syscall(SYS_semtimedop, id, &op, 1, TS(0, 0)));
	T("semtimedop bad nsec", syscall(SYS_semtimedop, id, &op, 1, TS(0, 1000000000)));
	T("semtimedop bad timeout", syscall(SYS_semtimedop, id, &op, 1, BAD));
	T("semtimedop bad id", syscall(SYS_semtimedop, 0x7ffffff0, &op, 1, TS(0, 1)));
	semctl(id, 0, IPC_RMID);
	T("mq_timedreceive bad fd", syscall(SYS_mq_timedreceive, 1000, ev, 8, NULL, TS(1, 0)));
	T("mq_timedreceive bad nsec", syscall(SYS_mq_timedreceive, 0, ev, 8, NULL, TS(1, -1)));
	T("mq_timedsend bad fd", syscall(SYS_mq_timedsend, 1000, ev, 8, 0, TS(1, 0)));
	T("io_getevents bad ctx", syscall(SYS_io_getevents, 1UL, 1L, 1L, ev, TS(0, 1)));
	LT_CHECK(syscall(SYS_io_setup, 2, &ctx) == 0);
	T("io_getevents zero", syscall(SYS_io_getevents, ctx, 1L, 1L, ev, TS(0, 0)));
	T("io_getevents bad timeout", syscall(SYS_io_getevents, ctx, 1L, 1L, ev, BAD));
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	T("recvmmsg bad nsec", syscall(SYS_recvmmsg, sv[0], NULL, 0, 0, TS(0, 1000000000)));
	T("recvmmsg bad fd", syscall(SYS_recvmmsg, 1000, NULL, 1, 0, TS(0, 1)));
	T("recvmmsg bad timeout", syscall(SYS_recvmmsg, sv[0], NULL, 1, 0, BAD));
	T("SO_RCVTIMEO bad usec", setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
	T("SO_RCVTIMEO short", setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &i, sizeof i));
	T("SO_RCVTIMEO bad pointer", setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, BAD, sizeof tv));
	T("SO_RCVTIMEO bad fd", setsockopt(1000, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
	T("SO_RCVTIMEO not a socket", setsockopt(0, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
	tv = (struct timeval){ -1, 0 };
	T("SO_RCVTIMEO negative", setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
}

static void timers(void)
{
	struct sigevent none = { .sigev_notify = SIGEV_NONE }, odd = { .sigev_notify = 99 };
	struct itimerspec v;
	int id = -1, fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	uint64_t n;
	T("timerfd_create bad clock", timerfd_create(77, 0));
	T("timerfd_create raw", timerfd_create(CLOCK_MONOTONIC_RAW, 0));
	T("timerfd_create cpu", timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
	T("timerfd_create bad flags", timerfd_create(CLOCK_MONOTONIC, 1));
	T("timerfd_settime bad fd", timerfd_settime(1000, 0, ITS(1, 0), NULL));
	T("timerfd_settime not one", timerfd_settime(0, 0, ITS(1, 0), NULL));
	T("timerfd_settime bad nsec", timerfd_settime(fd, 0, ITS(0, 1000000000), NULL));
	T("timerfd_settime negative", timerfd_settime(fd, 0, ITS(-1, 0), NULL));
	T("timerfd_settime bad flags", timerfd_settime(fd, 8, ITS(1, 0), NULL));
	T("timerfd_settime bad pointer", syscall(SYS_timerfd_settime, fd, 0, BAD, NULL));
	T("timerfd_gettime bad fd", timerfd_gettime(1000, &v));
	T("timerfd_gettime bad pointer", syscall(SYS_timerfd_gettime, fd, BAD));
	T("timerfd read unarmed", read(fd, &n, 8));
	T("timerfd_settime past", timerfd_settime(fd, TFD_TIMER_ABSTIME, ITS(0, 1), NULL));
	T("timerfd read past", read(fd, &n, 8));
	T("timerfd read short", read(fd, &n, 4));
	T("timer_create bad clock", syscall(SYS_timer_create, 77, &none, &id));
	T("timer_create bad notify", syscall(SYS_timer_create, CLOCK_MONOTONIC, &odd, &id));
	T("timer_create bad event", syscall(SYS_timer_create, CLOCK_MONOTONIC, BAD, &id));
	T("timer_create bad id", syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, BAD));
	LT_CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &id) == 0);
	T("timer_settime bad nsec", syscall(SYS_timer_settime, id, 0, ITS(0, 1000000000), NULL));
	T("timer_settime bad id", syscall(SYS_timer_settime, 4711, 0, ITS(1, 0), NULL));
	T("timer_settime bad pointer", syscall(SYS_timer_settime, id, 0, BAD, NULL));
	T("timer_settime null", syscall(SYS_timer_settime, id, 0, NULL, NULL));
	T("timer_gettime bad id", syscall(SYS_timer_gettime, 4711, &v));
	T("timer_gettime bad pointer", syscall(SYS_timer_gettime, id, BAD));
	T("timer_getoverrun", syscall(SYS_timer_getoverrun, id));
	T("timer_getoverrun bad id", syscall(SYS_timer_getoverrun, 4711));
	T("timer_delete", syscall(SYS_timer_delete, id));
	T("timer_delete again", syscall(SYS_timer_delete, id));
	T("setitimer bad which", syscall(SYS_setitimer, 9, ITV(1, 0), NULL));
	T("setitimer bad usec", syscall(SYS_setitimer, ITIMER_REAL, ITV(0, 1000000), NULL));
	T("setitimer negative", syscall(SYS_setitimer, ITIMER_REAL, ITV(-1, 0), NULL));
	T("setitimer bad pointer", syscall(SYS_setitimer, ITIMER_REAL, BAD, NULL));
	T("setitimer null disarms", syscall(SYS_setitimer, ITIMER_REAL, NULL, NULL));
	T("getitimer bad which", syscall(SYS_getitimer, 9, &v));
	T("getitimer bad pointer", syscall(SYS_getitimer, ITIMER_REAL, BAD));
	T("alarm none", alarm(0));
}

static void clocks(void)
{
	struct timex tx = { .modes = 0 };
	struct timespec ts;
	for (int id = -1; id < 20; id++) {
		char name[48];
		snprintf(name, sizeof name, "clock_gettime raw %d", id);
		T(name, syscall(SYS_clock_gettime, id, &ts));
		snprintf(name, sizeof name, "clock_gettime libc %d", id);
		T(name, clock_gettime(id, &ts));
		snprintf(name, sizeof name, "clock_gettime raw bad pointer %d", id);
		T(name, syscall(SYS_clock_gettime, id, BAD));
		snprintf(name, sizeof name, "clock_getres raw %d", id);
		T(name, syscall(SYS_clock_getres, id, &ts));
		snprintf(name, sizeof name, "clock_getres libc %d", id);
		T(name, clock_getres(id, &ts));
		snprintf(name, sizeof name, "clock_getres null %d", id);
		T(name, syscall(SYS_clock_getres, id, NULL));
	}
	T("clock_gettime null", syscall(SYS_clock_gettime, 0, NULL));
	T("clock_gettime huge id", syscall(SYS_clock_gettime, 0x7fffffff, &ts));
	T("clock_getres bad pointer", syscall(SYS_clock_getres, 0, BAD));
	T("gettimeofday nulls", syscall(SYS_gettimeofday, NULL, NULL));
	T("gettimeofday bad pointer", syscall(SYS_gettimeofday, BAD, NULL));
	T("gettimeofday bad zone", syscall(SYS_gettimeofday, NULL, BAD));
	T("time bad pointer", syscall(SYS_time, BAD));
	T("times bad pointer", syscall(SYS_times, BAD));
	T("clock_settime bad nsec", syscall(SYS_clock_settime, CLOCK_REALTIME, TS(0, -1)));
	T("clock_settime monotonic", syscall(SYS_clock_settime, CLOCK_MONOTONIC, TS(1, 0)));
	T("clock_settime bad clock", syscall(SYS_clock_settime, 77, TS(1, 0)));
	T("clock_settime bad pointer", syscall(SYS_clock_settime, CLOCK_REALTIME, BAD));
	T("settimeofday bad usec", syscall(SYS_settimeofday, TV(0, -1), NULL));
	T("settimeofday bad pointer", syscall(SYS_settimeofday, BAD, NULL));
	T("adjtimex read", syscall(SYS_adjtimex, &tx) >= 0 ? 0 : -1);
	T("adjtimex bad pointer", syscall(SYS_adjtimex, BAD));
	T("clock_adjtime bad clock", syscall(SYS_clock_adjtime, 77, &tx));
	T("getrusage bad who", syscall(SYS_getrusage, 5, &tx));
	T("getrusage bad pointer", syscall(SYS_getrusage, RUSAGE_SELF, BAD));
	T("sysinfo bad pointer", syscall(SYS_sysinfo, BAD));
}

int main(void)
{
	sleeping();
	polling();
	futexes();
	ipc();
	timers();
	clocks();
	lt_emit("end", NULL);
	return 0;
}
