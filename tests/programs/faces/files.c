/*
 * File times. `files DIR` works in DIR and prints
 *   {"ev":"times","call":"stat","mtime":ns,...}    for each call of the stat family, of DIR/old
 *   {"ev":"fresh","how":"create","mtime":s,...}    what was just created, written, touched: its mtime and ctime, and the
 *                                                  clock just after that and now, all since the kernel's
 *                                                  coarse clock just before that
 *   {"ev":"explicit","how":"utimensat","same":1}   times set by hand read back as they were set
 * ages are CLOCK_REALTIME minus the file's time, in seconds.
 */
#include "../lt.h"
#include <sys/stat.h>
#include <utime.h>

struct statx_ts { int64_t sec; uint32_t nsec; int32_t pad; };
struct statx_buf {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, pad1;
	uint64_t ino, size, blocks, attributes_mask;
	struct statx_ts atime, btime, ctime, mtime;
	uint64_t pad2[14];
};

static lt_ns ns_of(struct timespec t) { return t.tv_sec * LT_SEC + t.tv_nsec; }

static double age(lt_ns t) { return lt_sec(lt_now(CLOCK_REALTIME) - t); }

static void times(const char *call, lt_ns a, lt_ns m, lt_ns c)
{
	lt_emit("times", ",\"call\":\"%s\",\"atime\":%lld,\"mtime\":%lld,\"ctime\":%lld,"
		"\"age\":%.6f", call, a, m, c, age(m));
}

static void st(const char *call, const struct stat *s)
{
	times(call, ns_of(s->st_atim), ns_of(s->st_mtim), ns_of(s->st_ctim));
}

static struct stat get(const char *path)
{
	struct stat s;
	LT_CHECK(stat(path, &s) == 0);
	return s;
}

/* Prints the times of `path`, which was changed between `before` and `after`. */
static void fresh(const char *how, const char *path, lt_ns before, lt_ns after)
{
	struct stat s = get(path);
	lt_emit("fresh", ",\"how\":\"%s\",\"mtime\":%.9f,\"ctime\":%.9f,\"after\":%.9f,\"now\":%.9f",
		how, lt_sec(ns_of(s.st_mtim) - before), lt_sec(ns_of(s.st_ctim) - before),
		lt_sec(after - before), lt_sec(lt_now(CLOCK_REALTIME) - before));
}

static void every_stat(const char *path)
{
	struct stat s;
	struct statx_buf x;
	int fd = open(path, O_RDONLY);
	LT_CHECK(fd >= 0);
	LT_CHECK(stat(path, &s) == 0);
	st("stat", &s);
	LT_CHECK(lstat(path, &s) == 0);
	st("lstat", &s);
	LT_CHECK(fstat(fd, &s) == 0);
	st("fstat", &s);
	LT_CHECK(fstatat(AT_FDCWD, path, &s, 0) == 0);
	st("fstatat", &s);
	LT_CHECK(syscall(SYS_stat, path, &s) == 0);
	st("raw stat", &s);
	LT_CHECK(syscall(SYS_lstat, path, &s) == 0);
	st("raw lstat", &s);
	LT_CHECK(syscall(SYS_fstat, fd, &s) == 0);
	st("raw fstat", &s);
	LT_CHECK(syscall(SYS_newfstatat, AT_FDCWD, path, &s, AT_SYMLINK_NOFOLLOW) == 0);
	st("raw newfstatat", &s);
	LT_CHECK(syscall(SYS_newfstatat, fd, "", &s, AT_EMPTY_PATH) == 0);
	st("raw newfstatat fd", &s);
	LT_CHECK(syscall(332 /* statx */, AT_FDCWD, path, 0, 0xfffU, &x) == 0);
	times("statx", x.atime.sec * LT_SEC + x.atime.nsec, x.mtime.sec * LT_SEC + x.mtime.nsec,
	      x.ctime.sec * LT_SEC + x.ctime.nsec);
	close(fd);
}

