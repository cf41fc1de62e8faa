/*
 * Clock reads of every id, through libc (the vDSO), through the vDSO found by hand, and raw.
 *     clocks read           one line per id: raw, libc, vDSO, raw again, in that order
 *     clocks advance        what each clock gains until stdin is closed
 *     clocks vdso           what AT_SYSINFO_EHDR points at
 *     clocks badptr         how a bad pointer given to libc's clock_gettime ends the process
 *     clocks now            REALTIME, MONOTONIC and BOOTTIME, once
 *     clocks watch NS EVERY prints "now" every EVERY ns of its own time for NS
 */
#include "../lt.h"
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#ifndef AT_SYSINFO_EHDR
#define AT_SYSINFO_EHDR 33
#endif
#define NONE (-1LL)

typedef int gettime_fn(clockid_t, struct timespec *);

/* A dynamic symbol of the vDSO, by section-free lookup as Go and musl do it. */
static void *vdso_symbol(const char *want)
{
	uintptr_t base = getauxval(AT_SYSINFO_EHDR), delta = 0;
	const Elf64_Ehdr *eh = (void *)base;
	const Elf64_Sym *syms = NULL;
	const char *strs = NULL;
	const uint32_t *hash = NULL;
	if (!base || memcmp(eh->e_ident, ELFMAG, SELFMAG))
		return NULL;
	const Elf64_Phdr *ph = (void *)(base + eh->e_phoff);
	const Elf64_Dyn *dyn = NULL;
	int seen = 0;
	for (int i = 0; i < eh->e_phnum; i++) {
		if (ph[i].p_type == PT_LOAD && !seen++)
			delta = base + ph[i].p_offset - ph[i].p_vaddr;
		if (ph[i].p_type == PT_DYNAMIC)
			dyn = (void *)(base + ph[i].p_offset);
	}
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_STRTAB)
			strs = (void *)(delta + dyn->d_un.d_ptr);
		if (dyn->d_tag == DT_SYMTAB)
			syms = (void *)(delta + dyn->d_un.d_ptr);
		if (dyn->d_tag == DT_HASH)
			hash = (void *)(delta + dyn->d_un.d_ptr);
	}
	if (!strs || !syms || !hash)
		return NULL;
	for (uint32_t i = 0; i < hash[1]; i++)
		if (syms[i].st_shndx && !strcmp(strs + syms[i].st_name, want))
			return (void *)(delta + syms[i].st_value);
	return NULL;
}

static lt_ns read_raw(clockid_t id)
{
	struct timespec t;
	return syscall(SYS_clock_gettime, id, &t) ? NONE : t.tv_sec * LT_SEC + t.tv_nsec;
}

static lt_ns read_by(gettime_fn *f, clockid_t id)
{
	struct timespec t;
	return !f || f(id, &t) ? NONE : t.tv_sec * LT_SEC + t.tv_nsec;
}

static lt_ns res(clockid_t id)
{
	struct timespec t;
	return clock_getres(id, &t) ? NONE : t.tv_sec * LT_SEC + t.tv_nsec;
}

static void do_read(void)
{
	gettime_fn *vdso = (gettime_fn *)vdso_symbol("__vdso_clock_gettime");
	struct timeval tv, tvr;
	for (int id = 0; id < 12; id++) {
		lt_ns r1 = read_raw(id), libc = read_by(clock_gettime, id), v = read_by(vdso, id),
		      r2 = read_raw(id);
		lt_emit("clock", ",\"id\":%d,\"raw\":%lld,\"libc\":%lld,\"vdso\":%lld,\"raw2\":%lld,"
			"\"res\":%lld", id, r1, libc, v, r2, res(id));
	}
	lt_ns r1 = read_raw(CLOCK_REALTIME);
	time_t a = time(NULL), b = syscall(SYS_time, NULL);
	gettimeofday(&tv, NULL);
	syscall(SYS_gettimeofday, &tvr, NULL);
	lt_ns r2 = read_raw(CLOCK_REALTIME);
	lt_emit("wall", ",\"raw\":%lld,\"time\":%lld,\"time_raw\":%lld,\"tod\":%lld,\"tod_raw\":%lld,"
		"\"raw2\":%lld", r1, (lt_ns)a, (lt_ns)b, tv.tv_sec * LT_SEC + tv.tv_usec * 1000LL,
		tvr.tv_sec * LT_SEC + tvr.tv_usec * 1000LL, r2);
}

/* The monotonic clock is read before and after all others, both times: what it gains between is the least and the most of theirs. */
static void do_advance(void)
{
	lt_ns t0[12], t1[12];
	char end;
	lt_ns before = read_raw(CLOCK_MONOTONIC);
	for (int id = 0; id < 12; id++)
		t0[id] = read_raw(id);
	lt_ns begun = read_raw(CLOCK_MONOTONIC);
	lt_emit("ready", NULL);
	LT_CHECK(read(0, &end, 1) == 0);
	lt_ns ended = read_raw(CLOCK_MONOTONIC);
	for (int id = 0; id < 12; id++)
		t1[id] = read_by(clock_gettime, id);
	lt_ns after = read_raw(CLOCK_MONOTONIC);
	for (int id = 0; id < 12; id++)
		lt_emit("advance", ",\"id\":%d,\"gain\":%lld", id, t1[id] - t0[id]);
	lt_emit("within", ",\"least\":%lld,\"most\":%lld", ended - begun, after - before);
}

static void do_vdso(void)
{
	unsigned (*getcpu)(unsigned *, unsigned *, void *);
	unsigned cpu = 9999, node = 9999;
	getcpu = (unsigned (*)(unsigned *, unsigned *, void *))vdso_symbol("__vdso_getcpu");
	if (getcpu)
		getcpu(&cpu, &node, NULL);
	lt_emit("vdso", ",\"present\":%d,\"clock_gettime\":%d,\"gettimeofday\":%d,\"time\":%d,"
		"\"clock_getres\":%d,\"getcpu\":%d", getauxval(AT_SYSINFO_EHDR) != 0,
		vdso_symbol("__vdso_clock_gettime") != NULL, vdso_symbol("__vdso_gettimeofday") != NULL,
		vdso_symbol("__vdso_time") != NULL, vdso_symbol("__vdso_clock_getres") != NULL,
		!getcpu || cpu < 4096);
}

static void do_badptr(void)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		clock_gettime(CLOCK_MONOTONIC, (void *)8);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	lt_emit("badptr", ",\"signal\":%d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void do_now(void)
{
	lt_ns real = lt_now(CLOCK_REALTIME), mono = lt_now(CLOCK_MONOTONIC);
	lt_emit("now", ",\"pid\":%d,\"real\":%lld,\"mono\":%lld,\"boot\":%lld,\"real_raw\":%lld,"
		"\"tai\":%lld", getpid(), real, mono, lt_now(CLOCK_BOOTTIME), read_raw(CLOCK_REALTIME),
		lt_now(CLOCK_TAI));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "read"))
		do_read();
	else if (!strcmp(what, "advance"))
		do_advance();
	else if (!strcmp(what, "vdso"))
		do_vdso();
	else if (!strcmp(what, "badptr"))
		do_badptr();
	else if (!strcmp(what, "now"))
		do_now();
	else if (!strcmp(what, "watch") && argc > 3) {
		lt_ns end = lt_now(CLOCK_MONOTONIC) + atoll(argv[2]);
		for (do_now(); lt_now(CLOCK_MONOTONIC) < end; do_now())
			lt_sleep(atoll(argv[3]));
	} else
		return 96;
	lt_emit("end", NULL);
	return 0;
}
