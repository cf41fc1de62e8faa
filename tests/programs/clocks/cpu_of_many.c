/*
 * cpu_of_many N: N threads, the second half with ids that are 79 and more behind those of the first, live at once. Each computes for
 * 2 ms of its CPU clock and reads it, and once more after a line of input. "back" is the number of threads whose clock went back.
 *
 *     {"ev":"ready","threads":70}
 *     {"ev":"read","threads":70,"back":0}
 */
#include "../lt.h"

#define MOST 78
#define APART 79

static int n, ready, back;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_ready = PTHREAD_COND_INITIALIZER, again = PTHREAD_COND_INITIALIZER;
static int may_read;

static void *read_twice(void *unused)
{
	while (lt_now(CLOCK_THREAD_CPUTIME_ID) < 2 * LT_SEC / 1000)
		;
	lt_ns first = lt_now(CLOCK_THREAD_CPUTIME_ID);
	pthread_mutex_lock(&mutex);
	ready++;
	pthread_cond_signal(&all_ready);
	while (!may_read)
		pthread_cond_wait(&again, &mutex);
	back += lt_now(CLOCK_THREAD_CPUTIME_ID) < first;
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	char line[8];
	n = argc > 1 ? atoi(argv[1]) : 1;
	LT_CHECK(n <= MOST);
	lt_threads_apart(threads, n, APART, read_twice);
	pthread_mutex_lock(&mutex);
	while (ready < n)
		pthread_cond_wait(&all_ready, &mutex);
	pthread_mutex_unlock(&mutex);
	lt_emit("ready", ",\"threads\":%d", n);
	LT_CHECK(read(0, line, sizeof line) >= 0);
	pthread_mutex_lock(&mutex);
	may_read = 1;
	pthread_cond_broadcast(&again);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < n; i++)
		LT_CHECK(pthread_join(threads[i], NULL) == 0);
	lt_emit("read", ",\"threads\":%d,\"back\":%d", n, back);
	return 0;
}
