"""The table of docs/performance.md, from the samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles

from levels import LIBFAKETIME, LORENTZ_LEVEL, NATIVE, ROOT, TIME_NAMESPACE
from suites import Samples

REASONS = ROOT / "benches/reasons.json"
RUNTIMES = {LORENTZ_LEVEL: "lorentz-runtime"}
COLUMNS = (NATIVE, TIME_NAMESPACE, LIBFAKETIME, LORENTZ_LEVEL)

Compare = Callable[[float, float], float]


@dataclass(frozen=True)
class Goal:
    """A goal: a figure computed from native's and Lorentz's, and its bound."""

    words: str
    figure: Compare
    met: Callable[[float], bool]


def _at_most(bound: float, words: str, figure: Compare) -> Goal:
    return Goal(words, figure, lambda value: value <= bound)


def _ratio(native: float, inside: float) -> float:
    return inside / native


def _more(native: float, inside: float) -> float:
    return inside - native


def _itself(_: float, inside: float) -> float:
    return inside


#: Time that the start of a program may take more, ns.
START = 3_000_000


def _beyond_start(native: float, inside: float) -> float:
    return (inside - START) / native


CLOCK = _at_most(1.2, "at most 1.2x", _ratio)
PLAIN = _at_most(50, "at most 50 ns more", _more)
TRAPPED = _at_most(3000, "at most 3 us", _itself)
EXEC = _at_most(300_000, "at most 300 us more", _more)
PER_WAIT = _at_most(20_000, "at most 20 us per wait", _itself)
THROUGHPUT = Goal("at least 0.97x", _ratio, lambda value: value >= 0.97)
DAY = _at_most(20_000_000, "at most 20 ms", _itself)
LEAPS = Goal("at least 20,000", _itself, lambda value: value >= 20_000)
WATCHING = _at_most(1.02, "at most 1.02x", _ratio)
CONTAINER = _at_most(10_000_000, "at most 10 ms more", _more)
MEMORY = _at_most(1.5 * (1 << 20), "at most 1.5 MiB", _itself)
MANY_SHOWN = _at_most(1e9, "at most 1 s", _itself)
MANY_REMOVED = _at_most(10e9, "at most 10 s", _itself)
OF_OTHERS = _at_most(1.2, "at most 1.2x", _itself)
LATENESS = _at_most(1.1, "at most 1.1x", _ratio)
BEYOND_START = _at_most(1.1, "at most 1.1x beyond 3 ms", _beyond_start)
RUN = _at_most(START, "at most 3 ms more", _more)
COMMAND = _at_most(5_000_000, "at most 5 ms", _itself)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    suite: str
    case: str
    goal: Goal | None = None
    half_of_libfaketime: bool = False
    unit: str = "ns"

    @property
    def key(self) -> str:
        """Returns the row's key in benches/reasons.json."""
        return f"{self.suite}.{self.case}"


#: Commands of Lorentz, and whether they are typed by themselves.
_COMMANDS = (("run -- true", "run", RUN), ("exec NAME -- true", "exec", COMMAND)) + tuple(
    (f"{verb} NAME" if verb != "ps" else verb, verb, COMMAND)
    for verb in ("time", "ps", "dilate", "leap", "freeze")
)

