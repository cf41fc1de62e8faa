/*
 * io_uring: either refused (then its errno), or IORING_OP_TIMEOUT waits `argv[1]` ns of the
 * program's own time.
 */
#include "../lt.h"
#include <sys/mman.h>

struct sq_offsets { uint32_t head, tail, mask, entries, flags, dropped, array, resv; uint64_t addr; };
struct cq_offsets { uint32_t head, tail, mask, entries, overflow, cqes, flags, resv; uint64_t addr; };
struct params {
	uint32_t sq_entries, cq_entries, flags, cpu, idle, features, wq_fd, resv[3];
	struct sq_offsets sq;
	struct cq_offsets cq;
};
struct sqe {
	uint8_t opcode, flags;
	uint16_t ioprio;
	int32_t fd;
	uint64_t off, addr;
	uint32_t len, op_flags;
	uint64_t user_data, pad[3];
};
struct kts { int64_t sec; long long nsec; };

int main(int argc, char **argv)
{
	struct params p;
	lt_ns ns = argc > 1 ? atoll(argv[1]) : LT_SEC, t0;
	memset(&p, 0, sizeof p);
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);
	if (fd < 0) {
		lt_emit("uring", ",\"refused\":%d", errno);
		return 0;
	}
	char *sq = mmap(NULL, p.sq.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct sqe *e = mmap(NULL, p.sq_entries * 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x10000000);
	LT_CHECK(sq != MAP_FAILED && e != MAP_FAILED);
	struct kts ts = { ns / LT_SEC, ns % LT_SEC };
	memset(e, 0, 64);
	e->opcode = 11; /* IORING_OP_TIMEOUT */
	e->addr = (uintptr_t)&ts;
	e->len = 1;
	((uint32_t *)(sq + p.sq.array))[0] = 0;
	__atomic_store_n((uint32_t *)(sq + p.sq.tail), 1, __ATOMIC_RELEASE);
	t0 = lt_now(CLOCK_MONOTONIC);
	LT_CHECK(syscall(SYS_io_uring_enter, fd, 1, 1, 1 /* GETEVENTS */, NULL, 0) == 1);
	lt_emit("uring", ",\"refused\":0,\"elapsed\":%.6f", lt_sec(lt_now(CLOCK_MONOTONIC) - t0));
	return 0;
}
