"""Synchronised experiments: figures 5.1 to 5.7, tables 5.1 to 5.5 of TimeKeeper's documentation.

Each part returns its figures for docs/experiments.md as plain values for JSON; times are in
nanoseconds. The perceived error is the difference between the times that the computing programs
read at the ends of rounds and those ends. The overrun is the real time for which tasks ran on after
that; no program inside can see it.

TimeKeeper's timeslice is the real time for which its leader runs. `--timeslice` is virtual time. So
a timeslice of T at TDF 10 is `--timeslice T/10`.
"""

from __future__ import annotations

import bisect
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import levels
from experiment import Experiment, Refused, Seen
from suites import TIMEOUT, Bench, announce, output_of

Figures = dict[str, Any]

MS = 1_000_000
CPUS = 1
"""The processors that an experiment has here."""


def _slice(nanos: float) -> tuple[str, str]:
    return ("--timeslice", f"{round(nanos)}ns")


def _seconds(bench: Bench, full: float) -> float:
    return full / 5 if bench.quick else full


def _overruns(seen: Seen) -> Figures:
    """Returns the overruns: mean, deviation, and each percentile."""
    lengths = sorted(seen.ran_on)
    if not lengths:
        return {"count": 0}
    hundredths = [lengths[round(part * (len(lengths) - 1) / 100)] for part in range(101)]
    return {
        "count": len(lengths),
        "mean": fmean(lengths),
        "deviation": pstdev(lengths),
        "hundredths": [round(length) for length in hundredths],
    }


def _perceived(errors: list[int], status: Figures) -> Figures:
    """Returns the greatest perceived error, the number of readings, and the one that `status`
    reports."""
    return {
        "readings": len(errors),
        "worst": max(map(abs, errors), default=None),
        "status_worst": max(one["perceived_overshoot_ns"] for one in status["containers"]),
    }


def _totals(status: Figures) -> Figures:
    """Returns the figures of `status` for the whole: rounds, overhead, and the overruns of all
    containers."""
    containers = [one for one in status["containers"] if one["overrun_median_ns"] is not None]
    idle = status["real_ns"] - status["working_ns"]
    return {
        "rounds": status["rounds"],
        "overhead_ratio": status["overhead_ratio"],
        "slowdown": status["slowdown"],
        "synchronizing": idle / status["rounds"] if status["rounds"] else None,
        "overrun_median": median([one["overrun_median_ns"] for one in containers] or [0]),
        "overrun_p99": max([one["overrun_p99_ns"] for one in containers] or [0]),
        "told_by_kernel": status["told_by_kernel"],
    }


def best_effort(
    bench: Bench, timeslice: float, groups: list[tuple[int, str]], rounds: int, seconds: float
) -> Figures:
    """Runs an experiment by itself, with all containers computing.

    `timeslice`: virtual. `groups`: pairs of a number of containers and their TDF. It runs for a
    number of rounds, or for a time.
    """
    rounds = bench.rounds(rounds)
    with Experiment(bench, *_slice(timeslice)) as experiment:
        for count, tdf in groups:
            experiment.populate(count, tdf)
        start = experiment.synchronize()
        status = experiment.run_for(rounds, _seconds(bench, seconds))
        seen = experiment.seen()
    off = [(at - start) % round(timeslice) for at in seen.stood_at]
    errors = [error if error <= timeslice / 2 else error - round(timeslice) for error in off]
    return {
        **_totals(status),
        "containers": sum(count for count, _ in groups),
        "perceived": _perceived(errors, status),
        "overruns": _overruns(seen),
    }


def timers(bench: Bench) -> list[Figures]:
    """Table 5.1: one container; the overrun at its timeslices."""
    rows = []
    for timeslice in (300 * MS, 30 * MS, 3 * MS, 300_000, 30_000, 3_000, 1_000):
        figures = best_effort(bench, timeslice, [(1, "1")], 200, 5)
        rows.append({"timeslice": timeslice, **figures})
    # No virtual timeslice is shorter than 1 us; at TDF 0.3 that is 300 ns of real time.
    rows.append({"timeslice": 300, **best_effort(bench, 1_000, [(1, "0.3")], 200, 5)})
    return rows


