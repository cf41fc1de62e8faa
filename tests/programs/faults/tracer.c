/*
 * Traces a process without stopping it, for a while.
 *
 *     tracer NAME PID [MILLISECONDS]
 *
 * calls itself NAME, prints {"ev":"traces"} when it does, and lets the process go at its end: after that time, or when its standard
 * input ends.
 */
#include "../lt.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>

int main(int argc, char **argv)
{
	char byte;
	if (argc < 3)
		return 2;
	prctl(PR_SET_NAME, argv[1]);
	LT_CHECK(ptrace(PTRACE_SEIZE, atoi(argv[2]), NULL, NULL) == 0);
	lt_emit("traces", ",\"pid\":%s", argv[2]);
	if (argc > 3)
		usleep((useconds_t)atoi(argv[3]) * 1000);
	else
		while (read(0, &byte, 1) > 0)
			;
	return 0;
}
