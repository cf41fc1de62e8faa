// Sends requests and reads the replies, one at a time or several, by the given calls, and prints
// the times.
//
//   probe PROTOCOL ADDRESS [send CALL] [receive CALL] [count N] [size N] [first N] [id N] [burst N] [port N] [pause US]
//   probe serve PROTOCOL PORT
//
// PROTOCOL: raw, ping (a datagram socket of ICMP), udp, tcp. Each request holds its number, from `first` on, in its first four
// bytes, big-endian. `size` bytes of it; `burst` of them are sent before their replies are read. For every reply a line of
// JSON: its number, and CLOCK_MONOTONIC in ns around both calls.

#include "../lt.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { MAX_SIZE = 65000, BURST = 64 };

static int protocol, family, sock, count = 10, size = 56, id = 0x4c54, burst = 1, pause_us;
static unsigned first = 1;
static const char *send_call = "sendto", *receive_call = "recvfrom", *port = "7007";
static uint64_t sent_before[BURST], sent_after[BURST];
static unsigned char out[BURST][MAX_SIZE + 64], in[BURST][MAX_SIZE + 128];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint16_t checksum(const unsigned char *bytes, int length)
{
	uint32_t sum = 0;

	for (int i = 0; i + 1 < length; i += 2)
		sum += bytes[i] << 8 | bytes[i + 1];
	if (length & 1)
		sum += bytes[length - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static int is_icmp(void)
{
	return protocol == 'r' || protocol == 'p';
}

static int make(unsigned char *at, unsigned number)
{
	int header = is_icmp() ? 8 : 0;
	uint32_t big = htonl(number);

	memset(at, 0, header + size);
	memcpy(at + header, &big, size < 4 ? size : 4);
	for (int i = 4; i < size; i++)
		at[header + i] = number + i;
	if (header) {
		at[0] = family == AF_INET6 ? 128 : 8;
		at[4] = id >> 8, at[5] = id;
		at[6] = number >> 8, at[7] = number;
		if (family == AF_INET) {
			uint16_t sum = checksum(at, header + size);
			memcpy(at + 2, &sum, 2);
		}
	}
	return header + size;
}

static void send_all(unsigned number, int n)
{
	struct mmsghdr messages[BURST] = {0};
	struct iovec parts[BURST];

	for (int i = 0; i < n; i++) {
		parts[i].iov_base = out[i];
		parts[i].iov_len = make(out[i], number + i);
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	if (!strcmp(send_call, "sendmmsg")) {
		uint64_t before = now();
		if (sendmmsg(sock, messages, n, 0) != n)
			die("sendmmsg");
		for (int i = 0; i < n; i++)
			sent_before[i] = before, sent_after[i] = now();
		return;
	}
	for (int i = 0; i < n; i++) {
		ssize_t done, length = parts[i].iov_len;

		sent_before[i] = now();
		if (!strcmp(send_call, "write"))
			done = write(sock, out[i], length);
		else if (!strcmp(send_call, "writev"))
			done = writev(sock, &parts[i], 1);
		else if (!strcmp(send_call, "send"))
			done = send(sock, out[i], length, 0);
		else if (!strcmp(send_call, "sendmsg"))
			done = sendmsg(sock, &messages[i].msg_hdr, 0);
		else
			done = sendto(sock, out[i], length, 0, NULL, 0);
		sent_after[i] = now();
		if (done != length)
			die(send_call);
	}
}

// Returns the offset of the number in the data read.
static int payload(const unsigned char *bytes)
{
	if (protocol == 'r' && family == AF_INET)
		return (bytes[0] & 15) * 4 + 8;
	return is_icmp() ? 8 : 0;
}

static int is_reply(const unsigned char *bytes, ssize_t length)
{
	const unsigned char *icmp = bytes + payload(bytes) - 8;

	if (length < payload(bytes) + (size < 4 ? size : 4))
		return 0;
	if (protocol != 'r')
		return 1;
	return icmp[0] == (family == AF_INET6 ? 129 : 0) && (icmp[4] << 8 | icmp[5]) == id;
}

static int tell(const unsigned char *bytes, ssize_t length, unsigned number, int n, uint64_t before, uint64_t after)
{
	uint32_t big = 0;
	unsigned got;

	if (!is_reply(bytes, length))
		return 0;
	memcpy(&big, bytes + payload(bytes), size < 4 ? size : 4);
	got = ntohl(big);
	if (got - number >= (unsigned)n)
		return 0;
	printf("{\"number\": %u, \"sent_before\": %llu, \"sent_after\": %llu, \"read_before\": %llu, \"read_after\": %llu}\n",
	       got, (unsigned long long)sent_before[got - number], (unsigned long long)sent_after[got - number],
	       (unsigned long long)before, (unsigned long long)after);
	return 1;
}

static ssize_t receive_one(unsigned char *at, size_t room)
{
	struct iovec part = {at, room};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (!strcmp(receive_call, "read"))
		return read(sock, at, room);
	if (!strcmp(receive_call, "readv"))
		return readv(sock, &part, 1);
	if (!strcmp(receive_call, "recv"))
		return recv(sock, at, room, 0);
	if (!strcmp(receive_call, "recvmsg"))
		return recvmsg(sock, &message, 0);
	return recvfrom(sock, at, room, 0, NULL, NULL);
}

// Reads replies until all have come or none comes for a second.
static void receive_all(unsigned number, int n)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	int left = n;

	while (left > 0 && poll(&ready, 1, 1000) > 0) {
		uint64_t before = now(), after;

		if (!strcmp(receive_call, "recvmmsg")) {
			struct mmsghdr messages[BURST] = {0};
			struct iovec parts[BURST];
			int got;

			for (int i = 0; i < BURST; i++) {
				parts[i] = (struct iovec){in[i], sizeof(in[i])};
				messages[i].msg_hdr.msg_iov = &parts[i];
				messages[i].msg_hdr.msg_iovlen = 1;
			}
			got = recvmmsg(sock, messages, BURST, MSG_DONTWAIT, NULL);
			after = now();
			for (int i = 0; i < got; i++)
				left -= tell(in[i], messages[i].msg_len, number, n, before, after);
		} else {
			ssize_t length = receive_one(in[0], protocol == 't' ? (size_t)size : sizeof(in[0]));

			after = now();
			if (length <= 0)
				die(receive_call);
			left -= tell(in[0], length, number, n, before, after);
		}
	}
}

static int kind(const char *name)
{
	protocol = name[0];
	if (protocol == 'u')
		return SOCK_DGRAM;
	if (protocol == 't')
		return SOCK_STREAM;
	return protocol == 'r' ? SOCK_RAW : SOCK_DGRAM;
}

static void open_socket(const char *name, const char *address)
{
	int on = 1;
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found;
	int type = kind(name);

	hints.ai_socktype = is_icmp() ? SOCK_RAW : type;
	if (getaddrinfo(address, is_icmp() ? NULL : port, &hints, &found))
		die(address);
	family = found->ai_family;
	sock = socket(family, type, is_icmp() ? (family == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP) : 0);
	if (sock < 0 || connect(sock, found->ai_addr, found->ai_addrlen))
		die("connect");
	if (protocol == 't')
		setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	freeaddrinfo(found);
}

static int serve(const char *name, const char *at)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(at))};
	int type = kind(name), one, on = 1;

	sock = socket(AF_INET6, type, 0);
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sock < 0 || bind(sock, (struct sockaddr *)&any, sizeof(any)))
		die("bind");
	if (protocol == 't')
		listen(sock, 5);
	puts("{\"event\": \"ready\"}");
	fflush(stdout);
	while (protocol == 'u') {
		socklen_t length = sizeof(any);
		ssize_t got = recvfrom(sock, in[0], sizeof(in[0]), 0, (struct sockaddr *)&any, &length);

		if (got >= 0)
			sendto(sock, in[0], got, 0, (struct sockaddr *)&any, length);
	}
	while ((one = accept(sock, NULL, NULL)) >= 0) {
		ssize_t got;

		setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		while ((got = read(one, in[0], sizeof(in[0]))) > 0)
			if (write(one, in[0], got) < 0)
				break;
		close(one);
	}
	return 0;
}

