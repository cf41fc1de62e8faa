/*
 * points: carries out the orders on its standard input, each by a thread of its own, so that a test can stop one of the
 * threads during its order.
 *
 *     do OP      thread 1 does it        other OP   thread 2 does it
 *     fork OP    a child does it         exec       becomes this program again, by another thread than 1
 *     signal N   sends thread 1 signal N quit
 *
 * SIGCHLD is blocked in all threads but 1 and 2.
 *
 * `points alone N` has one thread. After the end of its standard input it sleeps N times for an hour, and works for some
 * milliseconds after each.
 *
 * It says {"ev":"ready"} at the start, {"ev":"done","who":1,"op":...,"ret":...,"err":...} after each, {"ev":"signal"} in a handler.
 * `do beat N` also says {"ev":"beat"} at each expiry of its timer. Timer descriptor 100 is made at the start and survives the exec.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <semaphore.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#define TIMER 100
#define FAR 100000

static volatile sig_atomic_t signals;
static char **arguments;

static void say(const char *format, ...)
{
	char line[512];
	va_list list;
	va_start(list, format);
	int length = vsnprintf(line, sizeof line, format, list);
	va_end(list);
	if (write(1, line, length) != length)
		_exit(9);
}

static void on_signal(int number)
{
	signals++;
	(void)number;
	say("{\"ev\":\"signal\"}\n");
}

static long set_timer(long secs)
{
	struct itimerspec value = { .it_value = { .tv_sec = secs } };
	return timerfd_settime(TIMER, 0, &value, NULL);
}

static long left_of_timer(void)
{
	struct itimerspec value;
	if (timerfd_gettime(TIMER, &value))
		return -1;
	return value.it_value.tv_sec + (value.it_value.tv_nsec > 0);
}

/* Sets a timer for so many seconds later by the wall clock, and leaves it. */
static long set_wall_timer(long secs)
{
	struct itimerspec value = { .it_value = { .tv_sec = time(NULL) + secs } };
	return timerfd_settime(timerfd_create(CLOCK_REALTIME, 0), TFD_TIMER_ABSTIME, &value, NULL);
}

/* Takes a number of expiries of a timer with a period of 10 ms, and may say each; returns the number of early ones. */
static long ticks(long count, int aloud)
{
	const lt_ns interval = 10000000;
	struct itimerspec value = { .it_interval = { .tv_nsec = interval }, .it_value = { .tv_nsec = interval } };
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	long early = 0;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	lt_ns begun = now.tv_sec * LT_SEC + now.tv_nsec;
	timerfd_settime(timer, 0, &value, NULL);
	for (long done = 0; done < count;) {
		uint64_t more;
		if (read(timer, &more, sizeof more) != sizeof more)
			continue;
		done += more;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (aloud)
			say("{\"ev\":\"beat\"}\n");
		early += now.tv_sec * LT_SEC + now.tv_nsec < begun + done * interval;
	}
	close(timer);
	return early;
}

static long timed_receive(void)
{
	int ends[2];
	char byte;
	struct timeval limit = { .tv_sec = FAR };
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	long ret = setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (ret == 0 && write(ends[1], "x", 1) == 1)
		ret = recv(ends[0], &byte, 1, 0);
	close(ends[0]);
	close(ends[1]);
	return ret;
}

/*
 * `block PATH` waits for that file before it sets the socket's timeout: from a process's first one on the shim has all of
 * its reads, and a test may want the other threads to be in theirs before.
 */
static long blocked_receive(const char *path)
{
	int ends[2];
	char byte;
	struct timeval limit = { .tv_sec = FAR };
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	while (*path && access(path + 1, F_OK))
		sched_yield();
	setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return recv(ends[0], &byte, 1, 0);
}

static long semaphore(void)
{
	int set = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf take = { .sem_op = -1 };
	struct timespec limit = { .tv_sec = FAR };
	long ret = semtimedop(set, &take, 1, &limit);
	int err = errno;
	semctl(set, 0, IPC_RMID);
	errno = err;
	return ret;
}

static long futex(void)
{
	static int word;
	struct timespec limit = { .tv_sec = FAR };
	return syscall(SYS_futex, &word, 0, 0, &limit, 0, 0);
}

static long poll_for_long(void)
{
	return poll(NULL, 0, FAR * 1000);
}

static long sleep_for(long nanos)
{
	struct timespec span = { nanos / 1000000000, nanos % 1000000000 };
	return nanosleep(&span, NULL);
}

static long sleep_by_the_wall(long secs)
{
	struct timespec end = { .tv_sec = time(NULL) + secs };
	int err = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, NULL);
	errno = err;
	return err ? -1 : 0;
}

/* Sets the wall clock so many seconds ahead. */
static long set_wall(long secs)
{
	struct timespec now = { .tv_sec = time(NULL) + secs };
	return clock_settime(CLOCK_REALTIME, &now);
}

/* A call site of its own, which is called often enough to be rewritten. */
static __attribute__((noinline, aligned(64))) long site(struct timespec *now)
{
	long result;
	asm volatile(".p2align 4\n\tmov $228, %%eax\n\tsyscall"
		     : "=a"(result)
		     : "D"(CLOCK_MONOTONIC), "S"(now)
		     : "rcx", "r11", "memory");
	return result;
}

static long call_often(void)
{
	struct timespec now;
	for (int i = 0; i < 40; i++)
		if (site(&now) != 0)
			return -1;
	return 0;
}

static long cpu_time(int id)
{
	struct timespec now;
	return clock_gettime(id, &now);
}

/* A child that waits for its kill. */
static long bear(void)
{
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	return child;
}

