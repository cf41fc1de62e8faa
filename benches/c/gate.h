// The gate of an experiment's programs: a FIFO that the benchmark has open for writing.
//
// With a byte in it, which no program reads, the gate is open. When the benchmark closes it, for whatever
// reason, the programs end: none keeps running. A check of the gate takes no wait in virtual time.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "bench.h"

static inline int gate_of(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s GATE\n", argv[0]);
		exit(2);
	}
	int gate = open(argv[1], O_RDONLY | O_NONBLOCK);
	// The benchmark removes the name before it closes the gate. A program that opens a gate already closed would
	// never see that.
	if (gate < 0 || access(argv[1], F_OK) != 0)
		exit(0);
	return gate;
}

// Waits `timeout` ms (-1: forever) for one of `events`. Exits if the gate has been closed.
static inline void at_gate(int gate, short events, int timeout)
{
	struct pollfd watched = {gate, events, 0};
	if (poll(&watched, 1, timeout) > 0 && (watched.revents & POLLHUP))
		exit(0);
}