ROWS = (
    Row("`bash -c true`", "programs", "bash", BEYOND_START, unit="us"),
    Row("`python3 -c 'import asyncio'`", "programs", "asyncio", BEYOND_START, unit="us"),
    Row("`git status` of this repository", "programs", "git_status", BEYOND_START, unit="us"),
    Row("`find /usr -mtime -1`", "programs", "find", BEYOND_START, unit="us"),
    Row("`grep -r` in this repository", "programs", "grep", BEYOND_START, unit="us"),
    Row("`tar c docs tests`", "programs", "tar", BEYOND_START, unit="us"),
    Row("500 times `/bin/true` in sh", "programs", "spawns", BEYOND_START, unit="us"),
    Row("`gcc -c` of a small file", "programs", "gcc", BEYOND_START, unit="us"),
    Row("`node -e 0`", "programs", "node", BEYOND_START, unit="us"),
    Row("`java -version`", "programs", "java", BEYOND_START, unit="us"),
    *(
        Row(f"`lorentz {words}`, {how}", "commands", case + suffix, goal, unit="us")
        for words, case, goal in _COMMANDS
        for how, suffix in (("typed by itself", "_alone"), ("in a loop", ""))
    ),
    Row("clock_gettime(MONOTONIC), vDSO", "calls", "clock_monotonic", CLOCK, True),
    Row("clock_gettime(REALTIME), vDSO", "calls", "clock_realtime", CLOCK, True),
    Row("clock_gettime(MONOTONIC_COARSE), vDSO", "calls", "clock_coarse"),
    Row("time(), vDSO", "calls", "clock_time"),
    Row("MONOTONIC, vDSO, time at twice its speed", "clocks_at_rate_two", "clock_monotonic"),
    Row("REALTIME, vDSO, time at twice its speed", "clocks_at_rate_two", "clock_realtime"),
    Row("clock_gettime as a syscall", "calls", "clock_syscall"),
    Row("getppid", "calls", "plain_getppid", PLAIN),
    Row("read of 1 byte", "calls", "plain_read", PLAIN),
    Row("epoll_wait(-1), an event ready", "calls", "endless_epoll", PLAIN),
    Row("epoll_wait(0), no event", "calls", "endless_epoll_zero", PLAIN),
    Row("poll(-1), ready", "calls", "endless_poll", PLAIN),
    Row("futex wake, nobody waits", "calls", "endless_futex_wake", PLAIN),
    Row("futex wait without timeout, EAGAIN", "calls", "endless_futex_wait", PLAIN),
    Row("epoll_wait(1000), an event ready", "calls", "finite_epoll", TRAPPED),
    Row("futex wait of 1 s, EAGAIN", "calls", "finite_futex", TRAPPED),
    Row("nanosleep(0)", "calls", "finite_nanosleep"),
    Row("exec of a static program", "execs", "static", EXEC, unit="us"),
    Row("exec of a dynamic program", "execs", "dynamic", EXEC, unit="us"),
    Row("leap, 1,000 waits, per wait", "waits", "leap", PER_WAIT, unit="us"),
    Row("dilate, 1,000 waits, per wait", "waits", "dilate", PER_WAIT, unit="us"),
    Row("freeze, 1,000 waits, per wait", "waits", "freeze", PER_WAIT, unit="us"),
    Row("unfreeze, 1,000 waits, per wait", "waits", "unfreeze", PER_WAIT, unit="us"),
    Row("the command `lorentz leap` itself", "waits", "leap_command", unit="us"),
    Row("the command `lorentz dilate` itself", "waits", "dilate_command", unit="us"),
    Row("redis-benchmark SET", "redis", "set", THROUGHPUT, unit="req/s"),
    Row("redis-benchmark GET", "redis", "get", THROUGHPUT, unit="req/s"),
    Row("Go HTTP server", "http", "rate", THROUGHPUT, unit="req/s"),
    Row("clock_nanosleep(1 ms), lateness", "lateness", "median", LATENESS, unit="us"),
    Row("the same, 99th percentile", "lateness", "p99", unit="us"),
    Row("--skip-idle: sleep 86400, more than sleep 0", "skip", "day", DAY, unit="us"),
    Row("--skip-idle: sleeps of 1 s, one thread", "skip", "leaps", LEAPS, unit="leaps/s"),
    Row(
        "--skip-idle: two processes, a sleep and a message each", "skip", "rounds", unit="rounds/s"
    ),
    Row("--skip-idle: 1,000 timers in 1,000 s, asyncio", "skip", "asyncio", unit="us"),
    Row("the same, Node", "skip", "node", unit="us"),
    Row("the same, Go", "skip", "go", unit="us"),
    Row("the same, Java", "skip", "java", unit="us"),
    Row("perf bench sched pipe, beside --skip-idle", "watching", "pipe", WATCHING, unit="us"),
    Row("container: create to first instruction", "containers", "start", CONTAINER, unit="us"),
    Row("container: exec of a program", "containers", "exec", CONTAINER, unit="us"),
    Row("container: end and removal", "containers", "stop", CONTAINER, unit="us"),
    Row("container, idle: memory beside its program", "containers", "memory", MEMORY, unit="KiB"),
    Row("`lorentz ps`, 300 containers", "many", "ps_300", unit="us"),
    Row("`lorentz ps`, 1,000 containers", "many", "ps_1000", MANY_SHOWN, unit="us"),
    Row("`lorentz ps --json`, 1,000 containers", "many", "ps_json_1000", MANY_SHOWN, unit="us"),
    Row("`lorentz ps --json`, 1,000 dead ones", "many", "ps_dead_1000", MANY_SHOWN, unit="us"),
    Row("`lorentz rm --force` of 1,000 containers", "many", "rm_1000", MANY_REMOVED, unit="us"),
    Row("`lorentz time NAME`, 1,000 others", "many", "time", unit="us"),
    Row(
        "`lorentz time NAME`, quickest, against one other",
        "many",
        "time_ratio",
        OF_OTHERS,
        unit="x",
    ),
    Row("`lorentz dilate NAME`, 1,000 others", "many", "dilate", unit="us"),
    Row(
        "`lorentz dilate NAME`, quickest, against one other",
        "many",
        "dilate_ratio",
        OF_OTHERS,
        unit="x",
    ),
    Row("`lorentz time NAME --json`, 1,000 others", "many", "time_json", unit="us"),
    Row("`lorentz time NAME --json`, quickest, against one", "many", "time_json_ratio", unit="x"),
)


