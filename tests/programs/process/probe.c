/*
 * The program at the end of every exec: prints the time it reads.
 *     probe [SLEEP_NS [EXIT_STATUS]]
 * prints {"ev":"probe","real":s,"real_raw":s,"mono":s,"slept":s,...}; "slept" is what its own
 * clock says a nanosleep of SLEEP_NS took.
 */
#include "../lt.h"

extern char **environ;

int main(int argc, char **argv)
{
	lt_ns ns = argc > 1 ? atoll(argv[1]) : 0, t0;
	struct timespec raw;
	struct sigaction sys;
	sigset_t mask;
	int envs = 0;
	char cwd[1024] = "";
	while (environ && environ[envs])
		envs++;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaction(SIGSYS, NULL, &sys);
	LT_CHECK(getcwd(cwd, sizeof cwd));
	LT_CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, &raw) == 0);
	t0 = lt_now(CLOCK_MONOTONIC);
	lt_sleep(ns);
	lt_emit("probe", ",\"pid\":%d,\"argc\":%d,\"argv0\":\"%s\",\"real\":%.6f,\"real_raw\":%.6f,"
		"\"mono\":%.9f,\"slept\":%.9f,\"sigsys_blocked\":%d,\"sigsys_ignored\":%d,\"envs\":%d,"
		"\"euid\":%d,\"uid\":%d,\"cwd\":\"%s\"", getpid(), argc, argv[0],
		lt_sec(lt_now(CLOCK_REALTIME)), lt_ts_sec(raw), lt_sec(lt_now(CLOCK_MONOTONIC)),
		lt_sec(lt_now(CLOCK_MONOTONIC) - t0), sigismember(&mask, SIGSYS),
		sys.sa_handler == SIG_IGN, envs, geteuid(), getuid(), cwd);
	return argc > 2 ? atoi(argv[2]) : 0;
}
