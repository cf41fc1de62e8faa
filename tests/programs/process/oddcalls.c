/*
 * The time by ways no ordinary program takes: int 0x80 from 64-bit code, x32 numbers, the vsyscall
 * page. Each in a child: {"ev":"odd","how":"int80","value":seconds or -errno,"signal":n}.
 */
#include "../lt.h"

static long by_int80(void)
{
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(13L), "b"(0L) : "memory", "r8", "r9", "r10", "r11");
	return (int)r; /* 32-bit seconds: past 2038 they wrap, the caller widens them */
}

static long by_x32(void)
{
	struct timespec t = { -1, 0 };
	long r = syscall(0x40000000 | SYS_clock_gettime, CLOCK_REALTIME, &t);
	return r ? -errno : t.tv_sec;
}

static long by_vsyscall(void)
{
	long (*volatile f)(long *) = (long (*)(long *))0xffffffffff600400UL;
	return f(NULL);
}

static void odd(const char *how, long (*fn)(void))
{
	int p[2], status = 0;
	long v = 0;
	LT_CHECK(pipe(p) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		v = fn();
		LT_CHECK(write(p[1], &v, sizeof v) == sizeof v);
		_exit(0);
	}
	close(p[1]);
	LT_CHECK(waitpid(pid, &status, 0) == pid);
	if (read(p[0], &v, sizeof v) != sizeof v)
		v = 0;
	close(p[0]);
	lt_emit("odd", ",\"how\":\"%s\",\"value\":%ld,\"signal\":%d", how, v,
		WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void)
{
	odd("int80", by_int80);
	odd("x32", by_x32);
	odd("vsyscall", by_vsyscall);
	lt_emit("end", NULL);
	return 0;
}
