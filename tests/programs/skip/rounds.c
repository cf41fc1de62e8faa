/*
 * rounds N: two processes that, N times each, sleep, send each other a message, and read it. They sleep for different
 * times, so that they wake in the order of their deadlines. Prints the number of unexpected messages, and a number
 * computed from the order of all wake-ups.
 */
#include "../lt.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct log {
	atomic_uint len, wrong;
	unsigned char who[];
};

static void work(struct log *log, int who, unsigned rounds, int to_other, int from_other)
{
	for (unsigned i = 0; i < rounds; i++) {
		/*
		 * At least a second apart, with each process first in turn: a woken process works in real time, and
		 * a busy machine delays it.
		 */
		struct timespec nap = { who ? 2 + 2 * (i * 7 % 40) : 1 + 2 * (i % 40), 0 };
		unsigned got = ~0u;

		nanosleep(&nap, NULL);
		log->who[atomic_fetch_add(&log->len, 1)] = who;
		if (write(to_other, &i, sizeof(i)) != sizeof(i))
			atomic_fetch_add(&log->wrong, 1);
		if (read(from_other, &got, sizeof(got)) != sizeof(got) || got != i)
			atomic_fetch_add(&log->wrong, 1);
	}
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? atoi(argv[1]) : 100;
	size_t size = sizeof(struct log) + 2 * rounds;
	struct log *log = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int there[2], back[2], status;
	unsigned long long order = 14695981039346656037ull;

	if (log == MAP_FAILED || pipe(there) || pipe(back))
		return 1;
	pid_t other = fork();
	if (other == 0) {
		work(log, 1, rounds, back[1], there[0]);
		_exit(0);
	}
	work(log, 0, rounds, there[1], back[0]);
	if (waitpid(other, &status, 0) != other || status != 0)
		return 2;
	for (unsigned i = 0; i < log->len; i++)
		order = (order ^ log->who[i]) * 1099511628211ull;
	printf("{\"ev\":\"rounds\",\"steps\":%u,\"wrong\":%u,\"order\":\"%016llx\"}\n", log->len, log->wrong, order);
	return 0;
}
