/*
 * exec_again: sets a timer descriptor that survives an exec, prints {"ev":"ready"}, and waits for a line on its
 * standard input. Then it executes this program again with the word "again": that prints {"ev":"done"}, and ends with
 * status 0.
 */
#include "../lt.h"
#include <sys/timerfd.h>

int main(int argc, char **argv)
{
	struct itimerspec far = { { 0, 0 }, { 100000, 0 } };
	char line[8], *again[] = { argv[0], "again", NULL };
	if (argc > 1) {
		lt_emit("done", ",\"pid\":%d", getpid());
		return 0;
	}
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	LT_CHECK(timer >= 0 && timerfd_settime(timer, 0, &far, NULL) == 0);
	lt_emit("ready", ",\"pid\":%d", getpid());
	LT_CHECK(read(0, line, sizeof line) > 0);
	execv("/proc/self/exe", again);
	return 1;
}
