/*
 * cancel NS: a thread in each cancellation point is cancelled after NS. Each must end, unwinding
 * through its clean-up handler; {"ev":"cancel","case":...,"canceled":1,"cleaned":1}.
 */
#include "../lt.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

static lt_ns far = 1000 * LT_SEC;

static void c_nanosleep(void) { struct timespec t = lt_ts(far); nanosleep(&t, NULL); }
static void c_clock_nanosleep(void)
{
	struct timespec t = lt_ts(lt_now(CLOCK_REALTIME) + far);
	clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
}
static void c_sleep(void) { sleep(1000); }
static void c_poll(void) { poll(NULL, 0, 1000000); }
static void c_select(void) { struct timeval t = lt_tv(far); select(0, NULL, NULL, NULL, &t); }
static void c_epoll(void) { struct epoll_event e; epoll_wait(epoll_create1(0), &e, 1, 1000000); }
static void c_pause(void) { pause(); }
static void c_cond(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct timespec t = lt_ts(lt_now(CLOCK_REALTIME) + far);
	pthread_mutex_lock(&m);
	pthread_cond_timedwait(&c, &m, &t);
}
static void c_sem(void)
{
	struct timespec t = lt_ts(lt_now(CLOCK_REALTIME) + far);
	sem_t s;
	sem_init(&s, 0, 0);
	sem_timedwait(&s, &t);
}
static void c_sigtimedwait(void)
{
	struct timespec t = lt_ts(far);
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigtimedwait(&s, NULL, &t);
}
static void c_recv(void)
{
	struct timeval t = lt_tv(far);
	int sv[2];
	char c;
	LT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	LT_CHECK(setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
	recv(sv[0], &c, 1, 0);
}

static const struct { const char *name; void (*fn)(void); } points[] = {
	{ "nanosleep", c_nanosleep }, { "clock_nanosleep", c_clock_nanosleep }, { "sleep", c_sleep },
	{ "poll", c_poll }, { "select", c_select }, { "epoll_wait", c_epoll }, { "pause", c_pause },
	{ "pthread_cond_timedwait", c_cond }, { "sem_timedwait", c_sem },
	{ "sigtimedwait", c_sigtimedwait }, { "recv", c_recv },
};
#define N (sizeof points / sizeof *points)
static volatile int cleaned[N];

static void clean(void *p) { cleaned[(size_t)p] = 1; }

static void *run(void *p)
{
	pthread_cleanup_push(clean, p);
	points[(size_t)p].fn();
	pthread_cleanup_pop(0);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[N];
	void *ret;
	for (size_t i = 0; i < N; i++)
		t[i] = lt_thread(run, (void *)i);
	lt_emit("ready", NULL);
	lt_sleep(argc > 1 ? atoll(argv[1]) : 100000000);
	for (size_t i = 0; i < N; i++)
		LT_CHECK(pthread_cancel(t[i]) == 0);
	for (size_t i = 0; i < N; i++) {
		ret = NULL;
		LT_CHECK(pthread_join(t[i], &ret) == 0);
		lt_emit("cancel", ",\"case\":\"%s\",\"canceled\":%d,\"cleaned\":%d", points[i].name,
			ret == PTHREAD_CANCELED, cleaned[i]);
	}
	lt_emit("end", NULL);
	return 0;
}
