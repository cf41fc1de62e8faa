/*
 * A handler on an alternate stack of its program's, above a guard page, that takes some of it for itself and then waits.
 *
 *     alternate_stack BYTES TAKEN SECONDS
 *
 * prints {"ev":"waits"} in the handler, and {"ev":"done"} behind it.
 */
#include "../lt.h"
#include <alloca.h>
#include <sys/mman.h>

static size_t size, taken;
static double seconds;

static void handle(int sig)
{
	(void)sig;
	volatile char *room = alloca(taken);
	for (size_t at = 0; at < taken; at += 512)
		room[at] = 1;
	struct timespec t = lt_ts((lt_ns)(seconds * 1e9));
	lt_emit("waits", ",\"size\":%zu", size);
	while (nanosleep(&t, &t))
		;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size = (size_t)atol(argv[1]), taken = (size_t)atol(argv[2]), seconds = atof(argv[3]);
	char *memory = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	LT_CHECK(mprotect(memory, 4096, PROT_NONE) == 0);
	stack_t stack = { .ss_sp = memory + 4096, .ss_size = size };
	LT_CHECK(sigaltstack(&stack, NULL) == 0);
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_ONSTACK };
	LT_CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
	lt_emit("done", ",\"size\":%zu", size);
	return 0;
}
