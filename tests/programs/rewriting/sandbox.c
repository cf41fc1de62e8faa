/*
 * sandbox: opens a file often, so that its call site is hot; then adds a seccomp filter that refuses openat with EACCES, and
 * opens it again: {"ev":"open","before":0,"after":13}
 */
#include "../lt.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static int try_to_open(void)
{
	int fd = open("/", O_RDONLY);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

int main(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };
	int before = 0;
	for (int i = 0; i < 100; i++)
		before |= try_to_open();
	LT_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	LT_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	int after = try_to_open();
	lt_emit("open", ",\"before\":%d,\"after\":%d", before, after);
	return 0;
}
