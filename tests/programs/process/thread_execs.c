/*
 * thread_execs N: after SIGUSR1 a thread that is not the first one executes the program again, with
 * N + 1; it tries until it can. Says the year at each start.
 */
#include "../lt.h"

static char next[16];
static volatile sig_atomic_t told;
static void on_signal(int sig) { (void)sig; told = 1; }

static void *execute(void *self)
{
	char *const words[] = {self, next, NULL};
	for (;;) {
		usleep(1000);
		if (told)
			execv("/proc/self/exe", words);
	}
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0;
	time_t now = time(NULL);
	pthread_t thread;
	lt_handle(SIGUSR1, on_signal, 0);
	snprintf(next, sizeof next, "%d", n + 1);
	lt_emit("start", ",\"n\":%d,\"year\":%d", n, gmtime(&now)->tm_year + 1900);
	pthread_create(&thread, NULL, execute, argv[0]);
	for (;;)
		pause();
}
