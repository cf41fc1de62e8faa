"""A simulator that moves two containers and carries their messages between its steps, as S3F does.

    PYTHONPATH=python python3 examples/simulator/exchange.py [--delay 20] [--requests 10] [--tdf 1]

The simulated network is one link. A message that a program sends at virtual time T reaches the
other program at T + delay, to the nanosecond: the simulator moves both containers to that instant
before it delivers. It may move them by the delay at once, for no message that is sent meanwhile
arrives earlier (the link's lookahead).
"""

from __future__ import annotations

import argparse
import heapq
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lorentz import Container, Experiment

NODE = Path(__file__).with_name("node.py")
#: The timeline of both containers.
TIMELINE = 0
NANOS_PER_MS = 1_000_000


@dataclass
class Node:
    """A program in its container, with the simulator at its standard streams."""

    container: Container
    program: subprocess.Popen
    unread: bytes = b""
    #: The round trips that the program has measured, virtual ns.
    took: list[int] = field(default_factory=list)

    def lines(self) -> list[list[str]]:
        """The lines that the program has printed since the last call, in words."""
        try:
            while piece := os.read(self.program.stdout.fileno(), 65536):
                self.unread += piece
        except BlockingIOError:
            pass
        *lines, self.unread = self.unread.split(b"\n")
        return [line.decode().split(" ", 2) for line in lines]

    def deliver(self, message: str) -> None:
        self.program.stdin.write(f"{message}\n".encode())
        self.program.stdin.flush()


def started(experiment: Experiment, name: str, tdf: str, *words: str) -> Node:
    container = experiment.container(name, tdf=tdf, timeline=TIMELINE)
    command = [sys.executable, str(NODE), *words]
    program = container.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    os.set_blocking(program.stdout.fileno(), False)
    return Node(container, program)


def simulate(experiment: Experiment, asks: Node, answers: Node, delay: int, requests: int) -> None:
    """Moves both nodes until each request has its answer. `delay`: virtual ns."""
    #: Messages under way: when they arrive (virtual ns), their number, the receiver, the text.
    under_way: list[tuple[int, int, Node, str]] = []
    number = 0
    experiment.synchronize()
    now = asks.container.time().monotonic_ns
    while len(asks.took) < requests:
        arrival = under_way[0][0] if under_way else now + delay
        step = min(arrival - now, delay)
        for node in (asks, answers):
            experiment.set_interval(node.container, f"{step}ns")
        experiment.progress(TIMELINE)
        now += step
        for node, other in ((asks, answers), (answers, asks)):
            for kind, value, *text in node.lines():
                if kind == "took":
                    node.took.append(int(value))
                else:
                    number += 1
                    heapq.heappush(under_way, (int(value) + delay, number, other, text[0]))
        while under_way and under_way[0][0] <= now:
            _, _, receiver, message = heapq.heappop(under_way)
            receiver.deliver(message)


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate a link between two containers.")
    parser.add_argument("--delay", type=float, default=20, help="one way, virtual ms [20]")
    parser.add_argument("--requests", type=int, default=10, help="how many [10]")
    parser.add_argument("--tdf", default="1", help="real seconds per virtual second [1]")
    args = parser.parse_args()
    delay = int(args.delay * NANOS_PER_MS)
    with Experiment() as experiment:
        asks = started(experiment, "asks", args.tdf, "asks", str(args.requests))
        answers = started(experiment, "answers", args.tdf, "answers")
        simulate(experiment, asks, answers, delay, args.requests)
        took = sorted(asks.took)
    print(f"{len(took)} requests over a link of {args.delay:g} ms each took, in virtual time:")
    low, high = (each / NANOS_PER_MS for each in (took[0], took[-1]))
    print(f"  {low:.6f} ms at least, {high:.6f} ms at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
