/*
 * Takes signals that the kernel forces on it, one after the other: at any moment one may be on its way.
 *
 *     forced_signals fault | trap | blocked
 *
 * fault: SIGSEGV, of reads from a page that is not there. trap: SIGSYS, of clock reads at a place that no program could rewrite.
 * blocked: SIGSEGV of kill, which is blocked and stays pending, and the faults of another thread. Prints {"ev":"many","n":COUNT} every
 * 20,000.
 */
#include "../lt.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define EVERY 20000

/* mov eax, [rdi]; ret */
static const unsigned char load[] = { 0x8b, 0x07, 0xc3 };
/* mov eax, edx; syscall; ret */
static const unsigned char call[] = { 0x89, 0xd0, 0x0f, 0x05, 0xc3 };

static void skip(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	ucontext_t *c = context;
	c->uc_mcontext.gregs[REG_RIP] += 2;
}

static void *code(const unsigned char *bytes, size_t len)
{
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at, bytes, len);
	return at;
}

static void *faults(void *unused)
{
	(void)unused;
	struct sigaction action = { .sa_sigaction = skip, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &action, NULL);
	void *absent = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int (*read_it)(void *) = code(load, sizeof load);
	for (long n = 1;; n++) {
		read_it(absent);
		if (n % EVERY == 0)
			lt_emit("many", ",\"n\":%ld", n);
	}
}

static void traps(void)
{
	long (*call_it)(long, void *, long) = code(call, sizeof call);
	struct timespec now;
	for (long n = 1;; n++) {
		call_it(CLOCK_MONOTONIC, &now, SYS_clock_gettime);
		if (n % EVERY == 0)
			lt_emit("many", ",\"n\":%ld", n);
	}
}

static void with_a_blocked_one(void)
{
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGSEGV);
	pthread_t thread;
	pthread_create(&thread, NULL, faults, NULL);
	pthread_sigmask(SIG_BLOCK, &one, NULL);
	pthread_kill(pthread_self(), SIGSEGV);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "fault";
	if (!strcmp(what, "trap"))
		traps();
	else if (!strcmp(what, "blocked"))
		with_a_blocked_one();
	else
		faults(NULL);
}
