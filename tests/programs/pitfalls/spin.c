/* spin NS: no wait at all, only reads of the clock until NS have passed; raw every tenth time. Tells the last two reads. */
#include "../lt.h"

int main(int argc, char **argv)
{
	lt_ns ns = argc > 1 ? atoll(argv[1]) : LT_SEC, t0 = lt_now(CLOCK_MONOTONIC), n = 0;
	lt_ns before = 0, elapsed;
	struct timespec t;
	lt_emit("ready", ",\"case\":\"spin\"");
	while ((elapsed = lt_now(CLOCK_MONOTONIC) - t0) < ns) {
		before = elapsed;
		if (++n % 10 == 0)
			LT_CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0);
	}
	lt_emit("done", ",\"case\":\"spin\",\"before\":%lld,\"elapsed\":%lld", (long long)before, (long long)elapsed);
	return 0;
}
