"""Waits and clocks over checkpoints and restores, and how long these take, beside CRIU alone.

Rewrites the figures in docs/checkpoint.md. Runs as root, with CRIU 4.1 or later.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import machine
import page_part
from levels import LORENTZ, ROOT
from suites import announce

PAGE = ROOT / "docs/checkpoint.md"
FIGURES = ROOT / "build/bench/checkpoint.json"
TIMEOUT = 180
#: Length of each wait, and of its part before the checkpoint, virtual s.
LENGTH, BEFORE = 6.0, 2.0
RATES = ("1/10", "1", "2", "10")
ABSENCES = (0, 4, 60)
ROUNDS = 7
CYCLES = 100
NAME = f"bench-{os.getpid()}"
STATE = {"LORENTZ_STATE_DIR": f"/run/lorentz-bench-{os.getpid()}"}
Line = dict[str, object]

#: A Python with threads that tick.
PYTHON = """
import threading, time
def tick():
    while True: time.sleep(0.05)
for _ in range(4): threading.Thread(target=tick).start()
"""
#: Prints CLOCK_MONOTONIC as fast as it can.
READS = "import os, time\nwhile True: os.write(1, b'%d\\n' % time.monotonic_ns())"
JAVA = """
public class Ticks {
  public static void main(String[] words) throws Exception {
    var pool = java.util.concurrent.Executors.newScheduledThreadPool(4);
    var unit = java.util.concurrent.TimeUnit.MILLISECONDS;
    pool.scheduleAtFixedRate(() -> {}, 0, 50, unit);
  }
}
"""


def environment() -> dict[str, str]:
    """The environment of all commands: a state directory of their own, and a CRIU."""
    criu = {"LORENTZ_CRIU": str(criu_binary())}
    return {**os.environ, **STATE, **criu}


def criu_binary() -> Path:
    """The CRIU that scripts/criu has installed, or the system's."""
    named = os.environ.get("LORENTZ_CRIU") or shutil.which("criu")
    installed = ROOT / "build/criu/criu"
    return installed if installed.exists() else Path(named or "criu")


def stopwatch(command: list, **options: object) -> float:
    """Runs a command, which must succeed. Returns its duration, s. (A wait of subprocess with a
    timeout looks every 50 ms.)"""
    begun = time.monotonic()
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, **streams, **options) as run:
        poll = select.poll()
        end = os.pidfd_open(run.pid)
        poll.register(end, select.POLLIN)
        has_ended = poll.poll(TIMEOUT * 1e3)
        took = time.monotonic() - begun
        os.close(end)
        if not has_ended:
            run.kill()
        if run.wait() != 0:
            raise subprocess.CalledProcessError(run.returncode, command)
    return took


def lorentz(*words: str) -> float:
    """Runs `lorentz WORDS`. Returns its duration, s."""
    return stopwatch([LORENTZ, *words], env=environment())


