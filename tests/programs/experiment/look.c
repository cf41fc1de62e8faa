/*
 * look FILE THREADS: threads that read the monotonic clock again and again, by the vDSO and raw. FILE, 24 bytes, shows
 * other processes the latest time read, the number of readings earlier than another thread's before, and the number of
 * reads.
 */
#include "../lt.h"
#include <stdatomic.h>
#include <sys/mman.h>

struct seen {
	_Atomic int64_t latest, backward, reads;
};

static struct seen *seen;

static lt_ns raw(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * LT_SEC + t.tv_nsec;
}

static void *look(void *unused)
{
	(void)unused;
	for (unsigned i = 0;; i++) {
		int64_t before = atomic_load(&seen->latest);
		int64_t now = i % 16 ? lt_now(CLOCK_MONOTONIC) : raw();

		if (now < before)
			atomic_fetch_add(&seen->backward, 1);
		while (now > before && !atomic_compare_exchange_weak(&seen->latest, &before, now))
			;
		atomic_fetch_add(&seen->reads, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	LT_CHECK(argc == 3);
	int fd = open(argv[1], O_RDWR);
	LT_CHECK(fd >= 0);
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	LT_CHECK(seen != MAP_FAILED);
	for (int i = 1; i < atoi(argv[2]); i++)
		lt_thread(look, NULL);
	look(NULL);
}
