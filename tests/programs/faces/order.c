/*
 * order TIMES COMMAND: writes two files, with a leap in between: by a sleep of two seconds if COMMAND is "", else by
 * COMMAND, which a shell runs.
 *
 *     {"ev":"file","behind":3100200}                        each second file
 *     {"ev":"order","older":0,"earlier":0,"close":0,"moved":0,"times":100}
 *
 * "behind": by how much the file is older than the reading of CLOCK_REALTIME just before it was written, ns. "older":
 * number of files older than the reading of CLOCK_REALTIME_COARSE just before. "earlier": number of files older than
 * the second that time() told just before, by libc or by a raw call. "close": number of files less than 1.9 seconds
 * younger than the file before them. "moved": number of first files that show another time after the leap.
 */
#include "../lt.h"
#include <sys/stat.h>

static lt_ns modified(int fd)
{
	struct stat seen;
	LT_CHECK(fstat(fd, &seen) == 0);
	return seen.st_mtim.tv_sec * LT_SEC + seen.st_mtim.tv_nsec;
}

static int write_new(const char *name)
{
	unlink(name);
	int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	LT_CHECK(fd >= 0);
	return fd;
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 3);
	int times = atoi(argv[1]), older = 0, earlier = 0, close_by = 0, moved = 0;
	for (int i = 0; i < times; i++) {
		int first = write_new("first");
		lt_ns before = modified(first);
		if (*argv[2])
			LT_CHECK(system(argv[2]) == 0);
		else
			lt_sleep(2 * LT_SEC);
		time_t by_call = syscall(SYS_time, NULL), by_libc = time(NULL);
		lt_ns coarse = lt_now(CLOCK_REALTIME_COARSE), fine = lt_now(CLOCK_REALTIME);
		int second = write_new("second");
		lt_ns after = modified(second);
		lt_emit("file", ",\"behind\":%lld", fine - after);
		older += after < coarse;
		earlier += after / LT_SEC < by_call || after / LT_SEC < by_libc;
		close_by += after - before < 19 * LT_SEC / 10;
		moved += modified(first) != before;
		close(first);
		close(second);
	}
	lt_emit("order", ",\"older\":%d,\"earlier\":%d,\"close\":%d,\"moved\":%d,\"times\":%d", older, earlier,
		close_by, moved, times);
	return 0;
}
