"""The precise timers beside other clocks and sleeps, as the paper's tables 1 and 2: docs/timers.md.

Three loads: none; 100 threads of square roots; iperf3 over loopback with files written and synced.
All figures that are compared come from one run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machine
import page_part
from levels import ROOT

PROGRAM = ROOT / "target/release/examples/timers_bench"
PAGE = ROOT / "docs/timers.md"
FIGURES = ROOT / "build/bench/timers.json"
LOADS = {
    "idle": "nothing else",
    "cpu": "100 threads of square roots",
    "io": "iperf3 over loopback, and files written and synced",
}
CLOCKS = {
    "moment_unordered": "`Moment::now_unordered`",
    "minstant": "minstant",
    "quanta": "quanta",
    "moment": "`Moment::now`",
    "monotonic": "`Reference::Monotonic.now`",
    "clock_gettime": "clock_gettime (vDSO)",
    "std": "std::time::Instant",
}
SLEEPS = {"lorentz": "`sleep`", "spin_sleep": "spin_sleep", "usleep": "usleep"}
#: Median nanoseconds of the paper on its bare host (tables 1 and 2), for the same loads.
PAPER = {
    "moment": {"idle": 17.2, "cpu": 17.2, "io": 17.2},
    "clock_gettime": {"idle": 27.0, "cpu": 26.0, "io": 26.0},
    "lorentz": {"idle": 82.0, "cpu": 102.4, "io": 94.9},
    "usleep": {"idle": 61_996.3, "cpu": 54_674.9, "io": 57_756.1},
}


def measured(*words: str, timeout: float = 600) -> dict:
    """Runs the program and parses its output."""
    run = subprocess.run(
        [str(PROGRAM), *words], capture_output=True, text=True, timeout=timeout, check=True
    )
    return json.loads(run.stdout)


@contextmanager
def ended(*processes: subprocess.Popen) -> Iterator[None]:
    """Ends these processes, which this benchmark started, when the block ends."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def no_load() -> Iterator[None]:
    """The machine as it is."""
    yield


@contextmanager
def squares() -> Iterator[None]:
    """100 threads of square roots."""
    with ended(subprocess.Popen([str(PROGRAM), "squares", "600"], stdout=subprocess.DEVNULL)):
        time.sleep(0.5)
        yield


