/*
 * wakes: two threads wake each other by eventfd from epoll_wait without a timeout, until its input ends. At any moment each of
 * them is in the call, on its way into it, or behind it.
 *
 *     {"ev":"ready"}
 *     {"ev":"wakes","calls":100000,"interrupted":0}
 */
#include "../lt.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static volatile int over;
static int events[2], sets[2];
static long calls[2], interrupted[2];

static void *wake_each_other(void *side)
{
	long own = (long)side;
	uint64_t count = 1;
	struct epoll_event event;
	while (!over) {
		LT_CHECK(write(events[!own], &count, sizeof count) == sizeof count);
		int ret = epoll_wait(sets[own], &event, 1, -1);
		calls[own]++;
		interrupted[own] += ret < 0 && errno == EINTR;
		if (ret > 0)
			LT_CHECK(read(events[own], &count, sizeof count) == sizeof count);
		count = 1;
	}
	/* The other thread may wait. */
	LT_CHECK(write(events[!own], &count, sizeof count) == sizeof count);
	return side;
}

int main(void)
{
	char line[8];
	pthread_t threads[2];
	for (long i = 0; i < 2; i++) {
		struct epoll_event event = { .events = EPOLLIN };
		events[i] = eventfd(0, 0);
		sets[i] = epoll_create1(0);
		LT_CHECK(events[i] >= 0 && sets[i] >= 0);
		LT_CHECK(epoll_ctl(sets[i], EPOLL_CTL_ADD, events[i], &event) == 0);
	}
	for (long i = 0; i < 2; i++)
		threads[i] = lt_thread(wake_each_other, (void *)i);
	lt_emit("ready", NULL);
	while (read(0, line, sizeof line) > 0)
		;
	over = 1;
	for (int i = 0; i < 2; i++)
		LT_CHECK(pthread_join(threads[i], NULL) == 0);
	lt_emit("wakes", ",\"calls\":%ld,\"interrupted\":%ld", calls[0] + calls[1],
		interrupted[0] + interrupted[1]);
	return 0;
}
