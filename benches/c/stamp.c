// Runs a command and prints the time-stamp counter before its start and after its end, for
// comparison with those of programs that the command affects.
//
//     stamp COMMAND [ARGUMENT...]
//
// Prints `start ticks` and `end ticks`. Ends with the command's status.
#define _GNU_SOURCE
#include <spawn.h>
#include <sys/wait.h>

#include "bench.h"

extern char **environ;

int main(int argc, char **argv)
{
	pid_t child;
	int status;
	if (argc < 2) {
		fprintf(stderr, "usage: stamp COMMAND [ARGUMENT...]\n");
		return 2;
	}
	uint64_t start = ticks();
	if (posix_spawnp(&child, argv[1], NULL, NULL, argv + 1, environ) != 0)
		die("posix_spawnp");
	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	uint64_t end = ticks();
	printf("start %lu\nend %lu\n", start, end);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
