/*
 * Starts another program in every way there is: tree HOW PROGRAM ARG...
 * and prints {"ev":"tree","how":HOW,"status":s,...} when it has ended.
 */
#include "../lt.h"
#include <spawn.h>
#include <sys/stat.h>

extern char **environ;
static char **args;

static void report(const char *how, pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	lt_emit("tree", ",\"how\":\"%s\",\"status\":%d", how, status);
}

static void *exec_it(void *p)
{
	(void)p;
	execv(args[0], args);
	lt_die("execv");
}

/* A call that must fail: its errno, and that time goes on in this process afterwards. */
static void failing(const char *how, const char *path, char **av, char **ev)
{
	lt_ns t0;
	errno = 0;
	int r = execve(path, av, ev), e = errno;
	t0 = lt_now(CLOCK_MONOTONIC);
	lt_sleep(100000000);
	lt_emit("tree", ",\"how\":\"%s\",\"status\":%d,\"err\":%d,\"slept\":%.6f", how, r, e,
		lt_sec(lt_now(CLOCK_MONOTONIC) - t0));
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	posix_spawnattr_t attr;
	sigset_t all;
	pid_t pid;
	if (argc < 3)
		return 96;
	args = argv + 2;

	if (!strcmp(how, "fork")) {
		if ((pid = fork()) == 0)
			exec_it(NULL);
		report(how, pid);
	} else if (!strcmp(how, "vfork")) {
		if ((pid = vfork()) == 0) {
			execv(args[0], args);
			_exit(127);
		}
		report(how, pid);
	} else if (!strcmp(how, "posix_spawn")) {
		LT_CHECK(posix_spawn(&pid, args[0], NULL, NULL, args, environ) == 0);
		report(how, pid);
	} else if (!strcmp(how, "posix_spawn-signals")) {
		sigfillset(&all);
		posix_spawnattr_init(&attr);
		posix_spawnattr_setsigmask(&attr, &all);
		posix_spawnattr_setsigdefault(&attr, &all);
		posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
		LT_CHECK(posix_spawn(&pid, args[0], NULL, &attr, args, environ) == 0);
		report(how, pid);
	} else if (!strcmp(how, "posix_spawn-enoent")) {
		int e = posix_spawn(&pid, "/no/such/program", NULL, NULL, args, environ);
		lt_emit("tree", ",\"how\":\"%s\",\"status\":0,\"err\":%d", how, e);
	} else if (!strcmp(how, "exec")) {
		exec_it(NULL);
	} else if (!strcmp(how, "exec-thread")) {
		lt_thread(exec_it, NULL);
		for (;;)
			pause();
	} else if (!strcmp(how, "exec-sigsys-blocked")) {
		lt_block(SIGSYS);
		exec_it(NULL);
	} else if (!strcmp(how, "exec-sigsys-ignored")) {
		signal(SIGSYS, SIG_IGN);
		exec_it(NULL);
	} else if (!strcmp(how, "exec-all-blocked")) {
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		signal(SIGSYS, SIG_IGN);
		exec_it(NULL);
	} else if (!strcmp(how, "fexecve")) {
		int fd = open(args[0], O_RDONLY | O_CLOEXEC);
		LT_CHECK(fd >= 0);
		fexecve(fd, args, environ);
		lt_die("fexecve");
	} else if (!strcmp(how, "execveat-empty")) {
		int fd = open(args[0], O_RDONLY);
		LT_CHECK(fd >= 0);
		syscall(322, fd, "", args, environ, 0x1000 /* AT_EMPTY_PATH */);
		lt_die("execveat");
	} else if (!strcmp(how, "execveat-dir")) {
		char *slash = strrchr(args[0], '/');
		*slash = 0;
		int fd = open(args[0], O_RDONLY | O_DIRECTORY);
		LT_CHECK(fd >= 0);
		syscall(322, fd, slash + 1, args, environ, 0);
		lt_die("execveat");
	} else if (!strcmp(how, "enoent")) {
		failing(how, "/no/such/program", args, environ);
	} else if (!strcmp(how, "eacces")) {
		failing(how, "/etc/passwd", args, environ);
	} else if (!strcmp(how, "eacces-directory")) {
		failing(how, "/", args, environ);
	} else if (!strcmp(how, "efault")) {
		failing(how, (char *)8, args, environ);
	} else if (!strcmp(how, "efault-argv")) {
		failing(how, args[0], (char **)8, environ);
	} else if (!strcmp(how, "enoexec")) {
		char path[] = "/tmp/lt-noexec-XXXXXX";
		int fd = mkstemp(path);
		LT_CHECK(fd >= 0 && write(fd, "not a program\n", 14) == 14 && fchmod(fd, 0755) == 0);
		close(fd);
		failing(how, path, args, environ);
		unlink(path);
	} else
		return 96;
	return 0;
}
