"""Speed of skipping idle time, and the cost of its observation for containers that skip nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable

from levels import LORENTZ, LORENTZ_LEVEL, NATIVE, ROOT, Level
from suites import TIMEOUT, Bench, Samples, in_turns, output_of

SKIPPING = (LORENTZ, "run", "--skip-idle", "--")
SLEEPS = 200_000
ROUNDS = 10_000
TIMERS = 1_000

ASYNCIO = (
    "import asyncio\n"
    "async def main(): await asyncio.gather(*[asyncio.sleep(i) for i in range({timers})])\n"
    "asyncio.run(main())"
)
NODE = "for (let i = 1; i <= {timers}; i++) setTimeout(() => {{}}, 1000 * i)"


def skip(bench: Bench) -> Samples:
    """Measures a day of sleep, leaps per second, and timers of runtimes; real ns, leaps/s.

    `day`: the duration of `sleep 86400` less that of `sleep 0`, both inside, the second without
    skipping. `leaps`: one thread that sleeps a second at a time. `rounds`: two processes that,
    ROUNDS times, sleep and send each other a message. No message may be lost, and the order must be
    the same each time. The others: a program that has TIMERS timers a second apart, less the same
    program with one.
    """
    runtimes = _runtimes(bench)
    orders: set[str] = set()

    def once(level: Level) -> dict[str, float]:
        day = _took([*SKIPPING, "sleep", "86400"])
        found = {"day": day - _took([LORENTZ, "run", "--", "sleep", "0"])}
        ticks = output_of([*SKIPPING, str(bench.programs / "sleeper"), str(SLEEPS)])["ticks"]
        found["leaps"] = SLEEPS / (bench.nanoseconds(ticks) / 1e9)
        found["rounds"] = _rounds_per_second(bench, orders)
        for name, command in runtimes.items():
            found[name] = _took([*SKIPPING, *command(TIMERS)])
            found[name] -= _took([*SKIPPING, *command(1)])
        return found

    return in_turns(bench, 7, [Level(LORENTZ_LEVEL, SKIPPING)], once)


def _runtimes(bench: Bench) -> dict[str, Callable[[int], list[str]]]:
    """Returns the command for each installed runtime, with `timers` timers a second apart."""
    found: dict[str, Callable[[int], list[str]]] = {}
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python:
        found["asyncio"] = lambda timers: [python, "-c", ASYNCIO.format(timers=timers)]
    if shutil.which("node"):
        found["node"] = lambda timers: ["node", "-e", NODE.format(timers=timers)]
    sources = ROOT / "benches/timers"
    go = bench.programs / "timers"
    if shutil.which("go"):
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        subprocess.run(["go", "build", "-o", go, "."], cwd=sources, env=environment, check=True)
        found["go"] = lambda timers: [str(go), str(timers)]
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", bench.programs, sources / "Timers.java"], check=True)
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", str(bench.programs), "Timers"]
        found["java"] = lambda timers: [*java, str(timers)]
    return found


def _rounds_per_second(bench: Bench, orders: set[str]) -> float:
    """Returns the rounds per second of two processes that exchange messages. Adds the order of
    their wake-ups to `orders`."""
    begun = time.monotonic()
    command = [*SKIPPING, str(bench.programs / "rounds"), str(ROUNDS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    took = time.monotonic() - begun
    result = json.loads(run.stdout)
    orders.add(result["order"])
    if result["wrong"] or result["steps"] != 2 * ROUNDS or len(orders) > 1:
        raise RuntimeError(f"messages lost or out of order: {result}, {len(orders)} orders")
    return ROUNDS / took


def _took(command: list[str]) -> float:
    """Returns the duration of `command`, real ns."""
    start = time.monotonic_ns()
    subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT,
        check=True,
    )
    return float(time.monotonic_ns() - start)


def watching(bench: Bench) -> Samples:
    """Measures `perf bench sched pipe`: alone, and beside a container that skips and has nothing to
    do."""
    if shutil.which("perf") is None:
        bench.left_out["perf bench sched pipe"] = "perf is not there"
        return {}

    def once(level: Level) -> dict[str, float]:
        if level.name == NATIVE:
            return {"pipe": _pipe()}
        # cat waits for the outside: a pipe that stays open and silent.
        command = [*SKIPPING, "cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as idle:
            time.sleep(0.3)
            found = _pipe()
            assert idle.stdin is not None
            idle.stdin.close()
        return {"pipe": found}

    return in_turns(bench, 15, [Level(NATIVE, ()), Level(LORENTZ_LEVEL, SKIPPING)], once)


def _pipe() -> float:
    """Returns the time that two processes need to pass a byte to and fro, ns."""
    # On one processor: with two, the time is that of waking an idle processor.
    command = ["taskset", "-c", "0", "perf", "bench", "sched", "pipe", "-l", "200000"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    found = re.search(r"([\d.]+) usecs/op", run.stdout)
    if found is None:
        raise RuntimeError(f"perf bench: {run.stdout.strip()}")
    return float(found[1]) * 1000
