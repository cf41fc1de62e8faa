/*
 * Sixteen kinds of wait at once, each in a thread of its own, and timers that repeat.
 *
 *     waits SECONDS
 *
 * prints {"ev":"ready"} when all wait, and for each {"ev":"done","kind":...,"elapsed":seconds,"err":errno} by its own CLOCK_MONOTONIC.
 * Repeating timers print how far they have been from their phase, as a distance that three expiries in a row have at least:
 * {"ev":"phase","kind":...,"late":seconds,"count":n,"early":n,"behind":n,"lost":n}. A machine that is late is late with one of them, a wrong
 * phase with all. `count` is at least the number of expiries in SECONDS. `early` is how often it was more than the clock says,
 * `behind` how many it was short of by the clock, three times in a row, `lost` how many it stays short of: an expiry that was lost never
 * comes, one that is late comes with a later one.
 */
#include "../lt.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define PERIOD (LT_SEC / 4)
/* So many more expiries are waited for where some are late. */
#define MORE_WAITS 20

static lt_ns nominal;
static pthread_barrier_t all;

static struct timespec at(clockid_t id)
{
	return lt_ts(lt_now(id) + nominal);
}

static int result(int ret)
{
	return ret < 0 ? errno : 0;
}

static int do_nanosleep(void) { struct timespec t = lt_ts(nominal); return result(nanosleep(&t, NULL)); }
static int do_relative(void) { struct timespec t = lt_ts(nominal); return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL); }
static int do_absolute(void) { struct timespec t = at(CLOCK_REALTIME); return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL); }

static int do_semaphore(void)
{
	sem_t sem;
	struct timespec t = at(CLOCK_REALTIME);
	sem_init(&sem, 0, 0);
	int err = result(sem_timedwait(&sem, &t));
	return err == ETIMEDOUT ? 0 : err ? err : -1;
}

static int do_condition(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&cond, &attr);
	struct timespec t = at(CLOCK_MONOTONIC);
	pthread_mutex_lock(&mutex);
	int err = pthread_cond_timedwait(&cond, &mutex, &t);
	return err == ETIMEDOUT ? 0 : err ? err : -1;
}

static int do_futex(void)
{
	int word = 0;
	struct timespec t = lt_ts(nominal);
	int err = result(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0));
	return err == ETIMEDOUT ? 0 : err ? err : -1;
}

static int do_sigtimedwait(void)
{
	sigset_t set;
	struct timespec t = lt_ts(nominal);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	int err = result(sigtimedwait(&set, NULL, &t));
	return err == EAGAIN ? 0 : err ? err : -1;
}

static int do_poll(void) { return result(poll(NULL, 0, nominal / 1000000)); }
static int do_ppoll(void) { struct timespec t = lt_ts(nominal); return result(ppoll(NULL, 0, &t, NULL)); }

static int do_select(void)
{
	struct timeval t = { nominal / LT_SEC, nominal % LT_SEC / 1000 };
	return result(select(0, NULL, NULL, NULL, &t));
}

static int do_pselect(void)
{
	struct timespec t = lt_ts(nominal);
	sigset_t none;
	sigemptyset(&none);
	sigaddset(&none, SIGALRM);
	sigaddset(&none, SIGUSR1);
	sigaddset(&none, SIGUSR2);
	sigaddset(&none, SIGRTMIN + 1);
	return result(pselect(0, NULL, NULL, NULL, &t, &none));
}

static int do_epoll(void)
{
	struct epoll_event event;
	int fd = epoll_create1(0);
	return result(epoll_wait(fd, &event, 1, nominal / 1000000));
}

static int do_receive(void)
{
	int pair[2];
	char byte;
	struct timeval t = { nominal / LT_SEC, nominal % LT_SEC / 1000 };
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	int err = result(recv(pair[0], &byte, 1, 0));
	return err == EAGAIN ? 0 : err ? err : -1;
}

static int do_timerfd(void)
{
	unsigned long long count;
	struct itimerspec t = { .it_value = at(CLOCK_MONOTONIC) };
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
	return result(read(fd, &count, 8));
}

static int wait_for(int signal)
{
	sigset_t set;
	int got;
	sigemptyset(&set);
	sigaddset(&set, signal);
	return sigwait(&set, &got);
}

static int do_posix_timer(void)
{
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	struct itimerspec t = { .it_value = lt_ts(nominal) };
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &t, NULL);
	return wait_for(SIGUSR2);
}

