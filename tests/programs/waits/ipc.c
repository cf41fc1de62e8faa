/* rt_sigtimedwait, SysV semaphores, POSIX message queues, recvmmsg, AIO, socket timeouts. */
#include "../lt.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <arpa/inet.h>

static void do_sigtimedwait(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	LT_READY(lt);
	LT_CALL(lt, sigtimedwait(&s, NULL, &t));
	lt_done(lt, NULL);
}

/* A signal comes half way: its number and siginfo are delivered. */
static void do_sigtimedwait_signal(struct lt *lt)
{
	struct timespec t = lt_ts(lt->nominal);
	pid_t me = getpid(), child;
	siginfo_t si;
	sigset_t s;
	memset(&si, 0, sizeof si);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	lt->expect = lt->nominal / 2;
	LT_READY(lt);
	if ((child = fork()) == 0) {
		lt_sleep(lt->expect);
		sigqueue(me, SIGUSR1, (union sigval){ .sival_int = 42 });
		_exit(0);
	}
	LT_CALL(lt, sigtimedwait(&s, &si, &t));
	waitpid(child, NULL, 0);
	lt_done(lt, ",\"same_value\":%d,\"same_code\":%d,\"same_sender\":%d", si.si_value.sival_int,
		si.si_code, si.si_pid == child);
}

static void do_semtimedop(struct lt *lt)
{
	int id = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf op = { 0, -1, 0 };
	struct timespec t = lt_ts(lt->nominal);
	LT_CHECK(id >= 0);
	LT_READY(lt);
	LT_CALL(lt, semtimedop(id, &op, 1, &t));
	semctl(id, 0, IPC_RMID);
	lt_done(lt, NULL);
}

static mqd_t queue(struct lt *lt)
{
	struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	char name[64];
	mqd_t q;
	snprintf(name, sizeof name, "/lt-%d-%p", getpid(), (void *)lt);
	q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &a);
	LT_CHECK(q != (mqd_t)-1);
	mq_unlink(name);
	return q;
}

static void do_mq_receive(struct lt *lt)
{
	mqd_t q = queue(lt);
	struct timespec t;
	char buf[8];
	LT_READY(lt);
	t = lt_deadline(lt, CLOCK_REALTIME);
	LT_CALL(lt, mq_timedreceive(q, buf, sizeof buf, NULL, &t));
	lt_done(lt, NULL);
}

static void do_mq_send(struct lt *lt)
{
	mqd_t q = queue(lt);
	struct timespec t;
	LT_CHECK(mq_send(q, "x", 1, 0) == 0);
	LT_READY(lt);
	t = lt_deadline(lt, CLOCK_REALTIME);
	LT_CALL(lt, mq_timedsend(q, "x", 1, 0, &t));
	lt_done(lt, NULL);
}

static void pair(int sv[2], int type) { LT_CHECK(socketpair(AF_UNIX, type, 0, sv) == 0); }

struct drip { int fd; lt_ns every; };

static void *drip(void *arg)
{
	struct drip *d = arg;
	for (;;) {
		lt_sleep(d->every);
		if (send(d->fd, "x", 1, MSG_NOSIGNAL) < 0)
			return NULL;
	}
}

/* The kernel looks at recvmmsg's timeout only after each datagram: one comes every twentieth. */
static void do_recvmmsg(struct lt *lt)
{
	enum { N = 64 };
	static char bufs[N][4];
	struct mmsghdr m[N];
	struct iovec v[N];
	struct timespec t = lt_ts(lt->nominal);
	struct drip *d = malloc(sizeof *d);
	int sv[2];
	pair(sv, SOCK_DGRAM);
	memset(m, 0, sizeof m);
	for (int i = 0; i < N; i++) {
		v[i] = (struct iovec){ bufs[i], 4 };
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	*d = (struct drip){ sv[1], lt->nominal / 20 };
	LT_READY(lt);
	lt_thread(drip, d);
	LT_CALL(lt, syscall(SYS_recvmmsg, sv[0], m, N, 0, &t));
	/* the count depends on the drips' lateness: it is a field of its own, ret only its sign */
	long got = lt->ret;
	lt->ret = got > 0 ? 1 : got;
	close(sv[0]);
	lt_done(lt, ",\"messages\":%ld,\"remaining\":%.9f", got, lt_ts_sec(t));
}

static void do_io_getevents(struct lt *lt)
{
	unsigned long ctx = 0;
	char ev[64];
	struct timespec t = lt_ts(lt->nominal);
	LT_CHECK(syscall(SYS_io_setup, 4, &ctx) == 0);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_io_getevents, ctx, 1L, 1L, ev, &t));
	lt_done(lt, NULL);
}

