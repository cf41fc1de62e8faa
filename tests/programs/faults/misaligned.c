/*
 * misaligned: resource usage and CPU times written to addresses of every alignment.
 *
 *     {"ev":"done","call":"getrusage","offset":3,"ret":0,"sane":1}
 */
#include "../lt.h"
#include <sys/times.h>

static unsigned char memory[1024] __attribute__((aligned(64)));

static void say(const char *call, int offset, long ret, int sane)
{
	printf("{\"ev\":\"done\",\"call\":\"%s\",\"offset\":%d,\"ret\":%d,\"sane\":%d}\n", call, offset, ret >= 0 ? 0 : -1, sane);
}

/* Less than an hour, and not negative. */
static int is_sane(const void *usage)
{
	struct timeval user;
	memcpy(&user, usage, sizeof user);
	return user.tv_sec >= 0 && user.tv_sec < 3600 && user.tv_usec >= 0 && user.tv_usec < 1000000;
}

int main(void)
{
	for (int offset = 0; offset < 16; offset++) {
		unsigned char *at = memory + 256 + offset;
		memset(memory, 0xff, sizeof memory);
		long ret = syscall(SYS_getrusage, RUSAGE_SELF, at);
		say("getrusage", offset, ret, is_sane(at));
		memset(memory, 0xff, sizeof memory);
		ret = syscall(SYS_times, at);
		clock_t first;
		memcpy(&first, at, sizeof first);
		say("times", offset, ret, first >= 0 && first < 360000);
		memset(memory, 0xff, sizeof memory);
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		ret = syscall(SYS_wait4, pid, NULL, 0, at);
		say("wait4", offset, ret, is_sane(at));
	}
	return 0;
}
