/*
 * spin vdso|syscall|coarse LENGTH_NS COUNT: reads the clock until LENGTH_NS have passed, COUNT times. One line for each: the
 * time at the end, and how often it read.
 */
#include "../lt.h"

static const char *mode;

static int64_t now(void)
{
	struct timespec t;
	if (!strcmp(mode, "syscall")) {
		LT_CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0);
	} else if (!strcmp(mode, "coarse")) {
		LT_CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &t) == 0);
	} else {
		LT_CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	}
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 4);
	mode = argv[1];
	/* Waits until its experiment runs: for the end of its standard input. */
	char c;
	LT_CHECK(read(0, &c, 1) == 0);
	for (int i = 0; i < atoi(argv[3]); i++) {
		int64_t end = now() + atoll(argv[2]);
		long reads = 0;
		int64_t shown;
		while ((shown = now()) < end)
			reads++;
		lt_emit("spun", ",\"at\":%lld,\"reads\":%ld", (long long)shown, reads);
		struct timespec pause = { .tv_nsec = 1000000 };
		nanosleep(&pause, NULL);
	}
	return 0;
}