def _show(value: float, unit: str) -> str:
    if unit.endswith("/s"):
        return f"{value:,.0f} {unit}"
    if unit == "x":
        return f"{value:.2f}x"
    scaled = value / {"us": 1000, "KiB": 1024}.get(unit, 1)
    digits = 1 if abs(scaled) < 100 else 0
    return f"{scaled:,.{digits}f} {unit}"


def _against_native(row: Row, native: list[float], inside: list[float]) -> str:
    """Returns Lorentz divided by native: the median of the rounds and, in brackets, their middle
    half."""
    figure = row.goal.figure if row.goal else _ratio
    if figure is _itself or not native:
        return ""
    if figure is _beyond_start:
        figure = _ratio
    values = [figure(a, b) for a, b in zip(native, inside, strict=False)]
    quarter = quantiles(values, n=4) if len(values) > 1 else values * 3
    if figure is _ratio:
        return f"{median(values):.2f}x ({quarter[0]:.2f}-{quarter[2]:.2f})"
    scale = 1000 if row.unit == "us" else 1
    low, middle, high = (round(v / scale) for v in (quarter[0], median(values), quarter[2]))
    return f"{middle:+,} {row.unit} ({low:,} to {high:,})"


def verdicts(row: Row, samples: Samples) -> list[tuple[str, bool]]:
    """Returns each goal of the row in words, and whether it is met."""
    inside = samples.get(LORENTZ_LEVEL, {}).get(row.case, [])
    native = samples.get(NATIVE, {}).get(row.case, [])
    rival = samples.get(LIBFAKETIME, {}).get(row.case, [])
    found = []
    if row.goal and inside:
        pairs = zip(native or inside, inside, strict=False)
        value = median(row.goal.figure(a, b) for a, b in pairs)
        found.append((row.goal.words, row.goal.met(value)))
    if row.half_of_libfaketime and inside and rival:
        found.append(("below half of libfaketime's", median(inside) < median(rival) / 2))
    return found


def _line(row: Row, samples: Samples) -> str:
    cells = [row.what]
    for level in COLUMNS:
        values = samples.get(level, {}).get(row.case, [])
        cells.append(_show(median(values), row.unit) if values else "-")
    inside = samples.get(LORENTZ_LEVEL, {}).get(row.case, [])
    native = samples.get(NATIVE, {}).get(row.case, [])
    cells.append((_against_native(row, native, inside) if inside else "") or "-")
    wanted = [row.goal.words] if row.goal else []
    if row.half_of_libfaketime:
        wanted.append("below half of libfaketime's")
    cells.append("; ".join(wanted) or "-")
    results = ["yes" if met else "**no**" for _, met in verdicts(row, samples)]
    cells.append("; ".join(results) or ("not measured" if wanted else "-"))
    return "| " + " | ".join(cells) + " |"


def _misses(all_samples: dict[str, Samples]) -> list[str]:
    reasons = json.loads(REASONS.read_text())
    lines = []
    for row in ROWS:
        missed = [w for w, met in verdicts(row, all_samples.get(row.suite, {})) if not met]
        if missed:
            reason = reasons.get(row.key, "no reason is known yet")
            lines.append(f"- **{row.what}** ({'; '.join(missed)}): {reason}.")
    return lines


