/* lookup NAME: looks a name up. Prints the result and the duration. */
#include "../lt.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found = NULL;
	struct timespec begun, ended;
	char text[64] = "";

	clock_gettime(CLOCK_MONOTONIC, &begun);
	int error = getaddrinfo(argc > 1 ? argv[1] : "localhost", NULL, &hints, &found);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	if (!error)
		inet_ntop(AF_INET, &((struct sockaddr_in *)found->ai_addr)->sin_addr, text, sizeof(text));
	printf("{\"ev\":\"found\",\"error\":%d,\"address\":\"%s\",\"took\":%.3f}\n", error, text,
	       ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) / 1e9);
	return 0;
}
