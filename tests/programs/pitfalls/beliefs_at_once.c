/*
 * beliefs_at_once N: blocks SIGRTMAX and starts N threads, the second half with ids that are 254 and more behind those of the first.
 * All live at once. Then each looks whether it is still blocked, as it was in the thread that made them:
 *
 *     {"ev":"blocked","threads":230,"in_threads":230}
 */
#include "../lt.h"

#define MOST 250
#define APART 254

static int in_threads, go;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t may_look = PTHREAD_COND_INITIALIZER;

static void *look(void *unused)
{
	sigset_t now;
	pthread_mutex_lock(&mutex);
	while (!go)
		pthread_cond_wait(&may_look, &mutex);
	LT_CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	in_threads += sigismember(&now, SIGRTMAX);
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	int n = argc > 1 ? atoi(argv[1]) : 1;
	LT_CHECK(n <= MOST);
	lt_block(SIGRTMAX);
	lt_threads_apart(threads, n, APART, look);
	pthread_mutex_lock(&mutex);
	go = 1;
	pthread_cond_broadcast(&may_look);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < n; i++)
		LT_CHECK(pthread_join(threads[i], NULL) == 0);
	lt_emit("blocked", ",\"threads\":%d,\"in_threads\":%d", n, in_threads);
	return 0;
}
