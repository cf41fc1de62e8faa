#!/usr/bin/env python3
"""Leases of an etcd cluster whose clocks err, in a network in rounds.

    benches/raft.py            measures, and rewrites the table in docs/clock-errors.md
    benches/raft.py --quick    only prints

Needs root, and an etcd: scripts/etcd finds or fetches it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import labs
from labs import LORENTZ, ROOT, run
from page_part import write

PAGE = ROOT / "docs" / "clock-errors.md"
CLIENT = ROOT / "benches/raft_client.py"
MEMBERS = ("n0", "n1", "n2")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
#: Seconds that a lease is to last.
TTL = 30
#: Virtual seconds per real second: at more, processors would be as much slower for etcd.
RATE = 2
LEADER, FOLLOWER, ALL = "the leader", "a follower", "all"


@dataclasses.dataclass(frozen=True)
class Fault:
    """An error of clocks; `words` are those of `lorentz clock`, with NAME for the container."""

    whose: str
    what: str
    words: tuple[str, ...]
    #: The rate of the clock that the error gives it.
    rate: float = 1.0


def drift(whose: str, by: str, rate: float) -> Fault:
    return Fault(whose, f"{by} too fast".replace("+", ""), ("drift", "NAME", by), rate)


FAULTS = (
    Fault(LEADER, "none", ()),
    drift(LEADER, "+500ppm", 1.0005),
    drift(LEADER, "+5%", 1.05),
    Fault(LEADER, "5% too slow", ("drift", "NAME", "-5%"), 0.95),
    drift(FOLLOWER, "+5%", 1.0),
    Fault(LEADER, "a step of an hour forward", ("bump", "NAME", "+1h")),
    Fault(LEADER, "a step of an hour back", ("bump", "NAME", "-1h")),
    Fault(ALL, "a step of an hour forward", ("bump", "NAME", "+1h")),
    Fault(
        LEADER,
        "steps of 10 s forth and back for 10 s",
        ("strobe", "NAME", "10s", "--period", "100ms", "--for", "10s"),
    ),
)


@dataclasses.dataclass(frozen=True)
class Result:
    #: None: more than three times as long as it should.
    lasted: float | None
    terms: int
    written: int
    wrong: int


def link(node: str, hub: str, address: str) -> str:
    return f"    - {{endpoints: ['{node}', '{hub}'], ipv4: [{address}/24, null], delay: 5ms}}\n"


def topology(etcd: Path, folder: Path) -> str:
    cluster = ",".join(
        f"{name}=http://{address}:2380" for name, address in zip(MEMBERS, ADDRESSES, strict=True)
    )
    nodes = links = ""
    for name, address in zip(MEMBERS, ADDRESSES, strict=True):
        words = [
            etcd, "--name", name, "--data-dir", folder / name, "--log-level", "error",
            "--listen-client-urls", f"http://{address}:2379",
            "--advertise-client-urls", f"http://{address}:2379",
            "--listen-peer-urls", f"http://{address}:2380",
            "--initial-advertise-peer-urls", f"http://{address}:2380",
            "--initial-cluster", cluster,
        ]  # fmt: skip
        command = ", ".join(f"'{word}'" for word in words)
        nodes += f"    {name}: {{command: [{command}]}}\n"
        links += link(f"{name}:eth0", f"hub:{name}", address)
    nodes += "    client: {command: [sleep, '1000000']}\n    hub: {kind: switch}\n"
    links += link("client:eth0", "hub:client", "10.0.0.9")
    return (
        f"name: raft\nrounds: true\nrate: {RATE}\nat: 2030-01-01T00:00:00Z\n"
        f"topology:\n  nodes:\n{nodes}  links:\n{links}"
    )


def client(*words: object) -> subprocess.Popen[str]:
    command = [LORENTZ, "exec", "raft.client", "--", "python3", CLIENT, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def leader() -> dict:
    with client("leader", *ADDRESSES) as asked:
        return json.loads(asked.stdout.read())


def measure(fault: Fault, etcd: Path) -> Result:
    """One lease, with the fault from its first second on."""
    with (
        tempfile.TemporaryDirectory(prefix="lorentz-raft-") as folder,
        labs.network("raft", topology(etcd, Path(folder))),
    ):
        before = leader()
        others = [at for at in range(len(MEMBERS)) if at != before["leader"]]
        whose = {LEADER: [before["leader"]], FOLLOWER: others[:1], ALL: range(len(MEMBERS))}
        with client("lease", TTL, *ADDRESSES) as held:
            held.stdout.readline()
            for at in whose[fault.whose] if fault.words else ():
                words = [f"raft.{MEMBERS[at]}" if w == "NAME" else w for w in fault.words]
                run(LORENTZ, "clock", *words)
            seen = json.loads(held.stdout.readline())
        terms = leader()["term"] - before["term"]
    return Result(seen["lasted"], terms, seen["written"], seen["wrong"])


def row(fault: Fault, result: Result) -> str:
    lasted = f"more than {3 * TTL}" if result.lasted is None else f"{result.lasted:.2f}"
    return (
        f"| {fault.whose} | {fault.what} | {lasted} s | {TTL / fault.rate:.2f} s "
        f"| {result.terms} | {result.written}, {result.wrong} wrong |"
    )


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only print")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("benches/raft.py: needs root")
    etcd = Path(run(ROOT / "scripts/etcd").strip())
    lines = []
    with labs.own_state():
        for fault in FAULTS:
            lines.append(row(fault, measure(fault, etcd)))
            print(lines[-1], flush=True)
    if args.quick:
        return
    head = (
        "| whose clock | its error | the lease lasts | by that clock's rate | elections | writes |"
    )
    write(PAGE, [head, "| --- | --- | --- | --- | --- | --- |", *lines], "raft")


if __name__ == "__main__":
    main()
