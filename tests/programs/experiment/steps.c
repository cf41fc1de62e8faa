/*
 * steps FILE WHO STEP_NS UNTIL_NS: sleeps in steps until UNTIL_NS of its own time, with a different phase for each WHO
 * (any number; 0 means the process id). Steps are 64 phases apart. FILE is shared: it has a count, then one entry for
 * each wake-up, in their order. An entry has WHO, and the time before and after the process took its place in that
 * order.
 */
#include "../lt.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct diary {
	_Atomic uint64_t next;
	int64_t entries[][3];
};

int main(int argc, char **argv)
{
	LT_CHECK(argc == 5);
	struct stat st;
	int fd = open(argv[1], O_RDWR);
	LT_CHECK(fd >= 0 && fstat(fd, &st) == 0);
	struct diary *diary = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	LT_CHECK(diary != MAP_FAILED);
	uint64_t room = ((uint64_t)st.st_size - sizeof(*diary)) / sizeof(diary->entries[0]);
	long who = atol(argv[2]) ? atol(argv[2]) : getpid();
	lt_ns step = atoll(argv[3]), until = atoll(argv[4]), due = lt_now(CLOCK_MONOTONIC);

	due += step - due % step + who % 64 * (step / 64);
	for (; due < until; due += step) {
		struct timespec at = lt_ts(due);
		LT_CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == 0);
		lt_ns now = lt_now(CLOCK_MONOTONIC);
		uint64_t place = atomic_fetch_add(&diary->next, 1);
		if (place < room) {
			diary->entries[place][0] = who;
			diary->entries[place][1] = now;
			diary->entries[place][2] = lt_now(CLOCK_MONOTONIC);
		}
		LT_CHECK(now >= due);
	}
	pause();
	return 0;
}
