/*
 * small_stack: children made by clone on stacks of a few KiB. They open a file, sleep, and take a signal that has no
 * alternate stack. Below each stack is a page with a pattern, which shows an overrun of the stack's end.
 *
 *     {"ev":"child","how":"copy","size":4096,"status":0,"intact":1,"altstack":2}
 *
 * "how" is copy (no CLONE_VM), shared (CLONE_VM) or vfork (both and CLONE_VFORK). "altstack" is ss_flags as the child
 * reads it.
 */
#include "../lt.h"
#include <sched.h>
#include <sys/mman.h>

#define PAGE 4096
#define PATTERN 0x5a

struct shared {
	int altstack;
	int intact;
};
static struct shared *shared;
static unsigned char *below;

static int intact(void)
{
	for (int i = 0; i < PAGE; i++)
		if (below[i] != PATTERN)
			return 0;
	return 1;
}

static int child(void *nothing)
{
	(void)nothing;
	struct timespec moment = { 0, 1000000 };
	stack_t stack = { 0 };
	long file = syscall(SYS_open, "/dev/null", O_RDONLY);
	if (file < 0)
		syscall(SYS_exit, 11);
	syscall(SYS_close, file);
	if (syscall(SYS_nanosleep, &moment, NULL))
		syscall(SYS_exit, 12);
	syscall(SYS_sigaltstack, NULL, &stack);
	shared->altstack = stack.ss_flags;
	shared->intact = intact();
	syscall(SYS_exit, 0);
	return 0;
}

static void try(const char *how, int flags, size_t size)
{
	unsigned char *memory =
		mmap(NULL, PAGE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	below = memory;
	memset(below, PATTERN, PAGE);
	*shared = (struct shared){ -1, -1 };
	int status = -1;
	pid_t pid = clone(child, memory + PAGE + size, flags | SIGCHLD, NULL);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		status = -1;
	printf("{\"ev\":\"child\",\"how\":\"%s\",\"size\":%zu,\"status\":%d,\"intact\":%d,\"altstack\":%d}\n", how,
	       size, status, shared->intact && intact(), shared->altstack);
	munmap(memory, PAGE + size);
}

int main(void)
{
	static const size_t sizes[] = { 4096, 6144, 8192, 16384, 65536 };
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		try("copy", 0, sizes[i]);
		try("shared", CLONE_VM, sizes[i]);
		try("vfork", CLONE_VM | CLONE_VFORK, sizes[i]);
	}
	/* A child's child, on a small stack of its own. */
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		try("copy", 0, 4096);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return 0;
}
