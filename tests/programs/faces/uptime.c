/*
 * The uptime by its faces: sysinfo, /proc/uptime read in several ways, btime; and CLOCK_BOOTTIME before ("boot") and after
 * ("until") all of them. "real" is CLOCK_REALTIME between "boot" and "by".
 */
#include "../lt.h"
#include <sys/sysinfo.h>

static double by_fd(int fd)
{
	char buf[128] = { 0 };
	LT_CHECK(fd >= 0 && read(fd, buf, sizeof buf - 1) > 0);
	close(fd);
	return atof(buf);
}

static double by_stdio(void)
{
	FILE *f = fopen("/proc/uptime", "r");
	double up = -1;
	LT_CHECK(f && fscanf(f, "%lf", &up) == 1);
	fclose(f);
	return up;
}

static long long btime(void)
{
	FILE *f = fopen("/proc/stat", "r");
	char line[4096];
	long long b = -1;
	LT_CHECK(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "btime %lld", &b) == 1)
			break;
	fclose(f);
	return b;
}

/* Seconds since boot at which this process was started: /proc/self/stat, field 22. */
static double starttime(void)
{
	FILE *f = fopen("/proc/self/stat", "r");
	char line[1024], *p;
	int field;
	LT_CHECK(f && fgets(line, sizeof line, f));
	fclose(f);
	p = strrchr(line, ')') + 2;
	for (field = 3; field < 22; field++)
		p = strchr(p, ' ') + 1;
	return (double)atoll(p) / (double)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv)
{
	struct sysinfo si;
	if (argc > 1)
		lt_sleep(atoll(argv[1]));
	lt_ns boot = lt_now(CLOCK_BOOTTIME), real = lt_now(CLOCK_REALTIME), by = lt_now(CLOCK_BOOTTIME);
	LT_CHECK(sysinfo(&si) == 0);
	double open_ = by_fd((int)syscall(SYS_open, "/proc/uptime", O_RDONLY));
	double openat_ = by_fd((int)syscall(SYS_openat, AT_FDCWD, "/proc/uptime", O_RDONLY));
	double stdio = by_stdio(), start = starttime();
	long long booted = btime();
	lt_emit("uptime", ",\"boot\":%.3f,\"real\":%.3f,\"by\":%.3f,\"sysinfo\":%ld,\"open\":%.3f,"
		"\"openat\":%.3f,\"stdio\":%.3f,\"btime\":%lld,\"start\":%.3f,\"until\":%.3f", lt_sec(boot),
		lt_sec(real), lt_sec(by), si.uptime, open_, openat_, stdio, booted, start,
		lt_sec(lt_now(CLOCK_BOOTTIME)));
	return 0;
}
