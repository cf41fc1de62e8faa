/*
 * unwind COUNT: COUNT threads, each cancelled at a random instruction of calls whose sites are rewritten. Each must run its
 * clean-up handler: the unwinder finds its way from wherever the signal came. {"ev":"unwound","threads":1000,"cleaned":1000}
 */
#include "../lt.h"
#include <sys/stat.h>

static volatile int cleaned, running;

static void clean(void *unused) { (void)unused; cleaned++; }

static void *work(void *unused)
{
	struct stat file;
	struct timespec now;
	pthread_cleanup_push(clean, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	running = 1;
	for (;;) {
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
		stat("/", &file);
		syscall(SYS_newfstatat, AT_FDCWD, "/nowhere", &file, 0);
		syscall(SYS_getppid);
	}
	pthread_cleanup_pop(0);
	return unused;
}

int main(int count, char **words)
{
	int threads = count > 1 ? atoi(words[1]) : 1000;
	for (int i = 0; i < threads; i++) {
		pthread_t thread;
		void *result;
		running = 0;
		LT_CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
		while (!running)
			sched_yield();
		for (volatile int spin = i * 97 % 5000; spin > 0; spin--)
			;
		pthread_cancel(thread);
		LT_CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
	lt_emit("unwound", ",\"threads\":%d,\"cleaned\":%d", threads, cleaned);
	return 0;
}
