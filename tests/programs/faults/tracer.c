/*
 * Traces a process, for a while.
 *
 *     tracer NAME PID [MILLISECONDS|interrupt]
 *
 * calls itself NAME, prints {"ev":"traces"} when it does, and lets the process go at its end: after that time, or when its standard
 * input ends. With `interrupt` it interrupts the process, and lets it go when that has stopped.
 */
#include "../lt.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	const pid_t pid = atoi(argv[2]);
	char byte;
	prctl(PR_SET_NAME, argv[1]);
	LT_CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
	if (argc > 3 && strcmp(argv[3], "interrupt") == 0) {
		LT_CHECK(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0);
		lt_emit("traces", ",\"pid\":%d", pid);
		LT_CHECK(waitpid(pid, NULL, __WALL) == pid);
		LT_CHECK(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
	} else {
		lt_emit("traces", ",\"pid\":%d", pid);
		if (argc > 3) {
			usleep((useconds_t)atoi(argv[3]) * 1000);
			return 0;
		}
	}
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