static int do_itimer(void)
{
	struct itimerval t = { .it_value = { nominal / LT_SEC, nominal % LT_SEC / 1000 } };
	setitimer(ITIMER_REAL, &t, NULL);
	return wait_for(SIGALRM);
}

static const struct kind {
	const char *name;
	int (*wait)(void);
} kinds[] = {
	{ "nanosleep", do_nanosleep },     { "clock_nanosleep", do_relative }, { "clock_nanosleep_abs", do_absolute },
	{ "sem_timedwait", do_semaphore }, { "cond_timedwait", do_condition }, { "futex", do_futex },
	{ "sigtimedwait", do_sigtimedwait }, { "poll", do_poll }, { "ppoll", do_ppoll }, { "select", do_select },
	{ "pselect", do_pselect }, { "epoll_wait", do_epoll }, { "recv", do_receive }, { "timerfd", do_timerfd },
	{ "posix_timer", do_posix_timer }, { "itimer", do_itimer },
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void *run(void *data)
{
	const struct kind *kind = data;
	pthread_barrier_wait(&all);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	int err = kind->wait();
	lt_ns elapsed = lt_now(CLOCK_MONOTONIC) - begun;
	lt_emit("done", ",\"kind\":\"%s\",\"elapsed\":%.9f,\"err\":%d", kind->name, elapsed / 1e9, err);
	return NULL;
}

static lt_ns greater(lt_ns one, lt_ns other) { return one > other ? one : other; }

static lt_ns least(const lt_ns three[3])
{
	lt_ns found = three[0] < three[1] ? three[0] : three[1];
	return three[2] < found ? three[2] : found;
}

/* `next` waits for the timer and returns the number of expiries since the last: more than one after a pause of the machine. */
static void phase(const char *kind, lt_ns begun, int (*next)(void *), void *data)
{
	lt_ns late = 0, behind = 0, lost = 0, off[3] = { 0 }, missing[3] = { 0 };
	int count = 0, waits = 0, more = 0, early = 0;
	while (count < nominal / PERIOD || (lost > 0 && more++ < MORE_WAITS)) {
		count += next(data);
		lt_ns passed = lt_now(CLOCK_MONOTONIC) - begun;
		lost = passed / PERIOD - count;
		off[waits % 3] = passed % PERIOD;
		missing[waits++ % 3] = lost;
		early += lost < 0;
		late = greater(late, least(off));
		behind = greater(behind, least(missing));
	}
	lt_emit("phase", ",\"kind\":\"%s\",\"late\":%.9f,\"count\":%d,\"early\":%d,\"behind\":%lld,\"lost\":%lld", kind, late / 1e9,
		count, early, behind, lost);
}

static int next_fd(void *data)
{
	unsigned long long expired = 0;
	if (read(*(int *)data, &expired, sizeof expired) != sizeof expired)
		perror("read");
	return (int)expired;
}

static timer_t signal_timer;

static int next_signal(void *data)
{
	wait_for(*(int *)data);
	return 1 + timer_getoverrun(signal_timer);
}

static void *repeat_fd(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all);
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	struct itimerspec t = { .it_value = lt_ts(begun + PERIOD), .it_interval = lt_ts(PERIOD) };
	timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
	phase("timerfd", begun, next_fd, &fd);
	return NULL;
}

static void *repeat_signal(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all);
	int number = SIGRTMIN + 1;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = number };
	timer_create(CLOCK_MONOTONIC, &event, &signal_timer);
	lt_ns begun = lt_now(CLOCK_MONOTONIC);
	struct itimerspec t = { .it_value = lt_ts(begun + PERIOD), .it_interval = lt_ts(PERIOD) };
	timer_settime(signal_timer, TIMER_ABSTIME, &t, NULL);
	phase("posix_timer", begun, next_signal, &number);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[KINDS + 2];
	sigset_t set;
	nominal = (argc > 1 ? atof(argv[1]) : 6) * LT_SEC;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pthread_barrier_init(&all, NULL, KINDS + 3);
	for (size_t i = 0; i < KINDS; i++)
		pthread_create(&threads[i], NULL, run, (void *)&kinds[i]);
	pthread_create(&threads[KINDS], NULL, repeat_fd, NULL);
	pthread_create(&threads[KINDS + 1], NULL, repeat_signal, NULL);
	pthread_barrier_wait(&all);
	lt_emit("ready", NULL);
	for (size_t i = 0; i < KINDS + 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