def table(all_samples: dict[str, Samples]) -> list[str]:
    """The lines of the table, for the suites that were run."""
    head = ["what", *COLUMNS, "lorentz against native", "goal", "met"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + [_line(row, all_samples[row.suite]) for row in ROWS if row.suite in all_samples]


def runtimes(all_samples: dict[str, Samples]) -> list[str]:
    """Returns a table of the OCI runtimes one by one; empty if only one was measured."""
    samples = all_samples.get("containers", {})
    names = [name for name in samples if name not in COLUMNS]
    if not names:
        return []
    names.insert(0, LORENTZ_LEVEL)
    head = ["what", *(RUNTIMES.get(name, name) for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in ROWS:
        if row.suite == "containers" and samples[names[1]].get(row.case):
            figures = [samples[name].get(row.case, []) for name in names]
            cells = [_show(median(values), row.unit) if values else "-" for values in figures]
            lines.append("| " + " | ".join([row.what, *cells]) + " |")
    return lines


PREFACE = """\
# How fast

What does virtual time cost, against native runs and other tools? Goals stand beside the figures.

Written by `make bench`; do not edit. Reasons for missed goals are kept in `benches/reasons.json`.

- Every figure is the median over rounds. In each round the levels run one after the other, in
  changing order, so that whatever else the machine does hits all of them alike.
- Inside a container the stopwatch is the processor's time-stamp counter, held against the host's
  clock before the run: a virtual clock cannot judge itself.
- *lorentz against native* compares round by round; brackets hold the middle half of the rounds.
- All levels run at rate 1 with an offset, where nothing else is said: `unshare -T` shifts the
  monotonic clock, `faketime -f +1d` and `lorentz run --offset +1d` the date.
- Throughput: the server runs at the level, the load generator natively beside it. libfaketime has
  no figure for the Go server: it does nothing to a static program. Single figures are
  explained in `benches/suites.py` and `benches/servers.py`.
- Containers: *native* is the quickest of the other OCI runtimes that are installed.
- Commands beside many containers: each of these has a monitor and one sleeping program
  (`benches/many.py`). `time --json` lists the container's processes; to find them it walks over
  /proc, and 1,000 other containers are 2,000 processes there.
"""


def document(
    machine: dict[str, str], left_out: dict[str, str], all_samples: dict[str, Samples]
) -> str:
    """The whole of docs/performance.md."""
    lines = [PREFACE, "## The machine", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", "## The figures", "", *table(all_samples), ""]
    by_runtime = runtimes(all_samples)
    if by_runtime:
        lines += ["Containers, by the runtime that makes them:", "", *by_runtime, ""]
    misses = _misses(all_samples)
    if misses:
        lines += ["## Where a goal is missed", "", *misses, ""]
    if left_out:
        lines += ["## Left out", ""]
        lines += [f"- {name}: {reason}." for name, reason in left_out.items()] + [""]
    return "\n".join(lines)


def with_rows(page: str, machine: dict[str, str], all_samples: dict[str, Samples]) -> str:
    """Returns the page with today's preface and the new rows of the suites in `all_samples`.

    Below the machine the page says which rows are of another run than the table. The first cell
    identifies a row. A new row comes after the row that precedes it in the full table.
    """
    lines = [*PREFACE.split("\n"), *page[page.index("## The machine") :].split("\n")]
    before = None
    for row in ROWS:
        head = f"| {row.what} |"
        at = next((n for n, line in enumerate(lines) if line.startswith(head)), None)
        if row.suite in all_samples:
            if at is not None:
                lines.pop(at)
            else:
                top = next(n for n, line in enumerate(lines) if line.startswith("|---"))
                at = (top if before is None else before) + 1
            lines.insert(at, _line(row, all_samples[row.suite]))
        before = at if at is not None else before
    for suite in all_samples:
        mark = f"- Measured apart, `{suite}`: "
        lines = [line for line in lines if not line.startswith(mark)]
        facts = ", ".join(machine[key] for key in ("Date", "Measured") if key in machine)
        load = machine.get("Load average at the start", "")
        known = ("- Load", "- Measured apart")
        last = max(n for n, line in enumerate(lines) if line.startswith(known))
        lines.insert(last + 1, f"{mark}{facts}, load average {load}")
    return "\n".join(_with_misses(lines, all_samples))


def _with_misses(lines: list[str], all_samples: dict[str, Samples]) -> list[str]:
    """Returns the same lines, with new reasons for the rows in `all_samples`."""
    heads = tuple(f"- **{row.what}** (" for row in ROWS if row.suite in all_samples)
    lines = [line for line in lines if not line.startswith(heads)]
    misses = _misses(all_samples)
    title = "## Where a goal is missed"
    if misses and title not in lines:
        lines += [title, "", ""]
    last = max(
        (n for n, line in enumerate(lines) if line.startswith("- **") or line == title), default=0
    )
    gap = [""] if misses and lines[last] == title else []
    return [*lines[: last + 1], *gap, *misses, *lines[last + 1 :]]
