/* spin NS: no wait at all, only reads of the clock until NS have passed; raw every tenth time. */
#include "../lt.h"

int main(int argc, char **argv)
{
	lt_ns ns = argc > 1 ? atoll(argv[1]) : LT_SEC, t0 = lt_now(CLOCK_MONOTONIC), n = 0;
	struct timespec t;
	lt_emit("ready", ",\"case\":\"spin\"");
	while (lt_now(CLOCK_MONOTONIC) - t0 < ns)
		if (++n % 10 == 0)
			LT_CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0);
	lt_emit("done", ",\"case\":\"spin\",\"elapsed\":%.9f,\"expect\":%.9f",
		lt_sec(lt_now(CLOCK_MONOTONIC) - t0), lt_sec(ns));
	return 0;
}
