/* storm THREADS N PROGRAM ARG...: each thread posix_spawns PROGRAM N times; prints the failures. */
#include "../lt.h"
#include <spawn.h>

extern char **environ;
static char **args;
static int n, failures;

static void *run(void *p)
{
	(void)p;
	for (int i = 0; i < n; i++) {
		int status = -1, e;
		pid_t pid;
		e = posix_spawn(&pid, args[0], NULL, NULL, args, environ);
		if (!e)
			while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
				;
		if (e || status)
			__atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[64];
	int threads = argc > 3 ? atoi(argv[1]) : 0;
	if (threads < 1 || threads > 64)
		return 96;
	n = atoi(argv[2]);
	args = argv + 3;
	for (int i = 0; i < threads; i++)
		t[i] = lt_thread(run, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	lt_emit("storm", ",\"execs\":%d,\"failures\":%d", threads * n, failures);
	return 0;
}
