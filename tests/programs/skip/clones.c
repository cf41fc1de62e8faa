/*
 * clones: begins tasks in every possible way, each between sleeps of a sole thread. Each task reads the clock in a loop
 * for a while and prints the widest gap between two readings. Its parent sleeps for a thousand seconds meanwhile: time
 * must not leap over that sleep before the task has ended.
 *
 * clones spin: runs such a task, and prints "spun".
 */
#define _GNU_SOURCE
#include "../lt.h"
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { READS = 1000000, ALONE = 200, BEGUN_NS = 10000000 };
extern char **environ;

static long long now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void spin(const char *way)
{
	long long last = now(), widest = 0;

	for (int i = 0; i < READS; i++) {
		long long this = now();

		if (this - last > widest)
			widest = this - last;
		last = this;
	}
	char line[120];
	int len = snprintf(line, sizeof(line), "{\"ev\":\"spun\",\"way\":\"%s\",\"widest_ns\":%lld}\n", way, widest);

	if (write(1, line, len) != len)
		_exit(2);
}

static void nap(int seconds)
{
	struct timespec ts = { seconds, 0 };

	nanosleep(&ts, NULL);
}

/* Waits until the new task reads the clock; then sleeps meanwhile. */
static void nap_over_it(void)
{
	long long begun = now();

	while (now() - begun < BEGUN_NS)
		;
	nap(1000);
}

static void alone(void)
{
	for (int i = 0; i < ALONE; i++)
		nap(1);
}

static void reap(pid_t child)
{
	int status;

	nap_over_it();
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		_exit(3);
}

static void by_fork(char *self)
{
	pid_t child = fork();

	(void)self;
	if (child == 0) {
		spin("fork");
		_exit(0);
	}
	reap(child);
}

static void by_clone(char *self)
{
	pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	(void)self;
	if (child == 0) {
		spin("clone");
		_exit(0);
	}
	reap(child);
}

static void by_vfork(char *self)
{
	char *argv[] = { self, "spin", "vfork", NULL };
	pid_t child = vfork();

	if (child == 0) {
		execve(self, argv, environ);
		_exit(1);
	}
	reap(child);
}

static void by_spawn(char *self)
{
	char *argv[] = { self, "spin", "posix_spawn", NULL };
	pid_t child;

	if (posix_spawn(&child, self, NULL, NULL, argv, environ) != 0)
		_exit(4);
	reap(child);
}

/* A grandchild whose parent has ended: no process here waits for it. */
static void by_orphan(char *self)
{
	int ends[2];
	char byte;
	pid_t child = pipe(ends) ? -1 : fork();

	(void)self;
	if (child == 0) {
		close(ends[0]);
		if (fork() == 0)
			spin("orphan");
		_exit(0);
	}
	close(ends[1]);
	reap(child);
	if (read(ends[0], &byte, 1) != 0)
		_exit(5);
	close(ends[0]);
}

static void *in_thread(void *way)
{
	spin(way);
	return NULL;
}

static void by_thread(char *self)
{
	pthread_t thread;

	(void)self;
	if (pthread_create(&thread, NULL, in_thread, "thread") != 0)
		_exit(6);
	nap_over_it();
	pthread_join(thread, NULL);
}

static int on_own_stack(void *way)
{
	spin(way);
	return 0;
}

/* With a stack and a memory of its own choice, as runtimes do it. */
static void by_clone_vm(char *self)
{
	size_t size = 1 << 18;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)self;
	reap(clone(on_own_stack, stack + size, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, "clone_vm"));
}

int main(int argc, char **argv)
{
	void (*ways[])(char *) = { by_fork, by_clone, by_vfork, by_spawn, by_orphan, by_thread, by_clone_vm };
	char self[4096] = { 0 };

	if (argc > 2 && strcmp(argv[1], "spin") == 0) {
		spin(argv[2]);
		return 0;
	}
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 7;
	for (int round = 0; round < 3; round++) {
		for (size_t way = 0; way < sizeof(ways) / sizeof(*ways); way++) {
			alone();
			ways[way](self);
		}
	}
	printf("{\"ev\":\"done\",\"elapsed\":%lld}\n", now());
	return 0;
}
