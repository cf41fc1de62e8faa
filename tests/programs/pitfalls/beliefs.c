/*
 * beliefs N: blocks SIGRTMAX, then starts and joins N threads one after another, which inherit the mask. Checks that it
 * is still blocked:
 *
 *     {"ev":"blocked","before":1,"in_threads":300,"after":1}
 */
#include "../lt.h"

static int in_threads;

static int is_blocked(void)
{
	sigset_t now;
	LT_CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	return sigismember(&now, SIGRTMAX);
}

static void *look(void *unused)
{
	in_threads += is_blocked();
	return unused;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	lt_block(SIGRTMAX);
	int before = is_blocked();
	for (int i = 0; i < n; i++)
		LT_CHECK(pthread_join(lt_thread(look, NULL), NULL) == 0);
	lt_emit("blocked", ",\"before\":%d,\"in_threads\":%d,\"after\":%d", before, in_threads, is_blocked());
	return 0;
}