def accuracy(bench: Bench) -> list[Figures]:
    """Table 5.2, figure 5.1: TDF 10; the leader runs for a timeslice of real time."""
    rows = []
    for count, timeslice in (
        *((count, slice) for count in (10, 80) for slice in (300_000, 3 * MS, 30 * MS, 300 * MS)),
        (20, 3 * MS),
        (40, 3 * MS),
    ):
        figures = best_effort(bench, timeslice / 10, [(count, "10")], 150, 3)
        rows.append({"timeslice": timeslice, **figures})
    return rows


def two_factors(bench: Bench) -> list[Figures]:
    """Figure 5.2: five containers of TDF 10 and five of TDF 1."""
    rows = []
    for timeslice in (300_000, 3 * MS, 30 * MS, 300 * MS):
        figures = best_effort(bench, timeslice / 10, [(5, "10"), (5, "1")], 150, 3)
        rows.append({"timeslice": timeslice, **figures})
    return rows


SIZES = (10, 20, 40, 80, 160)


def fast_clocks(bench: Bench) -> list[Figures]:
    """Figure 5.3: TDF 1/10, more and more containers."""
    return [best_effort(bench, 3 * MS, [(size, "1/10")], 150, 2) for size in SIZES]


PRODUCT = 20


def same_product(bench: Bench) -> list[Figures]:
    """Figure 5.4: TDF times the number of containers is always 20."""
    rows = []
    for size in SIZES:
        tdf = Fraction(PRODUCT, size)
        figures = best_effort(bench, 3 * MS / float(tdf), [(size, str(tdf))], 100, 2)
        rows.append({"tdf": float(tdf), **figures})
    return rows


def overhead(bench: Bench) -> list[Figures]:
    """Figures 5.5 and 5.6: the overhead ratio at a timeslice of 3 ms, all containers computing."""
    rows = []
    for size in (8, *SIZES):
        rows.append({"active": size, **best_effort(bench, 3 * MS, [(size, "1")], 100, 2)})
    return rows


def _stepwise(
    bench: Bench, experiment: Experiment, start: int, cells: list[tuple[int, int]], seconds: float
) -> list[Figures]:
    """Moves all containers by each interval of `cells`, a number of times or for a time."""
    ends = [start]
    found = []
    for interval, points in cells:
        for name in experiment.names:
            request = {"do": "interval", "container": name, "timeline": 1, "nanos": interval}
            experiment.ask(request)
        taken = []
        until = time.monotonic() + _seconds(bench, seconds)
        for _ in range(bench.rounds(points)):
            before = time.monotonic_ns()
            experiment.ask({"do": "progress", "timeline": 1})
            taken.append(time.monotonic_ns() - before)
            ends.append(ends[-1] + interval)
            if time.monotonic() > until:
                break
        found.append({"interval": interval, "points": len(taken), "progress": median(taken)})
    status = experiment.status()
    off = max(abs(one["virtual_ns"] - ends[-1]) for one in status["containers"])
    # Earlier output belongs to other rounds.
    errors = [_to_nearest(ends, at) for at in experiment.seen().stood_at if at >= start]
    whole = {"perceived": _perceived(errors, status), "clocks_off": off, **_totals(status)}
    return [{"containers": len(experiment.names), **whole, **one} for one in found]


def _to_nearest(ends: list[int], at: int) -> int:
    place = bisect.bisect(ends, at)
    return min((at - end for end in ends[max(0, place - 1) : place + 1]), key=abs)


INTERVALS = (10_000, 100_000, 1_000_000)


def stepwise(bench: Bench) -> list[Figures]:
    """Table 5.3 up to 800 containers: 100 steps of an interval, all computing."""
    rows = []
    for size in (8, 80, 800):
        with Experiment(bench) as experiment:
            experiment.populate(size, timeline=1)
            start = experiment.synchronize()
            cells = [(interval, 100) for interval in INTERVALS]
            rows += _stepwise(bench, experiment, start, cells, 2)
    return rows


