/*
 * sleeper COUNT STEP_NS: sleeps until COUNT deadlines STEP_NS apart. Prints its lateness in its own time: the least,
 * the median and the most; and its begin and end.
 */
#include "../lt.h"

static int compare(const void *one, const void *other)
{
	lt_ns a = *(const lt_ns *)one, b = *(const lt_ns *)other;
	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 3);
	int count = atoi(argv[1]);
	lt_ns step = atoll(argv[2]), *late = calloc((size_t)count, sizeof(*late));
	LT_CHECK(late && count > 0);
	lt_emit("ready", ",\"now\":%lld", lt_now(CLOCK_MONOTONIC));
	lt_ns begin = lt_now(CLOCK_MONOTONIC), due = begin, now = begin;

	for (int i = 0; i < count; i++) {
		due += step;
		struct timespec at = lt_ts(due);
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			lt_die("EINTR");
		now = lt_now(CLOCK_MONOTONIC);
		late[i] = now - due;
	}
	qsort(late, (size_t)count, sizeof(*late), compare);
	lt_emit("slept", ",\"least\":%lld,\"median\":%lld,\"most\":%lld,\"began\":%lld,\"ended\":%lld", late[0],
		late[count / 2], late[count - 1], begin, now);
	return 0;
}
