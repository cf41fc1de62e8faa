/*
 * adjust: calls of adjtimex, one for each line of standard input:
 *
 *   MODES OFFSET FREQ MAXERROR ESTERROR STATUS CONSTANT SECONDS FRACTION TICK
 *
 * It answers each by a line: {"result":5,"errno":0,"offset":0,...}. The empty line ends it.
 */
#include "../lt.h"
#include <sys/timex.h>

int main(void)
{
	struct timex t;
	long secs, fraction;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("{\"ev\":\"ready\"}");
	for (;;) {
		long result;
		int err;

		memset(&t, 0, sizeof t);
		if (scanf("%u %ld %ld %ld %ld %d %ld %ld %ld %ld", &t.modes, &t.offset, &t.freq, &t.maxerror,
			  &t.esterror, &t.status, &t.constant, &secs, &fraction, &t.tick) != 10)
			return 0;
		t.time.tv_sec = secs;
		t.time.tv_usec = fraction;
		errno = 0;
		/* Past glibc, whose adjtimex checks singleshot offsets itself. */
		result = syscall(SYS_adjtimex, &t);
		err = errno;
		printf("{\"ev\":\"answer\",\"result\":%ld,\"errno\":%d,\"offset\":%ld,\"freq\":%ld,"
		       "\"maxerror\":%ld,\"esterror\":%ld,\"status\":%d,\"constant\":%ld,\"secs\":%ld,"
		       "\"fraction\":%ld,\"tick\":%ld,\"tai\":%d}\n",
		       result, err, t.offset, t.freq, t.maxerror, t.esterror, t.status, t.constant,
		       (long)t.time.tv_sec, (long)t.time.tv_usec, t.tick, t.tai);
	}
}
