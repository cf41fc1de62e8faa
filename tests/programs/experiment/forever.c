/*
 * forever BUSY_NS: threads that wait for an event without a timeout, each in a call of its own. Another thread computes
 * for BUSY_NS of its own time; then each gets its event. One line for each: the result of its call.
 */
#include "../lt.h"
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>

struct waiter {
	const char *name;
	long (*wait)(struct waiter *);
	int fd, epoll, word, sem, pair[2];
};

static atomic_int begun;

static long by_poll(struct waiter *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	return poll(&p, 1, -1);
}

static long by_ppoll(struct waiter *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	return ppoll(&p, 1, NULL, NULL);
}

static long by_select(struct waiter *w)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(w->fd, &set);
	return select(w->fd + 1, &set, NULL, NULL, NULL);
}

static long by_epoll(struct waiter *w)
{
	struct epoll_event event;
	return epoll_wait(w->epoll, &event, 1, -1);
}

/* Where the word is 1 before the thread has come to wait, its event is there, as it is for the others. */
static long by_futex(struct waiter *w)
{
	long ret = syscall(SYS_futex, &w->word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return ret < 0 && errno == EAGAIN && w->word == 1 ? 0 : ret;
}

static long by_read(struct waiter *w)
{
	uint64_t value;
	return read(w->fd, &value, sizeof(value));
}

static long by_recv(struct waiter *w)
{
	char c;
	return recv(w->pair[0], &c, 1, 0);
}

static long by_semop(struct waiter *w)
{
	struct sembuf down = { .sem_op = -1 };
	return semop(w->sem, &down, 1);
}

static long by_sigwait(struct waiter *w)
{
	(void)w;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigwaitinfo(&set, NULL);
}

static struct waiter waiters[] = {
	{ .name = "poll", .wait = by_poll },     { .name = "ppoll", .wait = by_ppoll },
	{ .name = "select", .wait = by_select }, { .name = "epoll_wait", .wait = by_epoll },
	{ .name = "futex", .wait = by_futex },   { .name = "read", .wait = by_read },
	{ .name = "recv", .wait = by_recv },     { .name = "semop", .wait = by_semop },
	{ .name = "sigwaitinfo", .wait = by_sigwait },
};

#define COUNT (sizeof(waiters) / sizeof(waiters[0]))

static void *run(void *arg)
{
	struct waiter *w = arg;
	atomic_fetch_add(&begun, 1);
	errno = 0;
	long ret = w->wait(w);
	lt_emit("done", ",\"case\":\"%s\",\"ret\":%ld,\"err\":%d", w->name, ret, ret < 0 ? errno : 0);
	return NULL;
}

static void wake(struct waiter *w)
{
	uint64_t one = 1;
	struct sembuf up = { .sem_op = 1 };
	w->word = 1;
	syscall(SYS_futex, &w->word, FUTEX_WAKE, 1, NULL, NULL, 0);
	LT_CHECK(write(w->fd, &one, sizeof(one)) == sizeof(one));
	LT_CHECK(send(w->pair[1], "x", 1, 0) == 1);
	LT_CHECK(semop(w->sem, &up, 1) == 0);
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 2);
	pthread_t threads[COUNT];
	lt_block(SIGUSR1);
	for (size_t i = 0; i < COUNT; i++) {
		struct waiter *w = &waiters[i];
		w->fd = eventfd(0, 0);
		w->epoll = epoll_create1(0);
		w->sem = semget(IPC_PRIVATE, 1, 0600);
		struct epoll_event event = { .events = EPOLLIN };
		LT_CHECK(w->fd >= 0 && w->sem >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->fd, &event) == 0);
		LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, w->pair) == 0);
		threads[i] = lt_thread(run, w);
	}
	while (atomic_load(&begun) < (int)COUNT)
		sched_yield();
	lt_emit("ready", ",\"waiters\":%zu", COUNT);
	for (lt_ns end = lt_now(CLOCK_MONOTONIC) + atoll(argv[1]); lt_now(CLOCK_MONOTONIC) < end;)
		;
	for (size_t i = 0; i < COUNT; i++)
		wake(&waiters[i]);
	LT_CHECK(kill(getpid(), SIGUSR1) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		pthread_join(threads[i], NULL);
		semctl(waiters[i].sem, 0, IPC_RMID);
	}
	lt_emit("end", ",\"waiters\":%zu", COUNT);
	return 0;
}
