/*
 * Traces a process without stopping it, for a while.
 *
 *     tracer NAME PID MILLISECONDS
 *
 * calls itself NAME, prints {"ev":"traces"} when it does, and lets the process go at its end.
 */
#include "../lt.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	prctl(PR_SET_NAME, argv[1]);
	LT_CHECK(ptrace(PTRACE_SEIZE, atoi(argv[2]), NULL, NULL) == 0);
	lt_emit("traces", ",\"pid\":%s", argv[2]);
	usleep((useconds_t)atoi(argv[3]) * 1000);
	return 0;
}