def progress_rate(bench: Bench) -> Figures:
    """Steps per second of 8 containers that sleep, over one connection."""
    points = bench.rounds(10_000)
    found = {}
    with Experiment(bench) as experiment:
        experiment.populate(8, program="resting", timeline=1, writes=False)
        experiment.synchronize()
        steps = [
            {"do": "interval", "container": name, "timeline": 1, "nanos": MS}
            for name in experiment.names
        ]
        for step in steps:
            experiment.ask(step)
        for case, requests in (("progress", []), ("with_intervals", steps)):
            count = points if not requests else points // 5
            begun = time.monotonic()
            for _ in range(count):
                for request in requests:
                    experiment.ask(request)
                experiment.ask({"do": "progress", "timeline": 1})
            found[case] = count / (time.monotonic() - begun)
        moves = dict.fromkeys(experiment.names, MS)
        begun = time.monotonic()
        for _ in range(points):
            experiment.ask({"do": "step", "moves": moves})
        found["stepped"] = points / (time.monotonic() - begun)
    return found


def clock_calls(bench: Bench) -> Figures:
    """Tables 5.4 and 5.5: clock reads natively and in an experiment, turn by turn."""
    cases = ("clock_gettimeofday", "clock_realtime", "clock_monotonic", "clock_syscall")
    found: dict[str, dict[str, list[float]]] = {}
    with Experiment(bench) as experiment:
        experiment.populate(1, program="resting", writes=False)
        experiment.synchronize()
        experiment.ask({"do": "start"})
        program = str(bench.programs / "micro")
        for _ in range(bench.rounds(7)):
            for level in ("native", "1", "0.5", "2"):
                # Batches much shorter than a slice.
                command = [program, "clock_", "100"]
                if level != "native":
                    inside = (levels.LORENTZ, "run", "--experiment", "bench", "--tdf", level, "--")
                    command = ["env", f"LORENTZ_STATE_DIR={experiment.state}", *inside, *command]
                for case, ticks in output_of(command).items():
                    if case in cases:
                        values = found.setdefault(level, {}).setdefault(case, [])
                        values.append(bench.nanoseconds(ticks))
    return {
        level: {case: median(values) for case, values in cases.items()}
        for level, cases in found.items()
    }


def real_time(bench: Bench) -> list[Figures]:
    """Figure 5.7: the number of computing containers that keep up with real time, for each TDF."""
    return [_tipping_point(bench, parts) for parts in (10, 50, 100)]


def _tipping_point(bench: Bench, parts: int) -> Figures:
    """The same for TDF 1/parts: bisects between the most that kept up and the fewest that did
    not."""
    tried: dict[int, float] = {}
    kept, too_many = 0, parts * CPUS + 1
    with Experiment(bench, *_slice(3 * MS)) as experiment:
        experiment.populate(1, f"1/{parts}", writes=False)
        experiment.synchronize()
        while too_many - kept > 1:
            size = (kept + too_many) // 2
            _resize(experiment, size, f"1/{parts}")
            tried[size] = _slowdown(experiment, _seconds(bench, 1))
            kept, too_many = (size, too_many) if tried[size] <= 1 else (kept, size)
    return {"parts": parts, "tried": sorted(tried.items()), "kept": kept}


def _resize(experiment: Experiment, size: int, tdf: str) -> None:
    """Makes containers until there are `size`, or ends the surplus."""
    experiment.ask({"do": "start"})
    if size > len(experiment.names):
        experiment.populate(size - len(experiment.names), tdf, writes=False)
    for name in experiment.names[size:]:
        experiment.ask({"do": "remove", "container": name})
        _end(experiment, name)
    del experiment.names[size:]
    experiment.ask({"do": "pause"})


