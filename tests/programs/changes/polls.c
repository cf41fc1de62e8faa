/*
 * polls: checks for events again and again without waiting, by poll, ppoll and select, until its input ends. A timer
 * whose signal goes to the polling thread is set far ahead. So each change of the clock sends that thread the
 * clock-change signal.
 *
 *     {"ev":"ready"}
 *     {"ev":"polls","calls":100000,"interrupted":0}
 */
#include "../lt.h"
#include <poll.h>
#include <sys/select.h>

/* So many descriptors that the kernel spends most of the time on them. */
#define MANY 900

static volatile int over;
static struct pollfd fds[MANY];

static void *poll_on(void *unused)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec far = { { 0, 0 }, { 100000000, 0 } };
	long calls = 0, interrupted = 0;
	timer_t timer;
	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	LT_CHECK(timer_settime(timer, 0, &far, NULL) == 0);
	lt_emit("ready", NULL);
	for (; !over; calls++) {
		struct timespec none = { 0, 0 };
		struct timeval nothing = { 0, 0 };
		int ret = calls % 3 == 0 ? poll(fds, MANY, 0)
			: calls % 3 == 1 ? ppoll(fds, MANY, &none, NULL)
					 : select(0, NULL, NULL, NULL, &nothing);
		interrupted += ret < 0;
	}
	lt_emit("polls", ",\"calls\":%ld,\"interrupted\":%ld", calls, interrupted);
	return unused;
}

int main(void)
{
	char line[8];
	int ends[2];
	LT_CHECK(pipe(ends) == 0);
	for (int i = 0; i < MANY; i++)
		fds[i] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	pthread_t thread = lt_thread(poll_on, NULL);
	while (read(0, line, sizeof line) > 0)
		;
	over = 1;
	return pthread_join(thread, NULL);
}