static void options(int argc, char **argv)
{
	for (int i = 3; i + 1 < argc; i += 2) {
		const char *value = argv[i + 1];

		if (!strcmp(argv[i], "send"))
			send_call = value;
		else if (!strcmp(argv[i], "receive"))
			receive_call = value;
		else if (!strcmp(argv[i], "port"))
			port = value;
		else if (!strcmp(argv[i], "count"))
			count = atoi(value);
		else if (!strcmp(argv[i], "size"))
			size = atoi(value);
		else if (!strcmp(argv[i], "first"))
			first = strtoul(value, NULL, 0);
		else if (!strcmp(argv[i], "id"))
			id = atoi(value);
		else if (!strcmp(argv[i], "burst"))
			burst = atoi(value);
		else if (!strcmp(argv[i], "pause"))
			pause_us = atoi(value);
	}
	if (size > MAX_SIZE || burst > BURST || burst < 1)
		exit(2);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], argc > 3 ? argv[3] : port);
	options(argc, argv);
	open_socket(argv[1], argv[2]);
	for (int done = 0; done < count; done += burst) {
		int n = count - done < burst ? count - done : burst;

		send_all(first + done, n);
		receive_all(first + done, n);
		if (pause_us)
			usleep(pause_us);
	}
	return 0;
}