def write_files(folder: Path, over: threading.Event) -> None:
    """Writes and syncs files until the load is over."""
    block = os.urandom(1 << 20)
    while not over.is_set():
        with (folder / "block").open("wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def network() -> Iterator[None]:
    """iperf3 over loopback, and files written and synced."""
    iperf = shutil.which("iperf3")
    if iperf is None:
        raise RuntimeError("iperf3 is not installed (benches/packages.txt)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([iperf, "-s", "-p", port, "-B", "127.0.0.1"], **quiet)
    time.sleep(0.5)
    client = subprocess.Popen([iperf, "-c", "127.0.0.1", "-p", port, "-t", "600"], **quiet)
    over = threading.Event()
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder, ended(client, server):
        writer = threading.Thread(target=write_files, args=(Path(folder), over))
        writer.start()
        try:
            time.sleep(0.5)
            if client.poll() is not None:
                raise RuntimeError("iperf3 ended at once")
            yield
        finally:
            over.set()
            writer.join()


UNDER = {"idle": no_load, "cpu": squares, "io": network}


def measure(quick: bool) -> dict:
    """Measures all figures: by load, the program's output for each of its measurements."""
    build = ["cargo", "build", "--release", "--locked", "--package", "lorentz-timers"]
    subprocess.run([*build, "--example", "timers_bench"], cwd=ROOT, check=True)
    (ROOT / "build").mkdir(exist_ok=True)
    costs, misses, seconds = ("3000", "500", "1") if quick else ("100000", "5000", "10")
    figures: dict[str, dict] = {}
    for load, put_under in UNDER.items():
        with put_under():
            # Under full load every sleep may wait for a hundred other threads.
            few = str(int(misses) // 5) if load == "cpu" else misses
            figures[load] = {"cost": measured("cost", costs), "miss": measured("miss", few)}
            if os.geteuid() == 0:
                figures[load]["fifo"] = measured("miss", few, "fifo")
            if load == "idle":
                figures[load]["share"] = measured("share", seconds)
    return figures


def nanos(value: float) -> str:
    """Formats nanoseconds for a table."""
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def rows(figures: dict, key: str, names: dict[str, str]) -> list[str]:
    """The rows of one kind of measurement, under all loads."""
    lines = [
        "| what | load | median | MAD | min | 1 in 10 above | in 100 | in 1,000 | max | paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, title in names.items():
        for load in LOADS:
            found = figures[load][key]["found"][name]
            above = [found["above"][share] for share in ("0.1", "0.01", "0.001")]
            cells = [found["median"], found["mad"], found["min"], *above, found["max"]]
            paper = PAPER.get(name, {}).get(load)
            shown = [nanos(cell) for cell in cells]
            shown.append(nanos(paper) if paper and key != "fifo" else "")
            lines.append(f"| {title} | {load} | " + " | ".join(shown) + " |")
    return lines


def where_the_share_goes(figures: dict) -> list[str]:
    """Returns the part of the share that is not ours."""
    share = figures["idle"]["share"]["found"]
    kernel, ours = share["usleep_1ms"], share["lorentz_1ms"]
    return [
        f"Of the share at 1 ms {kernel:.1f} % is what the kernel takes to put a thread to sleep",
        f"and to wake it, as usleep shows; {ours - kernel:.1f} % is the window, which is as long",
        "as wake-ups vary by, up to 100 us. On a virtual machine that is mostly the host's doing.",
    ]


def goals(figures: dict) -> list[str]:
    """Returns the goals, and whether each is met."""
    cost, miss = figures["idle"]["cost"]["found"], figures["idle"]["miss"]["found"]
    share = figures["idle"]["share"]["found"]
    ours, ordered = cost["moment_unordered"]["median"], cost["moment"]["median"]
    vdso = cost["clock_gettime"]["median"]
    others = min(cost["quanta"]["median"], cost["minstant"]["median"])
    late, usleep = miss["lorentz"]["median"], miss["usleep"]["median"]
    spin = miss["spin_sleep"]["median"]
    # Two equal clocks differ by one tick of the counter that measures them.
    tick = 1e9 / figures["idle"]["cost"]["hertz"]
    judged = [
        (
            "a read, unordered as quanta's and minstant's: no dearer than theirs",
            f"{ours:.1f} ns, theirs {others:.1f} ns",
            ours <= others + 2 * tick,
        ),
        ("a read, ordered: below the vDSO's", f"{ordered:.1f} ns, {vdso:.1f} ns", ordered < vdso),
        ("miss of a sleep, idle median: at most 100 ns", f"{late:.0f} ns", late <= 100),
        (
            "at least 300 times better than usleep",
            f"{usleep / max(late, 1):.0f} times",
            usleep >= 300 * late,
        ),
        ("not worse than spin_sleep", f"{spin:.0f} ns", late <= spin),
        (
            "CPU share at 1 ms: at most 6 %",
            f"{share['lorentz_1ms']:.1f} %, spin_sleep "
            f"{share['spin_sleep_1ms']:.1f} %, usleep {share['usleep_1ms']:.1f} %",
            share["lorentz_1ms"] <= 6,
        ),
        (
            "CPU share at 10 ms: at most 1.5 %",
            f"{share['lorentz_10ms']:.2f} %, spin_sleep "
            f"{share['spin_sleep_10ms']:.2f} %, usleep {share['usleep_10ms']:.2f} %",
            share["lorentz_10ms"] <= 1.5,
        ),
    ]
    lines = ["| goal | measured | reached |", "|---|---|---|"]
    words = {True: "yes", False: "**no**"}
    return lines + [f"| {what} | {got} | {words[good]} |" for what, got, good in judged]


def section(about: dict[str, str], figures: dict, quick: bool) -> list[str]:
    """Returns the text between the marks in the page."""
    source = figures["idle"]["cost"]
    lines = [f"- {name}: {value}" for name, value in about.items() if name != "Beside it"]
    lines.append(f"- Time source: {source['source']} ({source['reason']})")
    if quick:
        lines.append("- A short run, on a machine that others used at the same time.")
    elif float(about["Load average at the start"].split()[0]) > 1:
        lines.append("- Others used the machine at the same time: what is called idle was not.")
    lines += ["", "Loads: " + "; ".join(f"*{name}*, {what}" for name, what in LOADS.items()) + "."]
    lines += ["Nanoseconds; MAD is half the interquartile range, as in the paper; the paper's"]
    lines += ["column is its median on the bare host (for `Moment::now` its TSC).", ""]
    lines += ["### Goals, idle", "", *goals(figures), "", *where_the_share_goes(figures), ""]
    lines += ["### Reading a clock (of 16 reads in a row, the mean)", ""]
    lines += [*rows(figures, "cost", CLOCKS), ""]
    lines += ["### How late a sleep of 0.2 to 1 ms ends", "", *rows(figures, "miss", SLEEPS)]
    if all("fifo" in figures[load] for load in LOADS):
        lines += ["", "### The same under SCHED_FIFO", "", *rows(figures, "fifo", SLEEPS)]
    lines += [
        "",
        "### The whole distribution",
        "",
        "The share of the sleeps that ended later (CCDF).",
    ]
    for load, what in LOADS.items():
        lines += ["", f"![How late sleeps end; load: {what}](timers/ccdf-{load}.svg)"]
    return lines


def draw() -> None:
    """The plots, in .venv-bench."""
    python = ROOT / ".venv-bench/bin/python"
    command = [str(python) if python.exists() else sys.executable, "benches/timers_plots.py"]
    subprocess.run(command, cwd=ROOT, check=True)


def run(quick: bool, tsc_hertz: float) -> None:
    """Measures, and writes the figures into the page."""
    about = machine.describe(tsc_hertz)
    figures = measure(quick)
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures))
    lines = section(about, figures, quick)
    draw()
    page_part.write(PAGE, lines)
    print("\n".join(lines))
