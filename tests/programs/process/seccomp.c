/*
 * A program with a seccomp filter of its own: seccomp FILTER NS
 *     getppid    getppid fails with EPERM, all else is allowed
 *     waits      ppoll, futex and epoll_pwait2 fail with EPERM: what a shim might use behind the
 *                program's back
 *     strict     all fails with EPERM but what nanosleep, printing and leaving need
 * then a nanosleep of NS; or, with further arguments, exec of these.
 */
#include "../lt.h"
#include <stddef.h>
#include <sys/prctl.h>

struct insn { uint16_t code; uint8_t jt, jf; uint32_t k; };
struct prog { unsigned short len; struct insn *filter; };
#define LOAD_NR { 0x20, 0, 0, 0 }
#define IF(nr, yes) { 0x15, yes, 0, nr }
#define RET(v) { 0x06, 0, 0, v }
#define ALLOW 0x7fff0000
#define DENY 0x00050001 /* ERRNO | EPERM */

static struct insn getppid_filter[] = { LOAD_NR, { 0x15, 0, 1, SYS_getppid }, RET(DENY), RET(ALLOW) };
static struct insn waits_filter[] = {
	LOAD_NR, IF(SYS_ppoll, 3), IF(SYS_futex, 2), IF(SYS_epoll_pwait2, 1), RET(ALLOW), RET(DENY)
};
static struct insn strict_filter[] = {
	LOAD_NR, IF(SYS_nanosleep, 7), IF(SYS_clock_nanosleep, 6), IF(SYS_write, 5),
	IF(SYS_exit_group, 4), IF(SYS_rt_sigreturn, 3), IF(SYS_clock_gettime, 2), IF(SYS_exit, 1),
	RET(DENY), RET(ALLOW)
};

int main(int argc, char **argv)
{
	struct prog p = { 0, NULL };
	struct timespec t;
	lt_ns t0, t1;
	int r, e;
	if (argc < 3)
		return 96;
	if (!strcmp(argv[1], "getppid"))
		p = (struct prog){ 4, getppid_filter };
	else if (!strcmp(argv[1], "waits"))
		p = (struct prog){ 6, waits_filter };
	else if (!strcmp(argv[1], "strict"))
		p = (struct prog){ 10, strict_filter };
	else
		return 96;
	t = lt_ts(atoll(argv[2]));
	lt_now(CLOCK_MONOTONIC);
	LT_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	errno = 0;
	r = prctl(PR_SET_SECCOMP, 2, &p, 0, 0);
	e = errno;
	if (r) {
		lt_emit("seccomp", ",\"installed\":0,\"err\":%d", e);
		return 0;
	}
	if (argc > 3) {
		execvp(argv[3], argv + 3);
		lt_die("execvp");
	}
	t0 = lt_now(CLOCK_MONOTONIC);
	r = nanosleep(&t, NULL);
	t1 = lt_now(CLOCK_MONOTONIC);
	errno = 0;
	long parent = syscall(SYS_getppid);
	lt_emit("seccomp", ",\"installed\":1,\"ret\":%d,\"slept\":%.6f,\"getppid\":%ld,\"err\":%d", r,
		lt_sec(t1 - t0), parent < 0 ? parent : 1, errno);
	return 0;
}
