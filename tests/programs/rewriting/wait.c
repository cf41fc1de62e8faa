/*
 * wait: makes the sixteenth call at its call site of poll last a minute, once a line comes. {"ev":"ended","err":N} says how that call
 * ended.
 */
#include "../lt.h"

enum { HOT = 16 };

static void handle(int signal)
{
	(void)signal;
}

int main(void)
{
	char line[16];
	struct sigaction action = {.sa_handler = handle};
	sigaction(SIGUSR1, &action, NULL);
	printf("{\"ev\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (int i = 1; i < HOT; i++)
		poll(NULL, 0, 1);
	errno = 0;
	poll(NULL, 0, 60000);
	printf("{\"ev\":\"ended\",\"err\":%d}\n", errno);
	return 0;
}
