/*
 * idle [armed]: waits without time: pause, sigwaitinfo, read, futex without a timeout ... A change of the
 * clock must not end them. One process each: it prints "ready" and, if its wait returns, "done". When stdin
 * ends, every child gets SIGUSR1 (handled, not restarted): only then must all return, with EINTR (or the
 * signal). The program ends when all have.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static void on_signal(int sig) { (void)sig; }
static int pipefd(void)
{
	int p[2];
	LT_CHECK(pipe(p) == 0);
	return p[0];
}

static long i_pause(void) { return pause(); }
static long i_read(void) { char c; return read(pipefd(), &c, 1); }
static long i_poll(void) { return poll(&(struct pollfd){ pipefd(), POLLIN, 0 }, 1, -1); }
static long i_ppoll(void) { return ppoll(NULL, 0, NULL, NULL); }
static long i_select(void) { return select(0, NULL, NULL, NULL, NULL); }
static long i_epoll(void) { struct epoll_event e; return epoll_wait(epoll_create1(0), &e, 1, -1); }
static long i_futex(void)
{
	static uint32_t u = 1;
	return syscall(SYS_futex, &u, 0, 1, NULL, NULL, 0);
}
static long i_sigsuspend(void)
{
	sigset_t none;
	sigemptyset(&none);
	return sigsuspend(&none);
}
static long i_sigwait(void)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	return sigwaitinfo(&s, NULL);
}
static long i_recv(void)
{
	char c;
	int sv[2];
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	return recv(sv[0], &c, 1, 0);
}
static long i_semop(void)
{
	int id = semget(IPC_PRIVATE, 1, 0600), e;
	long r = semop(id, &(struct sembuf){ 0, -1, 0 }, 1);
	e = errno;
	semctl(id, 0, IPC_RMID);
	errno = e;
	return r;
}
static long i_msgrcv(void)
{
	struct { long t; char c[8]; } m;
	int id = msgget(IPC_PRIVATE, 0600), e;
	long r = msgrcv(id, &m, 8, 0, 0);
	e = errno;
	msgctl(id, IPC_RMID, NULL);
	errno = e;
	return r;
}
static long i_timerfd(void)
{
	uint64_t n;
	return read(timerfd_create(CLOCK_MONOTONIC, 0), &n, 8); /* never armed */
}
static long i_nanosleep(void)
{
	struct timespec t = { 1000000, 0 };
	return nanosleep(&t, NULL);
}
static long i_poll_long(void) { return poll(NULL, 0, 2000000000); }

static const struct { const char *name; long (*fn)(void); } idles[] = {
	{ "pause", i_pause }, { "read", i_read }, { "poll", i_poll }, { "ppoll", i_ppoll },
	{ "select", i_select }, { "epoll_wait", i_epoll }, { "futex", i_futex },
	{ "sigsuspend", i_sigsuspend }, { "sigwaitinfo", i_sigwait }, { "recv", i_recv },
	{ "semop", i_semop }, { "msgrcv", i_msgrcv }, { "timerfd", i_timerfd },
	{ "nanosleep-long", i_nanosleep }, { "poll-long", i_poll_long },
};
#define N (sizeof idles / sizeof *idles)

int main(int argc, char **argv)
{
	pid_t pids[N];
	char c;
	(void)argv;
	lt_handle(SIGUSR1, on_signal, 0);
	for (size_t i = 0; i < N; i++) {
		LT_CHECK((pids[i] = fork()) >= 0);
		if (pids[i] == 0) {
			struct itimerval far = { .it_value = { 1000000, 0 } };
			if (argc > 1) /* armed and never going off: re-arming it must not show */
				setitimer(ITIMER_REAL, &far, NULL);
			lt_emit("ready", ",\"case\":\"%s\",\"pid\":%d", idles[i].name, getpid());
			errno = 0;
			long r = idles[i].fn();
			int e = errno;
			lt_emit("done", ",\"case\":\"%s\",\"ret\":%ld,\"err\":%d", idles[i].name, r, e);
			_exit(0);
		}
	}
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
	lt_emit("release", NULL);
	for (size_t i = 0; i < N; i++)
		kill(pids[i], SIGUSR1);
	for (size_t i = 0; i < N; i++)
		waitpid(pids[i], NULL, 0);
	lt_emit("end", NULL);
	return 0;
}
