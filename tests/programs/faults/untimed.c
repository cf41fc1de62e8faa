/*
 * untimed: waits without a timeout, each in a process of its own, until standard input ends. Nothing that they wait for comes.
 *
 *     {"ev":"ready","case":"pause","pid":1,"tid":1}
 *     {"ev":"done","case":"pause","ret":-1,"err":4,...}        only if the call returns
 */
#include "../lt.h"
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int pipe_end;

static long by_pause(void) { return pause(); }
static long by_read(void) { char c; return read(pipe_end, &c, 1); }
static long by_select(void)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(pipe_end, &set);
	return select(pipe_end + 1, &set, NULL, NULL, NULL);
}
static long by_pselect(void) { return pselect(0, NULL, NULL, NULL, NULL, NULL); }
static long by_poll(void)
{
	struct pollfd p = { .fd = pipe_end, .events = POLLIN };
	return poll(&p, 1, -1);
}
static long by_ppoll(void)
{
	struct pollfd p = { .fd = pipe_end, .events = POLLIN };
	return ppoll(&p, 1, NULL, NULL);
}
static long by_epoll(void)
{
	struct epoll_event event;
	return epoll_wait(epoll_create1(0), &event, 1, -1);
}
static long by_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t none;
	sigemptyset(&none);
	return epoll_pwait(epoll_create1(0), &event, 1, -1, &none);
}
static long by_futex(void)
{
	static int word;
	return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
}
static long by_semop(void)
{
	struct sembuf take = { .sem_op = -1 };
	int id = semget(IPC_PRIVATE, 1, 0600);
	long ret = semop(id, &take, 1);
	semctl(id, 0, IPC_RMID);
	return ret;
}
static long by_sigsuspend(void)
{
	sigset_t none;
	sigemptyset(&none);
	return sigsuspend(&none);
}
static long by_sigwaitinfo(void)
{
	lt_block(SIGUSR1);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigwaitinfo(&set, NULL);
}
static long by_flock(void) { return flock(open("/proc/self/exe", O_RDONLY), LOCK_EX); }
static long by_recv(void)
{
	int pair[2];
	char c;
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	return recv(pair[0], &c, 1, 0);
}
static long by_io_getevents(void)
{
	aio_context_t context = 0;
	struct io_event event;
	LT_CHECK(syscall(SYS_io_setup, 1, &context) == 0);
	return syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}
static long by_wait(void)
{
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return waitpid(child, NULL, 0);
}

static const struct {
	const char *name;
	long (*wait)(void);
} CASES[] = {
	{ "pause", by_pause }, { "read", by_read }, { "select", by_select }, { "pselect", by_pselect },
	{ "poll", by_poll }, { "ppoll", by_ppoll }, { "epoll_wait", by_epoll },
	{ "epoll_pwait", by_epoll_pwait }, { "futex", by_futex }, { "semop", by_semop },
	{ "sigsuspend", by_sigsuspend }, { "sigwaitinfo", by_sigwaitinfo }, { "flock", by_flock },
	{ "recv", by_recv }, { "io_getevents", by_io_getevents }, { "wait", by_wait },
};

int main(void)
{
	int ends[2];
	char c;
	LT_CHECK(pipe(ends) == 0);
	pipe_end = ends[0];
	LT_CHECK(flock(open("/proc/self/exe", O_RDONLY), LOCK_EX) == 0);
	for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
		if (fork() != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		lt_emit("ready", ",\"case\":\"%s\"", CASES[i].name);
		errno = 0;
		long ret = CASES[i].wait();
		lt_emit("done", ",\"case\":\"%s\",\"ret\":%ld,\"err\":%d", CASES[i].name, ret, errno);
		_exit(0);
	}
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
