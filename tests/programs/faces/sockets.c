/*
 * Times of sockets: receive timestamps of a UDP datagram over loopback, and SO_RCVTIMEO and
 * SO_SNDTIMEO read back.
 */
#include "../lt.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define TS_NS 35     /* SO_TIMESTAMPNS */
#define TS_US 29     /* SO_TIMESTAMP */
#define TS_ING 37    /* SO_TIMESTAMPING */
#define RX_SOFTWARE ((1 << 3) | (1 << 4))

/* The kernel's stamp among the control data. */
static lt_ns stamp_of(struct msghdr *m, int opt)
{
	lt_ns got = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct timespec ts;
		struct timeval tv;
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != opt)
			continue;
		if (opt == TS_US) {
			memcpy(&tv, CMSG_DATA(c), sizeof tv);
			got = tv.tv_sec * LT_SEC + tv.tv_usec * 1000LL;
		} else {
			memcpy(&ts, CMSG_DATA(c), sizeof ts);
			got = ts.tv_sec * LT_SEC + ts.tv_nsec;
		}
	}
	return got;
}

/*
 * Waits until datagrams get their stamps on arrival: the kernel switches that on in the background, and until then
 * stamps them when they are read.
 */
static void await_stamps(int fd, int opt)
{
	for (int tries = 0; tries < 1000; tries++) {
		char data, control[256];
		struct iovec v = { &data, 1 };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
				    .msg_controllen = sizeof control };
		LT_CHECK(send(fd, "x", 1, 0) == 1);
		lt_sleep(20000000);
		lt_ns before = lt_now(CLOCK_REALTIME);
		LT_CHECK(recvmsg(fd, &m, 0) == 1);
		lt_ns got = stamp_of(&m, opt);
		if (got > 0 && got < before - 10000000)
			return;
	}
}

static void stamp(const char *how, int opt, int value, int by_recvmmsg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	char data, control[256];
	struct iovec v = { &data, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof control };
	lt_ns before, after, got;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	LT_CHECK(fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0);
	LT_CHECK(getsockname(fd, (void *)&a, &len) == 0 && connect(fd, (void *)&a, len) == 0);
	LT_CHECK(setsockopt(fd, SOL_SOCKET, opt, &value, sizeof value) == 0);
	await_stamps(fd, opt);
	before = lt_now(CLOCK_REALTIME);
	LT_CHECK(send(fd, "x", 1, 0) == 1);
	after = lt_now(CLOCK_REALTIME);
	lt_sleep(20000000);
	if (by_recvmmsg) {
		struct mmsghdr mm = { .msg_hdr = m };
		LT_CHECK(recvmmsg(fd, &mm, 1, 0, NULL) == 1);
		m = mm.msg_hdr;
	} else
		LT_CHECK(recvmsg(fd, &m, 0) == 1);
	got = stamp_of(&m, opt);
	lt_emit("stamp", ",\"how\":\"%s\",\"before\":%lld,\"stamp\":%lld,\"after\":%lld", how, before,
		got, after);
	close(fd);
}

static void readback(const char *how, int opt, struct timeval set)
{
	struct timeval got = { -1, -1 };
	socklen_t len = sizeof got;
	int sv[2];
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	LT_CHECK(setsockopt(sv[0], SOL_SOCKET, opt, &set, sizeof set) == 0);
	LT_CHECK(getsockopt(sv[0], SOL_SOCKET, opt, &got, &len) == 0);
	lt_emit("sockopt", ",\"how\":\"%s\",\"set\":%.6f,\"got\":%.6f,\"len\":%u", how, lt_tv_sec(set),
		lt_tv_sec(got), len);
}

int main(void)
{
	stamp("SO_TIMESTAMP", TS_US, 1, 0);
	stamp("SO_TIMESTAMPNS", TS_NS, 1, 0);
	stamp("SO_TIMESTAMPING", TS_ING, RX_SOFTWARE, 0);
	stamp("SO_TIMESTAMPNS recvmmsg", TS_NS, 1, 1);
	readback("SO_RCVTIMEO", SO_RCVTIMEO, (struct timeval){ 12, 340000 });
	readback("SO_SNDTIMEO", SO_SNDTIMEO, (struct timeval){ 0, 500000 });
	readback("SO_RCVTIMEO none", SO_RCVTIMEO, (struct timeval){ 0, 0 });
	lt_emit("end", NULL);
	return 0;
}
