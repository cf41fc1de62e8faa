"""A program that asks over a line and one that answers. Neither knows of the simulator.

node.py asks N      sends N requests to its standard output, and waits for each answer
node.py answers     answers what its standard input brings
"""

from __future__ import annotations

import sys
import time


def ask(requests: int) -> None:
    for number in range(requests):
        time.sleep(0.0073)
        sent = time.monotonic_ns()
        print("send", sent, f"request {number}", flush=True)
        sys.stdin.readline()
        print("took", time.monotonic_ns() - sent, flush=True)


def answer() -> None:
    for line in sys.stdin:
        print("send", time.monotonic_ns(), f"answer to {line.strip()}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "asks":
        ask(int(sys.argv[2]))
    else:
        answer()
