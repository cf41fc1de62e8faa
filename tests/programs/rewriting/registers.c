/*
 * registers ROUNDS: makes system calls from call sites of its own, of both shapes that are rewritten, with every register filled
 * at random, the flags, the vector registers, MXCSR, the x87 control word, and the 128 bytes below the stack pointer. All but
 * rax, rcx and r11 must be as before. Signals arrive every 100 us meanwhile.
 *
 * {"ev":"site","name":"openat","rounds":1000,"wrong":0,"where":"","rewritten":1}
 */
#include "../lt.h"
#include <poll.h>
#include <sys/stat.h>

enum { RAX, RBX, RDX, RSI, RDI, RBP, R8, R9, R10, R12, R13, R14, R15, REGISTERS };
#define RED_ZONE 16
#define VECTORS 16

struct state {
	uint64_t reg[REGISTERS];        /* 0 */
	uint64_t flags;                 /* 104 */
	uint64_t red[RED_ZONE];         /* 112 */
	uint64_t vector[VECTORS][4];    /* 240: ymm */
	uint32_t mxcsr;                 /* 752 */
	uint16_t x87, pad;              /* 756 */
};

void *state_out, *stack_saved;

/* A function whose call site has CODE in front of the syscall instruction. rdi: the state before, rsi: where to store the one after. */
#define SITE(name, code)                                                                                 \
	void name(const struct state *, struct state *);                                                 \
	extern const unsigned char name##_end[];                                                         \
	asm(".text\n.globl " #name "\n.type " #name ",@function\n.balign 64\n" #name ":\n.cfi_startproc\n" \
	    "push %rbx\n.cfi_adjust_cfa_offset 8\npush %rbp\n.cfi_adjust_cfa_offset 8\n"                  \
	    "push %r12\n.cfi_adjust_cfa_offset 8\npush %r13\n.cfi_adjust_cfa_offset 8\n"                  \
	    "push %r14\n.cfi_adjust_cfa_offset 8\npush %r15\n.cfi_adjust_cfa_offset 8\n"                  \
	    "sub $40, %rsp\n.cfi_adjust_cfa_offset 40\n"                                                  \
	    "mov %rsi, state_out(%rip)\n"                                                                \
	    "mov %rdi, %rax\n"                                                                           \
	    "ldmxcsr 752(%rax)\nfldcw 756(%rax)\n"                                                        \
	    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                             \
	    "vmovdqu 240+32*\\i(%rax), %ymm\\i\n.endr\n"                                                  \
	    "push 104(%rax)\npopf\n"                                                                     \
	    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                             \
	    "mov 112+8*\\i(%rax), %rcx\nmov %rcx, -128+8*\\i(%rsp)\n.endr\n"                              \
	    "mov 8(%rax), %rbx\nmov 16(%rax), %rdx\nmov 24(%rax), %rsi\nmov 32(%rax), %rdi\n"            \
	    "mov 40(%rax), %rbp\nmov 48(%rax), %r8\nmov 56(%rax), %r9\nmov 64(%rax), %r10\n"             \
	    "mov 72(%rax), %r12\nmov 80(%rax), %r13\nmov 88(%rax), %r14\nmov 96(%rax), %r15\n"           \
	    "mov %r9, 8(%rsp)\n"                                                                         \
	    "mov 0(%rax), %rax\n" code "\nsyscall\n" #name "_end:\n"                                      \
	    "mov state_out(%rip), %rcx\n"                                                                \
	    "mov %rax, 0(%rcx)\nmov %rbx, 8(%rcx)\nmov %rdx, 16(%rcx)\nmov %rsi, 24(%rcx)\n"             \
	    "mov %rdi, 32(%rcx)\nmov %rbp, 40(%rcx)\nmov %r8, 48(%rcx)\nmov %r9, 56(%rcx)\n"             \
	    "mov %r10, 64(%rcx)\nmov %r12, 72(%rcx)\nmov %r13, 80(%rcx)\nmov %r14, 88(%rcx)\n"           \
	    "mov %r15, 96(%rcx)\n"                                                                       \
	    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                             \
	    "mov -128+8*\\i(%rsp), %rax\nmov %rax, 112+8*\\i(%rcx)\n.endr\n"                              \
	    "pushf\npop 104(%rcx)\n"                                                                     \
	    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                             \
	    "vmovdqu %ymm\\i, 240+32*\\i(%rcx)\n.endr\nvzeroupper\n"                                      \
	    "stmxcsr 752(%rcx)\nfstcw 756(%rcx)\nfninit\n"                                               \
	    "movl $0x1f80, -8(%rsp)\nldmxcsr -8(%rsp)\ncld\n"                                            \
	    "add $40, %rsp\n.cfi_adjust_cfa_offset -40\n"                                                \
	    "pop %r15\n.cfi_adjust_cfa_offset -8\npop %r14\n.cfi_adjust_cfa_offset -8\n"                  \
	    "pop %r13\n.cfi_adjust_cfa_offset -8\npop %r12\n.cfi_adjust_cfa_offset -8\n"                  \
	    "pop %rbp\n.cfi_adjust_cfa_offset -8\npop %rbx\n.cfi_adjust_cfa_offset -8\n"                  \
	    "ret\n.cfi_endproc\n.size " #name ", .-" #name "\n")

SITE(site_clock_gettime, "mov $228, %eax");
SITE(site_newfstatat, "mov $262, %eax");
SITE(site_openat, "mov $257, %eax");
SITE(site_rt_sigprocmask, "mov $14, %eax");
SITE(site_poll, "mov $7, %eax");
SITE(site_futex, "mov $202, %eax");
SITE(site_any, "mov 8(%rsp), %r9");

static uint64_t random_state = 88172645463325252u;
static uint64_t random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static volatile sig_atomic_t signals;
static void on_signal(int signal) { (void)signal; signals++; }

static struct timespec out;
static struct stat file;
static struct pollfd ready;
static uint32_t word = 1;
static const struct timespec second = { 1, 0 };
static uint64_t mask = 1 << (SIGUSR2 - 1);

/* The arguments of a call, each of which succeeds or fails at once. */
static void arguments(struct state *s, long call)
{
	uint64_t *r = s->reg;
	r[RAX] = call;
	switch (call) {
	case SYS_clock_gettime: r[RDI] = CLOCK_REALTIME; r[RSI] = (uint64_t)&out; break;
	case SYS_newfstatat: r[RDI] = AT_FDCWD; r[RSI] = (uint64_t)"/"; r[RDX] = (uint64_t)&file; r[R10] = 0; break;
	case SYS_openat: r[RDI] = AT_FDCWD; r[RSI] = (uint64_t)"/nowhere"; r[RDX] = O_RDONLY; break;
	case SYS_rt_sigprocmask: r[RDI] = SIG_UNBLOCK; r[RSI] = (uint64_t)&mask; r[RDX] = 0; r[R10] = 8; break;
	case SYS_poll: r[RDI] = (uint64_t)&ready; r[RSI] = 1; r[RDX] = 1000; break;
	case SYS_futex: r[RDI] = (uint64_t)&word; r[RSI] = 128; r[RDX] = 0; r[R10] = (uint64_t)&second; break;
	}
}

static void fill(struct state *s, long call, int round)
{
	/* CF, PF, AF, ZF, SF, OF; DF in one round of sixteen. */
	const uint64_t settable = 0x8d5;
	for (uint64_t *at = (uint64_t *)s; at < (uint64_t *)(s + 1); at++)
		*at = random_word();
	s->flags = 0x202 | (random_word() & settable) | (round % 16 == 15 ? 0x400 : 0);
	s->mxcsr = 0x1f80 | (random_word() & 3) << 13 | (random_word() & 0x3f);
	s->x87 = 0x037f | (random_word() & 3) << 10;
	arguments(s, call);
}

static const char *differs(const struct state *a, const struct state *b)
{
	static char where[64];
	for (int i = RBX; i < REGISTERS; i++)
		if (a->reg[i] != b->reg[i])
			return snprintf(where, sizeof where, "register %d", i), where;
	for (int i = 0; i < RED_ZONE; i++)
		if (a->red[i] != b->red[i])
			return snprintf(where, sizeof where, "red zone %d", i), where;
	for (int i = 0; i < VECTORS; i++)
		if (memcmp(a->vector[i], b->vector[i], 32))
			return snprintf(where, sizeof where, "ymm%d", i), where;
	if (a->flags != b->flags)
		return snprintf(where, sizeof where, "flags %lx %lx", (long)a->flags, (long)b->flags), where;
	return a->mxcsr != b->mxcsr ? "mxcsr" : a->x87 != b->x87 ? "x87" : NULL;
}

static const struct {
	const char *name;
	void (*site)(const struct state *, struct state *);
	const unsigned char *end;
	long call;
} sites[] = {
	{ "clock_gettime", site_clock_gettime, site_clock_gettime_end, SYS_clock_gettime },
	{ "newfstatat", site_newfstatat, site_newfstatat_end, SYS_newfstatat },
	{ "openat", site_openat, site_openat_end, SYS_openat },
	{ "rt_sigprocmask", site_rt_sigprocmask, site_rt_sigprocmask_end, SYS_rt_sigprocmask },
	{ "poll", site_poll, site_poll_end, SYS_poll },
	{ "futex", site_futex, site_futex_end, SYS_futex },
	{ "any", site_any, site_any_end, SYS_clock_gettime },
	{ "any, not about time", site_any, site_any_end, SYS_getppid },
};

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 1000, ends[2];
	struct itimerval often = { { 0, 100 }, { 0, 100 } };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	LT_CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	ready = (struct pollfd){ ends[0], POLLIN, 0 };
	if (!__builtin_cpu_supports("avx"))
		return 77;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned i = 0; i < sizeof sites / sizeof *sites; i++) {
		int wrong = 0;
		char where[64] = "";
		for (int round = 0; round < rounds; round++) {
			struct state before, after = { 0 };
			fill(&before, sites[i].call, round);
			sites[i].site(&before, &after);
			const char *what = differs(&before, &after);
			if (what && !wrong++)
				snprintf(where, sizeof where, "%s in round %d", what, round);
		}
		lt_emit("site", ",\"name\":\"%s\",\"rounds\":%d,\"wrong\":%d,\"where\":\"%s\",\"rewritten\":%d",
		        sites[i].name, rounds, wrong, where, sites[i].end[-7] == 0xff);
	}
	lt_emit("signals", ",\"count\":%d", (int)signals);
	return 0;
}
