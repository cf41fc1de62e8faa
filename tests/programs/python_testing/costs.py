"""Costs of a tool that changes the time: `costs.py TOOL`, prints JSON, in ns.

CLOCK_MONOTONIC is read by a raw system call: none of the tools changes its course there."""

from __future__ import annotations

import ctypes
import datetime
import json
import statistics
import sys
import time
import types

ROUNDS = 200
READS = 100_000
MODULES = 1_000
WHEN = datetime.datetime(2038, 1, 19, tzinfo=datetime.timezone.utc)
LIBC = ctypes.CDLL(None)


def now() -> int:
    """CLOCK_MONOTONIC by a raw system call, ns. At rate 1 lorentz shows the host's course."""
    stamp = (ctypes.c_long * 2)()
    LIBC.syscall(228, 1, stamp)
    return stamp[0] * 10**9 + stamp[1]


def block_of(tool: str):
    """Makes blocks at another date."""
    if tool == "lorentz":
        import lorentz

        return lambda: lorentz.travel(WHEN)
    if tool == "freezegun":
        import freezegun

        return lambda: freezegun.freeze_time(WHEN, tick=True)
    import time_machine

    return lambda: time_machine.travel(WHEN, tick=True)


def once(block) -> int:
    begun = now()
    with block():
        pass
    return now() - begun


def with_modules(block) -> int:
    """A block's median cost once many more modules are there, each with a function of time."""
    for number in range(MODULES):
        module = types.ModuleType(f"many{number}")
        module.time = time.time
        sys.modules[module.__name__] = module
    return int(statistics.median(once(block) for _ in range(5)))


def read(function) -> float:
    begun = now()
    for _ in range(READS):
        function()
    return (now() - begun) / READS


def main() -> None:
    tool = sys.argv[1]
    costs = {}
    if tool in ("lorentz", "freezegun", "time-machine"):
        block = block_of(tool)
        costs["first"] = once(block)
        costs["later"] = int(statistics.median(once(block) for _ in range(ROUNDS)))
        with block():
            costs["read"] = read(time.time)
        costs["modules"] = with_modules(block)
    else:
        costs["read"] = read(time.time)
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