def criu(verb: str, folder: Path, *words: str) -> float:
    """Runs CRIU alone. Returns its duration, s."""
    folder.mkdir(exist_ok=True)
    command = [criu_binary(), verb, "-D", folder, "--shell-job", "--tcp-established", *words]
    return stopwatch([*command, "-o", "criu.log"], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A scratch directory."""
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as name:
        yield Path(name)


def start(command: list[str], output: Path) -> subprocess.Popen:
    """Starts a command in a session of its own, with its output in a file."""
    with output.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment(),
            start_new_session=True,
        )


def lines(output: Path, count: int, timeout: float, **want: object) -> list[Line]:
    """Waits until `count` lines of JSON with these values are in a file."""
    deadline = time.monotonic() + timeout
    while True:
        texts = output.read_text().splitlines() if output.exists() else []
        all_of_them = [json.loads(text) for text in texts if text.startswith("{")]
        found = [line for line in all_of_them if want.items() <= line.items()]
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} of {count} lines {want} in {timeout} s")
        time.sleep(0.01)


# --- waits ---


def waits_with_lorentz(program: Path, rate: str, absence: float) -> dict[str, Line]:
    """The sixteen waits over a checkpoint."""
    speed = float(Fraction(rate))
    with folder() as place:
        output = place / "out"
        run = start(
            [LORENTZ, "run", "--name", NAME, "--rate", rate, "--", str(program), str(LENGTH)],
            output,
        )
        lines(output, 1, 20, ev="ready")
        time.sleep(BEFORE / speed)
        lorentz("checkpoint", NAME, "-o", str(place / "saved"))
        run.wait(timeout=20)
        time.sleep(absence)
        lorentz("restore", str(place / "saved"))
        done = lines(output, 16, LENGTH / speed + 20, ev="done")
        # The program ends by itself soon.
        with contextlib.suppress(subprocess.CalledProcessError):
            lorentz("rm", "--force", NAME)
    return {line["kind"]: line for line in done}


def waits_with_criu(program: Path, absence: float) -> dict[str, Line]:
    """The same natively, with CRIU alone."""
    with folder() as place:
        output = place / "out"
        run = start([str(program), str(LENGTH)], output)
        lines(output, 1, 20, ev="ready")
        time.sleep(BEFORE)
        criu("dump", place / "saved", "-t", str(run.pid))
        run.wait(timeout=20)
        time.sleep(absence)
        criu("restore", place / "saved", "-d")
        done = lines(output, 16, LENGTH + 20, ev="done")
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)
    return {line["kind"]: line for line in done}


def late_ms(line: Line, rate: str) -> float:
    """How late a wait has ended, real ms."""
    return (float(line["elapsed"]) - LENGTH) / float(Fraction(rate)) * 1e3


# --- durations ---


@dataclass
class Program:
    """A program that is saved and restored, and how to know that it is ready."""

    name: str
    command: list[str]
    is_ready: Callable[[], bool] = lambda: True
    prepare: Callable[[], None] = lambda: None
    took: dict[str, list[float]] = field(default_factory=dict)


def programs(place: Path) -> list[Program]:
    """The programs that this machine has."""
    found = [Program("`sleep`", ["sleep", "1000"])]
    found.append(Program("Python, 5 threads", ["/usr/bin/python3", "-c", PYTHON]))
    if shutil.which("redis-server"):
        found.append(redis())
    if shutil.which("javac"):
        (place / "Ticks.java").write_text(JAVA)
        subprocess.run(["javac", "-d", place, place / "Ticks.java"], check=True)
        java = ["java", "-XX:-UsePerfData", "-Xmx64m", "-cp", str(place), "Ticks"]
        found.append(Program("a JVM with scheduled tasks", java))
    return found


def redis() -> Program:
    """A redis with 100 MB."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    client = ["redis-cli", "-p", port]

    def ask(*words: str) -> str:
        done = subprocess.run([*client, *words], capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    server = ["redis-server", "--port", port, "--save", "", "--enable-debug-command", "yes"]
    return Program(
        "redis with 100 MB",
        server,
        lambda: ask("ping") == "PONG",
        lambda: ask("debug", "populate", "100000", "key", "1000"),
    )


def wait_until_ready(program: Program) -> None:
    """Waits until a program has begun, and prepares it."""
    deadline = time.monotonic() + 20
    while not program.is_ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{program.name} does not begin")
        time.sleep(0.02)
    time.sleep(0.7)
    program.prepare()


def durations(program: Program, place: Path) -> None:
    """One round: Lorentz, then CRIU alone."""
    saved, output = place / "saved", place / "out"

    def note(what: str, seconds: float) -> None:
        program.took.setdefault(what, []).append(seconds * 1e3)

    run = start([LORENTZ, "run", "--name", NAME, "--", *program.command], output)
    wait_until_ready(program)
    note("checkpoint", lorentz("checkpoint", NAME, "-o", str(saved)))
    run.wait(timeout=20)
    note("restore", lorentz("restore", str(saved)))
    lorentz("rm", "--force", NAME)
    shutil.rmtree(saved)
    run = start(program.command, output)
    wait_until_ready(program)
    note("criu dump", criu("dump", saved, "-t", str(run.pid)))
    run.wait(timeout=20)
    note("criu restore", criu("restore", saved, "-d"))
    os.kill(run.pid, signal.SIGKILL)
    shutil.rmtree(saved)
    output.unlink()


# --- clocks, cycles ---


def gained_ms(rate: str) -> tuple[float, float]:
    """The longest step of CLOCK_MONOTONIC between two readings of a program over a checkpoint, and
    over the same time without one; virtual ms."""
    with folder() as place:
        output = place / "out"
        command = ["/usr/bin/python3", "-c", READS]
        copy = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output.open("w"))
        streams = {"stdin": subprocess.DEVNULL, "stdout": copy.stdin}
        begin = [LORENTZ, "run", "--name", NAME, "--rate", rate, "--", *command]
        run = subprocess.Popen(begin, env=environment(), **streams)
        time.sleep(1)
        lorentz("checkpoint", NAME, "-o", str(place / "saved"))
        run.wait(timeout=20)
        before = len(output.read_text().splitlines())
        restore = [LORENTZ, "restore", str(place / "saved")]
        subprocess.run(restore, check=True, env=environment(), **streams)
        copy.stdin.close()
        time.sleep(1)
        lorentz("rm", "--force", NAME)
        copy.wait(timeout=20)
        reads = [int(text) for text in output.read_text().splitlines()[:-1]]
    steps = [(later - earlier) / 1e6 for earlier, later in zip(reads, reads[1:], strict=False)]
    if min(steps) < 0:
        raise RuntimeError("the clock went back")
    around = range(max(before - 200, 0), min(before + 200, len(steps)))
    return max(steps[i] for i in around), max(steps[: before - 200])


def looks(pid: int) -> dict[str, int]:
    """Counts the filters, descriptors and mappings of a process, and its memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    number = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+)", status, re.M)}
    return {
        "filters": number["Seccomp_filters"],
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "mappings": Path(f"/proc/{pid}/maps").read_text().count("\n"),
        "anonymous memory, kB": number["RssAnon"],
    }


def cycles() -> tuple[dict[str, int], dict[str, int]]:
    """Returns the looks at a process after one restore, and after CYCLES of them."""
    with folder() as place:
        run = start([LORENTZ, "run", "--name", NAME, "--", "sleep", "100000"], place / "out")
        time.sleep(0.5)
        seen = []
        for number in range(CYCLES):
            saved = place / str(number)
            lorentz("checkpoint", NAME, "-o", str(saved))
            lorentz("restore", str(saved))
            shutil.rmtree(saved)
            if number in (0, CYCLES - 1):
                listed = subprocess.run(
                    [LORENTZ, "ps", "--json"], capture_output=True, check=True, env=environment()
                )
                seen.append(looks(json.loads(listed.stdout)[0]["pids"][0]))
        lorentz("rm", "--force", NAME)
        run.wait(timeout=20)
    return seen[0], seen[1]


# --- the page ---


def measure(quick: bool) -> dict[str, object]:
    """Takes all figures."""
    rounds = 3 if quick else ROUNDS
    absences = ABSENCES[:2] if quick else ABSENCES
    with folder() as place:
        program = place / "waits"
        source = ROOT / "tests/programs/checkpoint/waits.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source, "-lrt"], check=True)
        with_lorentz = {}
        for rate in RATES:
            for absence in absences:
                announce(f"bench: waits at rate {rate}, {absence} s away")
                with_lorentz[f"{rate} {absence}"] = waits_with_lorentz(program, rate, absence)
        alone = waits_with_criu(program, 4)
        timed = programs(place)
        for number in range(rounds):
            announce(f"bench: durations, round {number + 1} of {rounds}")
            for one in timed:
                durations(one, place)
        gained = {rate: [gained_ms(rate) for _ in range(3)] for rate in ("1", "10")}
        announce(f"bench: {CYCLES} cycles")
        return {
            "waits": with_lorentz,
            "alone": alone,
            "durations": {one.name: one.took for one in timed},
            "gained": gained,
            "cycles": cycles(),
        }


def waits_table(figures: dict) -> list[str]:
    """A row for each kind of wait."""
    runs = figures["waits"]
    absences = sorted({int(key.split()[1]) for key in runs})
    rows = [
        f"Latest end of each wait after its virtual deadline, over absences of "
        f"{', '.join(map(str, absences))} s, real ms. The last column is CRIU alone, natively, 4 s "
        "away: the length of the wait by the program's CLOCK_MONOTONIC.",
        "",
        "| wait | " + " | ".join(f"rate {rate}" for rate in RATES) + " | CRIU alone |",
        "|---" * (len(RATES) + 2) + "|",
    ]
    broken_off = 0
    for kind in next(iter(runs.values())):
        cells = []
        for rate in RATES:
            ends = [runs[f"{rate} {absence}"][kind] for absence in absences]
            broken_off += sum(line["err"] != 0 for line in ends)
            cells.append(f"{max(late_ms(line, rate) for line in ends):.2f}")
        alone = figures["alone"][kind]
        elapsed = f"{alone['elapsed']:.2f} s"
        cells.append(f"EINTR after {elapsed}" if alone["err"] else elapsed)
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    early = min(late_ms(line, key.split()[0]) for key, run in runs.items() for line in run.values())
    total = sum(len(run) for run in runs.values())
    rows += [
        "",
        f"Of {total} waits {broken_off} were broken off. The earliest ended {early:.2f} ms",
    ]
    rows[-1] += " after its deadline. Goal: within 5 ms, none broken off."
    return rows


def durations_table(figures: dict) -> list[str]:
    """A row for each program."""
    rows = [
        "Medians, ms. CRIU alone: `criu dump` and `criu restore` of the same program outside. "
        "Goal: at most CRIU's own time, 20 ms and 5 ms for each process more.",
        "",
        "| program | checkpoint | CRIU alone | more | restore | CRIU alone | more |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, took in figures["durations"].items():
        ours = [statistics.median(took[what]) for what in ("checkpoint", "restore")]
        criu_s = [statistics.median(took[what]) for what in ("criu dump", "criu restore")]
        cells = []
        for own, alone in zip(ours, criu_s, strict=True):
            cells += [f"{own:.0f}", f"{alone:.0f}", f"{own - alone:.0f}"]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def section(about: dict[str, str], figures: dict) -> list[str]:
    """The figures, in Markdown."""
    keys = ("Date", "Kernel", "Processor", "Lorentz")
    known = "; ".join(f"{key}: {about[key]}" for key in keys if key in about)
    version = subprocess.run([criu_binary(), "--version"], capture_output=True, text=True)
    version = version.stdout.split("\n")[0].removeprefix("Version: ")
    first, last = figures["cycles"]
    same = [f"{last[what]} {what} ({first[what]})" for what in first]
    gained = figures["gained"]
    steps = "; ".join(
        f"{max(over for over, _ in gained[rate]):.2f} ms at rate {rate} "
        f"({max(without for _, without in gained[rate]):.2f} ms elsewhere in the same runs)"
        for rate in gained
    )
    return [
        f"`make bench ARGS=checkpoint` makes this section. {known}; CRIU {version}.",
        "",
        "### Waits, compared",
        "",
        *waits_table(figures),
        "",
        "### Duration",
        "",
        *durations_table(figures),
        "",
        "### Clocks and cycles",
        "",
        "Longest step between two readings of CLOCK_MONOTONIC around a checkpoint and its restore, "
        f"by a program that reads all the time: {steps}. Goal: at most 1 ms gained, never back.",
        "",
        f"After {CYCLES} checkpoints and restores a process has {', '.join(same)}; in brackets, "
        "after the first.",
    ]


def run(quick: bool, tsc_hertz: float) -> None:
    """Measures, and writes the figures into the page."""
    about = machine.describe(tsc_hertz)
    try:
        figures = measure(quick)
    finally:
        subprocess.run([LORENTZ, "rm", "--force", NAME], env=environment(), capture_output=True)
        shutil.rmtree(STATE["LORENTZ_STATE_DIR"], ignore_errors=True)
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures))
    text = section(about, figures)
    if not quick:
        page_part.write(PAGE, text)
    print("\n".join(text))
