// A program of an experiment that computes: factorials of large numbers, again and again.
//
//     factorials GATE
//
// The program begins when the gate is opened and ends when the gate is closed. Whenever its clock
// stands still it writes a line, `TIME TICKS`. TIME is its CLOCK_MONOTONIC, ns. TICKS is how long
// it ran on before it was stopped, in ticks of the time-stamp counter. So it reports both sides of
// a round's end: the time it reads, and the time it cannot see.
#define _GNU_SOURCE
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"

enum {
	LIMBS = 24,	  // the largest factorial has 24 * 32 bits
	LARGEST = 120,	  // its number
	OFTEN = 1 << 14,  // so many steps between two looks at the gate
	SAME = 16,	  // so many equal readings: the clock stands, for it cannot run as slowly
	STOPPED = 30000,  // ticks between two readings: it was stopped in between
};

static uint32_t number[LIMBS]; // least significant first

static void multiply(uint32_t factor)
{
	uint64_t carry = 0;
	for (int i = 0; i < LIMBS; i++) {
		carry += (uint64_t)number[i] * factor;
		number[i] = (uint32_t)carry;
		carry >>= 32;
	}
}

static int64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

// Waits until the clock goes on after `at`, which it first read at `since` ticks. Writes a line for
// the standstill.
static void while_it_stands(int64_t at, uint64_t since)
{
	uint64_t last = since;
	char line[64];
	int same = 0, stopped = 0;
	while (now() == at) {
		uint64_t tick = __rdtsc();
		stopped |= tick - last > STOPPED;
		if (!stopped)
			last = tick;
		same++;
	}
	if (same < SAME && !stopped)
		return;
	int length = snprintf(line, sizeof line, "%lld %llu\n", (long long)at, (unsigned long long)(last - since));
	if (write(STDOUT_FILENO, line, (size_t)length) != length)
		die("write");
}

int main(int argc, char **argv)
{
	int gate = gate_of(argc, argv);
	at_gate(gate, POLLIN, -1);
	int64_t before = 0;
	uint32_t factor = 1;
	for (uint32_t step = 1;; step++, factor++) {
		if (step % OFTEN == 0)
			at_gate(gate, POLLIN, 0);
		if (factor == 1 || factor > LARGEST) {
			memset(number, 0, sizeof number);
			number[0] = factor = 1;
		}
		multiply(factor);
		int64_t read = now();
		if (read == before)
			while_it_stands(read, __rdtsc());
		before = read;
	}
}
