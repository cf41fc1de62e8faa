/*
 * sleepers THREADS NS: threads wait NS again and again in twelve ways until stdin ends, while
 * another process changes the clock. No wait may end early, with another result, or with EINTR
 * without a signal.
 */
#include "../lt.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static lt_ns ns;
static _Atomic long calls[12], early[12], early_ns[12], wrong[12];
static _Atomic int stop;
static const char *names[12] = { "nanosleep", "clock_nanosleep-abs", "poll", "ppoll", "select",
	"epoll_wait", "futex", "futex-bitset", "cond", "sem", "timerfd", "sigtimedwait" };

static int wait_once(int kind)
{
	static const uint32_t word = 1;
	struct timespec t = lt_ts(ns), mono = lt_ts(lt_now(CLOCK_MONOTONIC) + ns),
			real = lt_ts(lt_now(CLOCK_REALTIME) + ns);
	struct timeval tv = lt_tv(ns);
	struct itimerspec its = { .it_value = t };
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct epoll_event e;
	sigset_t s;
	sem_t sem;
	uint64_t n = 0;
	int fd, ok;
	switch (kind) {
	case 0: return nanosleep(&t, NULL) == 0;
	case 1: return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &mono, NULL) == 0;
	case 2: return poll(NULL, 0, (int)(ns / 1000000)) == 0;
	case 3: return ppoll(NULL, 0, &t, NULL) == 0;
	case 4: return select(0, NULL, NULL, NULL, &tv) == 0;
	case 5:
		fd = epoll_create1(0);
		ok = epoll_wait(fd, &e, 1, (int)(ns / 1000000)) == 0;
		close(fd);
		return ok;
	case 6: return syscall(SYS_futex, &word, 0, 1, &t, NULL, 0) == -1 && errno == ETIMEDOUT;
	case 7: return syscall(SYS_futex, &word, 9, 1, &mono, NULL, -1) == -1 && errno == ETIMEDOUT;
	case 8:
		pthread_mutex_lock(&m);
		return pthread_cond_timedwait(&c, &m, &real) == ETIMEDOUT;
	case 9:
		sem_init(&sem, 0, 0);
		return sem_timedwait(&sem, &real) == -1 && errno == ETIMEDOUT;
	case 10:
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		ok = timerfd_settime(fd, 0, &its, NULL) == 0 && read(fd, &n, 8) == 8 && n == 1;
		close(fd);
		return ok;
	default:
		sigemptyset(&s);
		sigaddset(&s, SIGUSR2);
		return sigtimedwait(&s, NULL, &t) == -1 && errno == EAGAIN;
	}
}

static void *run(void *p)
{
	int kind = (int)((long)p % 12);
	while (!stop) {
		lt_ns t0 = lt_now(CLOCK_MONOTONIC);
		if (!wait_once(kind))
			wrong[kind]++;
		else {
			lt_ns short_by = ns - (lt_now(CLOCK_MONOTONIC) - t0);
			if (short_by > 0) {
				early[kind]++;
				early_ns[kind] = short_by;
			}
		}
		calls[kind]++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[256];
	long n = argc > 2 ? atol(argv[1]) : 0;
	char c;
	if (n < 1 || n > 256)
		return 96;
	ns = atoll(argv[2]);
	for (long i = 0; i < n; i++)
		t[i] = lt_thread(run, (void *)i);
	lt_emit("ready", ",\"case\":\"sleepers\",\"pid\":%d", getpid());
	while (read(0, &c, 1) > 0 || errno == EINTR)
		;
	stop = 1;
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	for (int k = 0; k < 12; k++)
		lt_emit("sleeper", ",\"case\":\"%s\",\"calls\":%ld,\"early\":%ld,\"early_ns\":%ld,"
			"\"wrong\":%ld", names[k], calls[k], early[k], early_ns[k], wrong[k]);
	lt_emit("end", NULL);
	return 0;
}
