#!/usr/bin/env python3
"""Runs COUNT nodes on one switch at one TDF, with a prompt: TimeKeeper's lxcStarter, by `lorentz
up`.

    nodes.py COUNT TDF [--rounds] [--output FOLDER] [--name NAME]

Nodes are node-1, node-2, ... with the addresses 10.0.0.1, 10.0.0.2, ... A line `2 ls -l` runs
`ls -l` in node-2, `all uname -n` in each; what they print is added to FOLDER/node-2.output, and a
number prompts the next line when all are done. `exit`, or the end of the input, ends the nodes.
Needs root. LORENTZ=PATH uses another command than the `lorentz` in PATH.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LORENTZ = os.environ.get("LORENTZ", "lorentz")
#: Greatest number of nodes: a network has up to 1000, the switch included.
MAX_NODES = 999


def topology(name: str, count: int, tdf: float, rounds: bool) -> str:
    """Returns the topology file: a link of 1 ms delay from every node's eth0 to a port of the
    switch."""
    numbers = range(1, count + 1)
    nodes = "".join(f"    node-{number}: {{}}\n" for number in numbers)
    links = "".join(
        f"    - {{endpoints: ['node-{number}:eth0', 'switch:p{number}'], delay: 1ms, "
        f"ipv4: [{address(number)}/16, null]}}\n"
        for number in numbers
    )
    return (
        f"name: {name}\ntdf: {tdf}\nrounds: {str(rounds).lower()}\n"
        f"topology:\n  nodes:\n{nodes}    switch: {{kind: switch}}\n  links:\n{links}"
    )


def address(number: int) -> str:
    return f"10.0.{number >> 8}.{number & 255}"


class Nodes:
    """The network, up as long as the block runs."""

    def __init__(self, file: str, name: str, count: int, output: Path) -> None:
        self.file, self.name, self.count, self.output = file, name, count, output

    def __enter__(self) -> Nodes:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.file)
            file.flush()
            done = subprocess.run([LORENTZ, "up", file.name], check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([LORENTZ, "down", self.name], check=False)

    def run(self, line: str) -> None:
        """Runs `NUMBER COMMAND` or `all COMMAND` to its end."""
        whom, _, command = line.strip().partition(" ")
        known = {str(number): [number] for number in range(1, self.count + 1)}
        numbers = {**known, "all": range(1, self.count + 1)}.get(whom)
        if numbers is None or not command:
            print(f"'{line.strip()}': wanted is 1 to {self.count} or 'all', then a command")
            return
        # Start all at once: they share one virtual time.
        started = [self.start(number, command) for number in numbers]
        for one in started:
            one.wait()

    def start(self, number: int, command: str) -> subprocess.Popen:
        words = [LORENTZ, "exec", f"{self.name}.node-{number}", "--", "sh", "-c", command]
        with (self.output / f"node-{number}.output").open("ab") as file:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help=f"how many nodes, 1 to {MAX_NODES}")
    parser.add_argument("tdf", type=float, help="their time dilation factor")
    parser.add_argument("--rounds", action="store_true", help="in rounds, as `lorentz up --rounds`")
    parser.add_argument("--output", type=Path, default=Path("/tmp"), help="default: /tmp")
    parser.add_argument("--name", default="nodes", help="of the network; default: nodes")
    args = parser.parse_args()
    if not 1 <= args.count <= MAX_NODES:
        parser.error(f"COUNT '{args.count}': accepted is 1 to {MAX_NODES}")
    return args


def main() -> None:
    args = arguments()
    file = topology(args.name, args.count, args.tdf, args.rounds)
    with Nodes(file, args.name, args.count, args.output) as nodes:
        for number in range(1, sys.maxsize):
            print(f"{number}> ", end="", flush=True)
            line = sys.stdin.readline()
            if line.strip() == "exit" or not line:
                break
            if line.strip():
                nodes.run(line)
        print()


if __name__ == "__main__":
    main()
