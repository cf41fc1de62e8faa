// messages OWN PEER ping|echo wait|poll COUNT GO: sends timestamps to and fro between two datagram
// sockets once the file GO exists. Each process prints the number of messages that, by the
// receiver's clock, came earlier than the sender's clock at the send.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static volatile unsigned long sum;

static void work(int turns)
{
	for (int i = 0; i < turns; i++)
		sum += i;
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un it = { .sun_family = AF_UNIX };

	strncpy(it.sun_path, path, sizeof(it.sun_path) - 1);
	return it;
}

int main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	struct sockaddr_un own = address(argv[1]), peer = address(argv[2]);
	int ping = !strcmp(argv[3], "ping"), flags = strcmp(argv[4], "poll") ? 0 : MSG_DONTWAIT;
	int count = atoi(argv[5]), early = 0, s = socket(AF_UNIX, SOCK_DGRAM, 0);
	long sent, worst = 0;

	if (bind(s, (struct sockaddr *)&own, sizeof(own)))
		return 3;
	printf("{\"ev\": \"ready\"}\n");
	fflush(stdout);
	while (access(argv[2], F_OK) || access(argv[6], F_OK))
		usleep(1000);
	for (int i = 0; i < count; i++) {
		if (ping) {
			sent = now();
			if (sendto(s, &sent, sizeof(sent), 0, (struct sockaddr *)&peer, sizeof(peer)) < 0)
				return 4;
		}
		while (recv(s, &sent, sizeof(sent), flags) != sizeof(sent))
			work(500);
		long ahead = sent - now();
		early += ahead > 0;
		worst = ahead > worst ? ahead : worst;
		work(100000);
		if (!ping) {
			sent = now();
			if (sendto(s, &sent, sizeof(sent), 0, (struct sockaddr *)&peer, sizeof(peer)) < 0)
				return 5;
		}
	}
	printf("{\"ev\": \"done\", \"early\": %d, \"worst_ns\": %ld}\n", early, worst);
	fflush(stdout);
	// The clocks are their own again when the experiment is over, and it is not over before both have said this.
	pause();
	return 0;
}
