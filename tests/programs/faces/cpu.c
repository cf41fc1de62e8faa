/*
 * CPU time by its many faces, spun up in this process.
 *     cpu spin NS        spin until the process's CPU clock has gained NS; then every face of it. By that clock each face
 *                        spans "least" seconds or more, and no more than "most"; times()'s return value spans from
 *                        "least_wall" to "wall" by CLOCK_MONOTONIC
 *     cpu child NS       the same in a child, read as RUSAGE_CHILDREN, wait4 and times
 *     cpu timer NS       ITIMER_PROF, ITIMER_VIRTUAL and a CPU-clock POSIX timer, one after the other
 *     cpu idle NS        sleep NS: times()'s return value moves with the clock; the bounds as above
 */
#include "../lt.h"
#include <sys/times.h>

static double cpu(clockid_t id) { return lt_sec(lt_now(id)); }

static void spin(lt_ns ns)
{
	lt_ns end = lt_now(CLOCK_PROCESS_CPUTIME_ID) + ns;
	while (lt_now(CLOCK_PROCESS_CPUTIME_ID) < end)
		;
}

static double usage(int who)
{
	struct rusage r;
	LT_CHECK(getrusage(who, &r) == 0);
	return lt_tv_sec(r.ru_utime) + lt_tv_sec(r.ru_stime);
}

static double raw_cpu(void)
{
	struct timespec t;
	LT_CHECK(syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
	return lt_ts_sec(t);
}

static void do_spin(lt_ns ns)
{
	double wall = cpu(CLOCK_MONOTONIC), p = cpu(CLOCK_PROCESS_CPUTIME_ID), u = usage(RUSAGE_SELF),
	       t = cpu(CLOCK_THREAD_CPUTIME_ID), raw = raw_cpu(), c = (double)clock() / CLOCKS_PER_SEC,
	       least, most, least_wall;
	double hz = (double)sysconf(_SC_CLK_TCK);
	clockid_t own;
	struct tms a, b;
	clock_t w0, w1;
	LT_CHECK(clock_getcpuclockid(0, &own) == 0);
	double o = cpu(own);
	w0 = times(&a);
	least_wall = cpu(CLOCK_MONOTONIC), least = cpu(CLOCK_PROCESS_CPUTIME_ID);
	spin(ns);
	least = cpu(CLOCK_PROCESS_CPUTIME_ID) - least, least_wall = cpu(CLOCK_MONOTONIC) - least_wall;
	w1 = times(&b);
	t = cpu(CLOCK_THREAD_CPUTIME_ID) - t;
	raw = raw_cpu() - raw;
	o = cpu(own) - o;
	u = usage(RUSAGE_SELF) - u;
	c = (double)clock() / CLOCKS_PER_SEC - c;
	most = cpu(CLOCK_PROCESS_CPUTIME_ID) - p;
	wall = cpu(CLOCK_MONOTONIC) - wall;
	lt_emit("cpu", ",\"wall\":%.6f,\"least_wall\":%.6f,\"least\":%.6f,\"most\":%.6f,\"thread\":%.6f,"
		"\"raw\":%.6f,\"own\":%.6f,\"rusage\":%.6f,\"tms\":%.6f,\"clock\":%.6f,\"times_wall\":%.6f",
		wall, least_wall, least, most, t, raw, o, u,
		(double)(b.tms_utime + b.tms_stime - a.tms_utime - a.tms_stime) / hz, c,
		(double)(w1 - w0) / hz);
}

static void do_child(lt_ns ns)
{
	double wall = cpu(CLOCK_MONOTONIC), u = usage(RUSAGE_CHILDREN);
	double hz = (double)sysconf(_SC_CLK_TCK);
	struct rusage r;
	struct tms a, b;
	times(&a);
	pid_t pid = fork();
	if (pid == 0) {
		spin(ns);
		_exit(0);
	}
	LT_CHECK(wait4(pid, NULL, 0, &r) == pid);
	times(&b);
	lt_emit("cpu", ",\"wall\":%.6f,\"rusage\":%.6f,\"wait4\":%.6f,\"tms\":%.6f",
		cpu(CLOCK_MONOTONIC) - wall, usage(RUSAGE_CHILDREN) - u,
		lt_tv_sec(r.ru_utime) + lt_tv_sec(r.ru_stime),
		(double)(b.tms_cutime + b.tms_cstime - a.tms_cutime - a.tms_cstime) / hz);
}

static volatile sig_atomic_t fired;
static void on_signal(int sig) { (void)sig; fired = 1; }

static double until_fired(void)
{
	double start = cpu(CLOCK_PROCESS_CPUTIME_ID);
	while (!fired)
		;
	fired = 0;
	return cpu(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static void do_timer(lt_ns ns)
{
	struct itimerval iv = { .it_value = lt_tv(ns) };
	struct itimerspec is = { .it_value = lt_ts(ns) };
	struct sigevent ev;
	timer_t t;
	double wall = cpu(CLOCK_MONOTONIC), prof, virt, posix;
	memset(&ev, 0, sizeof ev);
	lt_handle(SIGPROF, on_signal, 0);
	lt_handle(SIGVTALRM, on_signal, 0);
	lt_handle(SIGUSR1, on_signal, 0);
	LT_CHECK(setitimer(ITIMER_PROF, &iv, NULL) == 0);
	prof = until_fired();
	LT_CHECK(setitimer(ITIMER_VIRTUAL, &iv, NULL) == 0);
	virt = until_fired();
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = SIGUSR1;
	LT_CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &ev, &t) == 0);
	LT_CHECK(timer_settime(t, 0, &is, NULL) == 0);
	posix = until_fired();
	lt_emit("cpu", ",\"wall\":%.6f,\"prof\":%.6f,\"virtual\":%.6f,\"posix\":%.6f",
		cpu(CLOCK_MONOTONIC) - wall, prof, virt, posix);
}

static void do_idle(lt_ns ns)
{
	double hz = (double)sysconf(_SC_CLK_TCK), p = cpu(CLOCK_PROCESS_CPUTIME_ID);
	struct tms t;
	lt_ns first = lt_now(CLOCK_MONOTONIC);
	clock_t w = times(&t);
	lt_ns second = lt_now(CLOCK_MONOTONIC);
	lt_sleep(ns);
	lt_ns third = lt_now(CLOCK_MONOTONIC);
	w = times(&t) - w;
	lt_ns last = lt_now(CLOCK_MONOTONIC);
	lt_emit("cpu", ",\"wall\":%.6f,\"least_wall\":%.6f,\"process\":%.6f,\"times_wall\":%.6f",
		lt_sec(last - first), lt_sec(third - second), cpu(CLOCK_PROCESS_CPUTIME_ID) - p, (double)w / hz);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 96;
	lt_ns ns = atoll(argv[2]);
	if (!strcmp(argv[1], "spin"))
		do_spin(ns);
	else if (!strcmp(argv[1], "child"))
		do_child(ns);
	else if (!strcmp(argv[1], "timer"))
		do_timer(ns);
	else if (!strcmp(argv[1], "idle"))
		do_idle(ns);
	else
		return 96;
	lt_emit("end", NULL);
	return 0;
}