static void do_io_pgetevents(struct lt *lt)
{
	unsigned long ctx = 0;
	char ev[64];
	struct timespec t = lt_ts(lt->nominal);
	LT_CHECK(syscall(SYS_io_setup, 4, &ctx) == 0);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_io_pgetevents, ctx, 1L, 1L, ev, &t, NULL));
	lt_done(lt, NULL);
}

static void timeo(struct lt *lt, int fd, int opt)
{
	struct timeval t = lt_tv(lt->nominal);
	LT_CHECK(setsockopt(fd, SOL_SOCKET, opt, &t, sizeof t) == 0);
}

static void do_rcvtimeo(struct lt *lt)
{
	char c;
	int sv[2];
	pair(sv, SOCK_STREAM);
	timeo(lt, sv[0], SO_RCVTIMEO);
	LT_READY(lt);
	LT_CALL(lt, recv(sv[0], &c, 1, 0));
	lt_done(lt, NULL);
}

static void do_rcvtimeo_read(struct lt *lt)
{
	char c;
	int sv[2];
	pair(sv, SOCK_STREAM);
	timeo(lt, sv[0], SO_RCVTIMEO);
	LT_READY(lt);
	LT_CALL(lt, read(sv[0], &c, 1));
	lt_done(lt, NULL);
}

static void do_rcvtimeo_recvmsg(struct lt *lt)
{
	char c;
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	LT_CHECK(fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0);
	timeo(lt, fd, SO_RCVTIMEO);
	LT_READY(lt);
	LT_CALL(lt, recvmsg(fd, &m, 0));
	lt_done(lt, NULL);
}

static void do_rcvtimeo_accept(struct lt *lt)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	LT_CHECK(fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0 && listen(fd, 1) == 0);
	timeo(lt, fd, SO_RCVTIMEO);
	LT_READY(lt);
	LT_CALL(lt, accept(fd, NULL, NULL));
	lt_done(lt, NULL);
}

static void do_sndtimeo(struct lt *lt)
{
	static char big[65536];
	int sv[2];
	pair(sv, SOCK_STREAM);
	while (send(sv[0], big, sizeof big, MSG_DONTWAIT) > 0)
		;
	timeo(lt, sv[0], SO_SNDTIMEO);
	LT_READY(lt);
	LT_CALL(lt, send(sv[0], big, 1, MSG_NOSIGNAL));
	lt_done(lt, NULL);
}

/* Written by another process half way: the data is read, no timeout. */
static void do_rcvtimeo_data(struct lt *lt)
{
	struct drip *d = malloc(sizeof *d);
	char c;
	int sv[2];
	pair(sv, SOCK_STREAM);
	timeo(lt, sv[0], SO_RCVTIMEO);
	lt->expect = lt->nominal / 2;
	*d = (struct drip){ sv[1], lt->expect };
	LT_READY(lt);
	lt_thread(drip, d);
	LT_CALL(lt, recv(sv[0], &c, 1, 0));
	lt_done(lt, NULL);
}

int main(int argc, char **argv)
{
	static const struct lt_case cases[] = {
		{ "rt_sigtimedwait", do_sigtimedwait, 1 },
		{ "rt_sigtimedwait-signal", do_sigtimedwait_signal, 0 },
		{ "semtimedop", do_semtimedop, 1 },
		{ "mq_timedreceive", do_mq_receive, 1 },
		{ "mq_timedsend", do_mq_send, 1 },
		{ "recvmmsg", do_recvmmsg, 0 },
		{ "io_getevents", do_io_getevents, 1 },
		{ "io_pgetevents", do_io_pgetevents, 1 },
		{ "rcvtimeo-recv", do_rcvtimeo, 1 },
		{ "rcvtimeo-read", do_rcvtimeo_read, 1 },
		{ "rcvtimeo-recvmsg", do_rcvtimeo_recvmsg, 1 },
		{ "rcvtimeo-accept", do_rcvtimeo_accept, 1 },
		{ "rcvtimeo-data", do_rcvtimeo_data, 1 },
		{ "sndtimeo-send", do_sndtimeo, 1 },
		{ NULL, NULL, 0 },
	};
	return lt_main(argc, argv, cases);
}
