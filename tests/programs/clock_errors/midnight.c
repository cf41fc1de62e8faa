/*
 * midnight SECONDS: reads the wall clock and the state of adjtimex again and again for so long. A line for each second that begins
 * and for each state: {"ev":"second","secs":1,"state":0,"tai":0}. Says how often CLOCK_MONOTONIC went back.
 */
#include "../lt.h"
#include <sys/timex.h>

int main(int argc, char **argv)
{
	struct timespec begun, now, before = { 0, 0 };
	long secs = -1;
	int state = -1, back = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		struct timex t = { 0 };
		struct timespec pause = { 0, 5000000 };
		int answered = adjtimex(&t);

		if (t.time.tv_sec != secs || answered != state)
			printf("{\"ev\":\"second\",\"secs\":%ld,\"state\":%d,\"tai\":%d}\n", (long)t.time.tv_sec,
			       answered, t.tai);
		secs = t.time.tv_sec;
		state = answered;
		clock_gettime(CLOCK_MONOTONIC, &now);
		back += now.tv_sec < before.tv_sec ||
			(now.tv_sec == before.tv_sec && now.tv_nsec < before.tv_nsec);
		before = now;
		nanosleep(&pause, NULL);
	} while (now.tv_sec - begun.tv_sec < (argc > 1 ? atoi(argv[1]) : 1));
	printf("{\"ev\":\"end\",\"back\":%d}\n", back);
	return 0;
}