def _end(experiment: Experiment, name: str) -> None:
    """Ends a container's program."""
    listed = subprocess.run(
        [levels.LORENTZ, "time", name, "--json"],
        env=experiment.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    for pid in json.loads(listed.stdout)["pids"]:
        os.kill(pid, 9)


def _slowdown(experiment: Experiment, seconds: float) -> float:
    """Returns the real seconds per virtual second, over `seconds` of run time."""
    before = experiment.status()
    after = experiment.run_for(before["rounds"] + 100_000, seconds)
    gone = after["virtual_ns"] - before["virtual_ns"]
    return (after["real_ns"] - before["real_ns"]) / gone


def partly_active(bench: Bench, size: int, rounds: int, seconds: float) -> Figures:
    """A timeslice of 3 ms; of `size` containers 1 % compute, the others sleep."""
    active = size // 100
    free = _available()
    with Experiment(bench, most=size) as experiment:
        began = time.monotonic()
        experiment.populate(active)
        experiment.populate(size - active, program="resting", writes=False)
        taken = time.monotonic() - began
        start = experiment.synchronize()
        status = experiment.run_for(bench.rounds(rounds), _seconds(bench, seconds))
        seen = experiment.seen()
        errors = [(at - start) % (3 * MS) for at in seen.stood_at]
        return {
            **_totals(status),
            "containers": size,
            "active": active,
            "perceived": _perceived(errors, status),
            "overruns": _overruns(seen),
            "populate_seconds": taken,
            "memory": free - _available(),
        }


def many(bench: Bench) -> Figures:
    """8,000 containers: table 5.3's last row and figures 5.5 and 5.6, of one population."""
    size = 400 if bench.quick else 8_000
    with Experiment(bench, most=size) as experiment:
        began = time.monotonic()
        experiment.populate(size // 100)
        experiment.populate(size - size // 100, program="resting", writes=False)
        taken = time.monotonic() - began
        experiment.synchronize()
        measured = _totals(experiment.run_for(bench.rounds(50), _seconds(bench, 6)))
        experiment.ask({"do": "stop"})
        for name in experiment.names:
            request = {"do": "add", "container": name, "tdf": [1, 1], "timeline": 1}
            experiment.ask(request)
        start = experiment.synchronize()
        cells = [(interval, 30) for interval in INTERVALS]
        steps = _stepwise(bench, experiment, start, cells, 6)
    whole = {"containers": size, "active": size // 100, "populate_seconds": taken}
    return {"best_effort": {**whole, **measured}, "stepwise": steps}


PARTS = {
    "timers": timers,
    "accuracy": accuracy,
    "two_factors": two_factors,
    "fast_clocks": fast_clocks,
    "same_product": same_product,
    "stepwise": stepwise,
    "progress_rate": progress_rate,
    "clock_calls": clock_calls,
    "overhead": overhead,
    "real_time": real_time,
    "thousand": lambda bench: partly_active(bench, 1_000, 50, 4),
    "many": many,
}


def experiments(bench: Bench) -> Figures:
    """Runs all parts but the 45,000. A part that fails is left out, with a message."""
    found: Figures = {}
    for name, part in PARTS.items():
        begun = time.monotonic()
        try:
            found[name] = part(bench)
        except (Refused, RuntimeError, OSError, subprocess.SubprocessError) as error:
            announce(f"bench: experiments: {name} failed: {error}")
            bench.left_out[f"{name} in experiments"] = str(error).splitlines()[0]
            bench.failed = True
        announce(f"bench: experiments: {name}: {time.monotonic() - begun:.0f} s")
    return found


#: Kernel limits that 45,000 containers need; the machine's default is lower.
LIMITS = {"pid_max": 200_000, "threads-max": 400_000}
MOST_EVER = 45_000


@contextmanager
def raised_limits() -> Iterator[None]:
    """Raises the kernel's limits on processes, and restores them."""
    before = {}
    try:
        for name, wanted in LIMITS.items():
            file = Path("/proc/sys/kernel", name)
            value = file.read_text()
            if int(value) < wanted:
                before[file] = value
                file.write_text(str(wanted))
        yield
    finally:
        for file, value in before.items():
            file.write_text(value)


def experiments_45000(bench: Bench) -> Figures:
    """Figure 5.5(b): 45,000 containers, 1 % of them active, on this machine."""
    size = 2_000 if bench.quick else MOST_EVER
    with raised_limits():
        return partly_active(bench, size, 50, 60)


def _available() -> int:
    """Returns the memory that programs could still have, bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not tell MemAvailable")