static void explicit_(const char *how, int failed, const char *path, lt_ns want, lt_ns grain)
{
	struct stat s = get(path);
	lt_ns a = ns_of(s.st_atim), m = ns_of(s.st_mtim);
	int same = !failed && a / grain == want / grain && m / grain == (want + LT_SEC) / grain;
	lt_emit("explicit", ",\"how\":\"%s\",\"same\":%d,\"err\":%d,\"off\":%lld", how, same,
		failed ? errno : 0, m - want - LT_SEC);
}

int main(int argc, char **argv)
{
	const lt_ns t = 1600000000 * LT_SEC + 123456789;
	struct timespec both[2] = { lt_ts(t), lt_ts(t + LT_SEC) };
	struct timespec now[2] = { { 0, (1 << 30) - 1 }, { 0, (1 << 30) - 1 } }; /* UTIME_NOW */
	struct timespec omit[2] = { { 0, (1 << 30) - 2 }, { 77, 0 } };           /* UTIME_OMIT */
	struct timeval tv[2] = { lt_tv(t), lt_tv(t + LT_SEC) };
	struct utimbuf ub = { t / LT_SEC, t / LT_SEC + 1 };
	const char *f = "new";
	int fd;
	if (argc < 2 || chdir(argv[1]))
		return 96;
	if (!access("old", F_OK))
		every_stat("old");

	lt_ns before = lt_now(CLOCK_REALTIME_COARSE);
	LT_CHECK((fd = open(f, O_CREAT | O_TRUNC | O_RDWR, 0644)) >= 0);
	fresh("create", f, before, lt_now(CLOCK_REALTIME));
#define FRESH(how, change) do { \
		LT_CHECK(utimensat(AT_FDCWD, f, both, 0) == 0); \
		before = lt_now(CLOCK_REALTIME_COARSE); \
		LT_CHECK(change); \
		fresh(how, f, before, lt_now(CLOCK_REALTIME)); \
	} while (0)
	FRESH("write", write(fd, "x", 1) == 1 && fsync(fd) == 0);
	FRESH("utimensat null", utimensat(AT_FDCWD, f, NULL, 0) == 0);
	FRESH("utimensat now", utimensat(AT_FDCWD, f, now, 0) == 0);
	FRESH("utimes null", utimes(f, NULL) == 0);
	FRESH("utime null", utime(f, NULL) == 0);
	FRESH("futimens null", futimens(fd, NULL) == 0);

	explicit_("utimensat", utimensat(AT_FDCWD, f, both, 0), f, t, 1);
	utimensat(AT_FDCWD, f, NULL, 0);
	explicit_("futimens", futimens(fd, both), f, t, 1);
	utimensat(AT_FDCWD, f, NULL, 0);
	explicit_("utimes", (int)syscall(SYS_utimes, f, tv), f, t, 1000);
	utimensat(AT_FDCWD, f, NULL, 0);
	explicit_("futimesat", (int)syscall(SYS_futimesat, AT_FDCWD, f, tv), f, t, 1000);
	utimensat(AT_FDCWD, f, NULL, 0);
	explicit_("utime", (int)syscall(SYS_utime, f, &ub), f, t, LT_SEC);
	utimensat(AT_FDCWD, f, both, 0);
	LT_CHECK(utimensat(AT_FDCWD, f, omit, 0) == 0); /* mtime becomes 77 s, atime stays */
	struct stat s = get(f);
	lt_emit("explicit", ",\"how\":\"utimensat omit\",\"same\":%d,\"err\":0,\"off\":0",
		ns_of(s.st_atim) == t && ns_of(s.st_mtim) == 77 * LT_SEC);
	lt_sleep(argc > 2 ? atoll(argv[2]) : 0);
	before = lt_now(CLOCK_REALTIME_COARSE);
	utimensat(AT_FDCWD, f, NULL, 0);
	lt_ns after = lt_now(CLOCK_REALTIME);
	lt_sleep(argc > 2 ? atoll(argv[2]) : 0);
	fresh("aged", f, before, after);
	lt_emit("end", NULL);
	return 0;
}
