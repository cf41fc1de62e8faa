// Measures the start of a program.
//
//     exec COUNT PROGRAM
//
// Starts PROGRAM COUNT times by posix_spawn and waits for it each time.
// Prints `spawn ticks`, the median.
#include <spawn.h>
#include <sys/wait.h>

#include "bench.h"

extern char **environ;

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[1]) : 0;
	if (count < 1) {
		fprintf(stderr, "usage: exec COUNT PROGRAM\n");
		return 2;
	}
	double *each = calloc((size_t)count, sizeof *each);
	char *arguments[] = {argv[2], NULL};
	for (int i = 0; i < count; i++) {
		pid_t child;
		int status;
		uint64_t start = ticks();
		if (posix_spawn(&child, argv[2], NULL, NULL, arguments, environ) != 0)
			die("posix_spawn");
		if (waitpid(child, &status, 0) != child || status != 0)
			die("waitpid");
		each[i] = (double)(ticks() - start);
	}
	printf("spawn %.0f\n", quantile(each, (size_t)count, 0.5));
	return 0;
}
