/*
 * handlers: sets one of two handlers of SIGUSR1 in turn, at one call site, once a line comes. {"ev":"handled","call":N,"handler":M}
 * says that the handler that call M set has run during call N.
 */
#include "../lt.h"

enum { CALLS = 40 };

static volatile sig_atomic_t call, during, last_of[2], handled_by = -1;

static void even(int signal)
{
	(void)signal;
	during = call;
	handled_by = 0;
}

static void odd(int signal)
{
	(void)signal;
	during = call;
	handled_by = 1;
}

int main(void)
{
	char line[16];
	struct sigaction handlers[2] = {{.sa_handler = even}, {.sa_handler = odd}};
	sigaction(SIGUSR1, &handlers[1], NULL);
	printf("{\"ev\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (int i = 0; i < CALLS; i++) {
		call = i;
		sigaction(SIGUSR1, &handlers[i % 2], NULL);
		if (handled_by < 0)
			last_of[i % 2] = i;
	}
	if (handled_by < 0)
		return 2;
	printf("{\"ev\":\"handled\",\"call\":%d,\"handler\":%d}\n", (int)during, (int)last_of[handled_by]);
	return 0;
}
