// A program of an experiment that sleeps, in virtual time, until the gate is closed.
//
//     resting GATE
#include <limits.h>

#include "gate.h"

int main(int argc, char **argv)
{
	int gate = gate_of(argc, argv);
	for (;;)
		at_gate(gate, 0, INT_MAX);
}
