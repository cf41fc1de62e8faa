/*
 * filtered NUMBER...: refuses these system calls to itself with EPERM, as an engine's seccomp profile does, and prints what its
 * wall clock shows, again and again.
 *
 *     {"ev":"ready"}
 *     {"ev":"year","year":2026}
 */
#include "../lt.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define MAX_NUMBERS 16

int main(int argc, char **argv)
{
	struct sock_filter code[2 * MAX_NUMBERS + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	};
	struct sock_fprog program = { .len = 1, .filter = code };

	LT_CHECK(argc <= MAX_NUMBERS);
	for (int i = 1; i < argc; i++) {
		struct sock_filter skip = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(argv[i]), 0, 1);
		struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);

		code[program.len++] = skip;
		code[program.len++] = refuse;
	}
	code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	LT_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	LT_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	lt_emit("ready", "%s", "");
	for (;;) {
		time_t now = time(NULL);

		lt_emit("year", ",\"year\":%d", gmtime(&now)->tm_year + 1900);
		usleep(20000);
	}
}
