/*
 * neighbours: two call sites of one page, each used by a thread of its own, and by a child of the second. Orders come by lines:
 *
 *     first    the first thread calls at its site until that is hot
 *     second   the second thread does, at its own
 *     fork     the second thread forks, and the child calls at both
 *
 * {"ev":"done","who":1} after an order of the first, 2 of the second, 3 of a child that ended with status 0.
 */
#include "../lt.h"

enum { CALLS = 40 };

/* Each site lies in a block of 16 bytes: the first begins a page, the second is in the same. */
#define SITE(name, section_alignment)                                                                                  \
	static __attribute__((noinline, section(".text.neighbours"), aligned(section_alignment))) long name(           \
		struct timespec *now)                                                                                  \
	{                                                                                                              \
		long result;                                                                                           \
		asm volatile(".p2align 4\n\tmov $228, %%eax\n\tsyscall"                                               \
			     : "=a"(result)                                                                            \
			     : "D"(CLOCK_MONOTONIC), "S"(now)                                                          \
			     : "rcx", "r11", "memory");                                                                \
		return result;                                                                                         \
	}

SITE(first, 4096)
SITE(second, 64)

static void call_often(long (*site)(struct timespec *))
{
	struct timespec now;
	for (int i = 0; i < CALLS; i++)
		if (site(&now) != 0)
			_exit(1);
}

static int orders[2][2];

static void done(int who)
{
	printf("{\"ev\":\"done\",\"who\":%d}\n", who);
	fflush(stdout);
}

static void *serve(void *which)
{
	int me = which != NULL;
	char order;
	while (read(orders[me][0], &order, 1) == 1) {
		if (order != 'k') {
			call_often(me ? second : first);
			done(me + 1);
			continue;
		}
		int status = -1;
		pid_t child = fork();
		if (child == 0) {
			call_often(second);
			call_often(first);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status != 0)
			_exit(2);
		done(3);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	char line[16];
	for (int i = 0; i < 2; i++) {
		if (pipe(orders[i]) != 0)
			return 1;
		pthread_create(&threads[i], NULL, serve, i ? (void *)1 : NULL);
	}
	printf("{\"ev\":\"ready\"}\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		if (write(orders[line[1] != 'i'][1], line[1] == 'o' ? "k" : "c", 1) != 1)
			return 1;
	return 0;
}
