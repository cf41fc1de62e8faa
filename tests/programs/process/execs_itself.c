/*
 * execs_itself: executes itself again and again, each time with so much to copy that it is nearly
 * always on its way. Once it has found its wall clock moved by a day it says so, and waits.
 */
#include "../lt.h"

#define WORDS 12
#define LENGTH 120000

int main(int argc, char **argv)
{
	static char word[LENGTH], begun[32];
	char *words[WORDS + 3] = {argv[0], begun};
	time_t now = time(NULL);
	time_t first = argc > 1 ? atol(argv[1]) : now;
	if (now - first > 43200) {
		lt_emit("moved", "");
		for (;;)
			pause();
	}
	if (argc == 1)
		lt_emit("start", ",\"pid\":%d", getpid());
	snprintf(begun, sizeof begun, "%ld", (long)first);
	memset(word, 'x', LENGTH - 1);
	for (int at = 0; at < WORDS; at++)
		words[at + 2] = word;
	execv("/proc/self/exe", words);
	return 1;
}