static long epoll(void)
{
	struct epoll_event event;
	int set = epoll_create1(0);
	long ret = epoll_wait(set, &event, 1, FAR * 1000);
	int err = errno;
	close(set);
	errno = err;
	return ret;
}

static long file_time(void)
{
	struct stat seen;
	return stat("/", &seen);
}

static long set_alarm(long millis)
{
	struct itimerval once = { .it_value = { millis / 1000, millis % 1000 * 1000 } };
	return setitimer(ITIMER_REAL, &once, NULL);
}

static long perform(const char *op)
{
	long number = 0;
	const char *space = strchr(op, ' ');
	if (space)
		number = atol(space);
	if (!strncmp(op, "settimer", 8))
		return set_timer(number);
	if (!strncmp(op, "alarm", 5))
		return set_alarm(number);
	if (!strcmp(op, "lefttimer"))
		return left_of_timer();
	if (!strncmp(op, "sleep", 5))
		return sleep_for(number);
	if (!strncmp(op, "ticks", 5))
		return ticks(number, 0);
	if (!strncmp(op, "beat", 4))
		return ticks(number, 1);
	if (!strncmp(op, "setwall", 7))
		return set_wall(number);
	if (!strncmp(op, "wallsleep", 9))
		return sleep_by_the_wall(number);
	if (!strncmp(op, "walltimer", 9))
		return set_wall_timer(number);
	if (!strcmp(op, "hot"))
		return call_often();
	if (!strcmp(op, "receive"))
		return timed_receive();
	if (!strncmp(op, "block", 5))
		return blocked_receive(op + 5);
	if (!strcmp(op, "semaphore"))
		return semaphore();
	if (!strcmp(op, "child"))
		return bear();
	if (!strcmp(op, "epoll"))
		return epoll();
	if (!strcmp(op, "poll"))
		return poll_for_long();
	if (!strcmp(op, "futex"))
		return futex();
	if (!strcmp(op, "process"))
		return cpu_time(CLOCK_PROCESS_CPUTIME_ID);
	if (!strcmp(op, "thread"))
		return cpu_time(CLOCK_THREAD_CPUTIME_ID);
	if (!strcmp(op, "used"))
		return lt_now(CLOCK_THREAD_CPUTIME_ID);
	if (!strcmp(op, "file"))
		return file_time();
	if (!strcmp(op, "date"))
		return time(NULL);
	return -2;
}

static void do_and_say(int who, const char *op)
{
	errno = 0;
	long ret = perform(op);
	say("{\"ev\":\"done\",\"who\":%d,\"op\":\"%s\",\"ret\":%ld,\"err\":%d,\"signals\":%d}\n", who, op, ret,
	    ret < 0 ? errno : 0, (int)signals);
}

/* A thread that carries out the order in its slot. */
struct worker {
	int who;
	int orders[2];
	pthread_t thread;
};

static void *work(void *given)
{
	struct worker *worker = given;
	char op[128];
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
	for (;;) {
		ssize_t got = read(worker->orders[0], op, sizeof op);
		if (got == sizeof op)
			do_and_say(worker->who, op);
		else if (got >= 0 || errno != EINTR)
			return NULL;
	}
}

static void order(struct worker *worker, const char *op)
{
	char copy[128] = { 0 };
	strncpy(copy, op, sizeof copy - 1);
	if (write(worker->orders[1], copy, sizeof copy) != sizeof copy)
		_exit(9);
}

static void *become_again(void *nothing)
{
	(void)nothing;
	execv("/proc/self/exe", arguments);
	_exit(8);
}

int main(int count, char **words)
{
	struct worker workers[2] = { { .who = 1 }, { .who = 2 } };
	char line[128];
	arguments = words;
	struct sigaction plain = { .sa_handler = on_signal };
	struct sigaction restarting = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &plain, NULL);
	sigaction(SIGALRM, &plain, NULL);
	sigaction(SIGUSR2, &restarting, NULL);
	if (count < 2 && left_of_timer() < 0) {
		int timer = timerfd_create(CLOCK_MONOTONIC, 0);
		dup2(timer, TIMER);
		close(timer);
	}
	if (count > 2 && !strcmp(words[1], "alone")) {
		say("{\"ev\":\"ready\",\"pid\":%d}\n", getpid());
		while (getchar() != EOF)
			;
		for (int i = 0; i < atoi(words[2]); i++) {
			do_and_say(1, "sleep 3600000000000");
			for (volatile long spin = 0; spin < 5000000; spin++)
				;
		}
		return 0;
	}
	lt_block(SIGCHLD);
	for (int i = 0; i < 2; i++) {
		if (pipe(workers[i].orders) || pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 9;
	}
	say("{\"ev\":\"ready\",\"pid\":%d}\n", getpid());
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "do ", 3)) {
			order(&workers[0], line + 3);
		} else if (!strncmp(line, "other ", 6)) {
			order(&workers[1], line + 6);
		} else if (!strncmp(line, "fork ", 5)) {
			pid_t child = fork();
			if (child == 0) {
				do_and_say(3, line + 5);
				_exit(0);
			}
			int status;
			waitpid(child, &status, 0);
			say("{\"ev\":\"child\",\"status\":%d}\n", status);
		} else if (!strncmp(line, "signal ", 7)) {
			pthread_kill(workers[0].thread, atoi(line + 7));
			say("{\"ev\":\"sent\"}\n");
		} else if (!strcmp(line, "exec")) {
			pthread_t thread;
			pthread_create(&thread, NULL, become_again, NULL);
			pthread_join(thread, NULL);
		} else if (!strcmp(line, "quit")) {
			return 0;
		}
	}
	return 0;
}
