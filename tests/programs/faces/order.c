/*
 * order TIMES COMMAND: writes two files, with a leap in between: by a sleep of two seconds if COMMAND is "", else by
 * COMMAND, which a shell runs.
 *
 *     {"ev":"order","older":0,"close":0,"times":100}
 *
 * "older": number of files older than the reading of CLOCK_REALTIME_COARSE just before they were written. "close":
 * number of files less than 1.9 seconds younger than the file before them.
 */
#include "../lt.h"
#include <sys/stat.h>

static lt_ns write_new(const char *name)
{
	struct stat seen;
	unlink(name);
	int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	LT_CHECK(fd >= 0 && fstat(fd, &seen) == 0);
	close(fd);
	return seen.st_mtim.tv_sec * LT_SEC + seen.st_mtim.tv_nsec;
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 3);
	int times = atoi(argv[1]), older = 0, close = 0;
	for (int i = 0; i < times; i++) {
		lt_ns first = write_new("first");
		if (*argv[2])
			LT_CHECK(system(argv[2]) == 0);
		else
			lt_sleep(2 * LT_SEC);
		lt_ns before = lt_now(CLOCK_REALTIME_COARSE), second = write_new("second");
		older += second < before;
		close += second - first < 19 * LT_SEC / 10;
	}
	lt_emit("order", ",\"older\":%d,\"close\":%d,\"times\":%d", older, close, times);
	return 0;
}
