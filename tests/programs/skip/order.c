/* order N STEP_NS: N threads sleep until absolute moments STEP_NS apart, an hour from now, and print when they woke. */
#include "../lt.h"

static struct timespec base;
static long step;

static void *sleeper(void *which)
{
	long who = (long)which;
	long long due = base.tv_nsec + (who + 1) * step;
	struct timespec at = { base.tv_sec + 3600 + due / 1000000000, due % 1000000000 }, now;

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	char line[120];
	int len = snprintf(line, sizeof(line), "{\"ev\":\"woke\",\"who\":%ld,\"late_ns\":%lld}\n", who,
			   (now.tv_sec - at.tv_sec) * 1000000000LL + now.tv_nsec - at.tv_nsec);
	return write(1, line, len) == len ? NULL : which;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 3;
	pthread_t threads[64];

	step = argc > 2 ? atol(argv[2]) : 1000000;
	clock_gettime(CLOCK_MONOTONIC, &base);
	/* Starts the last one first: the order must come from the deadlines, not from the starts. */
	for (long i = count - 1; i >= 0; i--)
		pthread_create(&threads[i], NULL, sleeper, (void *)i);
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
