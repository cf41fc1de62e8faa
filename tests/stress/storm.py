"""A storm: random programs under random changes of their clock, while Lorentz itself is killed.

programs/stress/storm.c does random things and checks its readings of time. Meanwhile this script
changes the clock in every way, kills and stops commands, and at a round's end may kill the monitor
or the launcher. All of it comes from one seed: the same seed gives the same rounds again, though
not the same schedule. `Weather.native` runs the same programs in real time: a finding there is not
a defect of Lorentz.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import random
import signal
import subprocess
import time
from fractions import Fraction
from pathlib import Path

from framework import build, lorentz, processes
from framework.running import Inside, Native, Running

#: Virtual time runs between a quarter and four times the weather's rate.
RATES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
#: Time within which every thread must make progress, real s; waits take 80 ms at most.
STANDSTILL = 30.0
ROUND = 12.0


class Finding(AssertionError):
    """A violation, and the seed that led to it."""


@dataclasses.dataclass(frozen=True)
class Weather:
    """Settings of a storm: the rate, whether idle time is skipped, or a native run."""

    rate: str = "1"
    skip_idle: bool = False
    native: bool = False

    def __str__(self) -> str:
        if self.native:
            return "native"
        return f"rate {self.rate}" + (", idle time skipped" if self.skip_idle else "")


def storm(weather: Weather, seed: int, seconds: float, folder: Path) -> int:
    """Runs rounds until the time is up, and gives their number. Raises a Finding."""
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        one = Round(weather, seed + rounds, folder)
        print(f"storm: {weather}, seed {one.seed}", flush=True)
        one.run(min(ROUND, max(2.0, end - time.monotonic())))
        rounds += 1
    return rounds


class Round:
    """One program, and all disturbances of it."""

    def __init__(self, weather: Weather, seed: int, folder: Path) -> None:
        self.weather = weather
        self.seed = seed
        self.rng = random.Random(f"{weather} {seed}")
        self.steps = self.rng.random() < 0.3
        self.freezes = self.rng.random() < 0.5
        self.folder = folder
        self.program: Running | None = None
        self.frozen = False
        #: Greatest step back of the wall clock since `_settle`, s: waits until a time of day last
        #: as much longer.
        self.stepped_back = 0
        self.started: list[subprocess.Popen] = []

    def run(self, seconds: float) -> None:
        """Runs the round. Raises a Finding for a violation."""
        rate = Fraction(1 if self.weather.native else self.weather.rate)
        scale = f"{float(rate):g}"
        program = str(build.c("stress/storm"))
        command = [program, str(self.seed), scale, str(int(self.steps))]
        with self._start(command) as self.program:
            try:
                self.program.line(ev="ready", timeout=60)
                self._weather(seconds)
                self._end()
            finally:
                processes.end(self.started, timeout=10)

    def _start(self, command: list[str]) -> Running:
        if self.weather.native:
            return Native(command, cwd=self.folder, stdin=True)
        options = ["--skip-idle"] if self.weather.skip_idle else []
        return Inside(
            *command, rate=self.weather.rate, options=options, cwd=self.folder, stdin=True
        )

    def _weather(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        watch = Watch(self)
        while time.monotonic() < end:
            if self.weather.native:
                time.sleep(0.1)
            else:
                self._something()
            watch.look()
            self._check()
        if not self.weather.native:
            self._settle()

    def _check(self) -> None:
        for kind in ("finding", "broken"):
            if found := self.program.lines(ev=kind):
                self._found("; ".join(line.text for line in found[:5]))
        if (status := self.program.process.poll()) is not None:
            self._found(f"it ended: {status}: {self.program.stdout[-500:]}{self.program.stderr}")

    def _found(self, what: str) -> None:
        said = self.program.stderr.strip() if self.program else ""
        raise Finding(f"{self.weather}, seed {self.seed}: {what}" + (f"\n{said}" if said else ""))

    # ----------------------------------------------------------------------- what comes over it

    def _something(self) -> None:
        happen = self.rng.choices(
            [self._change, self._killed, self._stopped, self._asked, self._settle, self._skipper],
            [10, 6, 2, 2, 2, 1],
        )[0]
        happen()
        time.sleep(self.rng.expovariate(20))

    def _verb(self) -> list[str]:
        rng = self.rng
        verbs = [
            ["dilate", "--rate", str(Fraction(self.weather.rate) * rng.choice(RATES))],
            ["leap", "--by", f"{rng.randint(0, 10**10)}ns"],
            ["unfreeze"],
        ]
        if self.freezes:
            verbs.append(["freeze"])
        if self.steps:
            verbs.append(["step", f"--by={rng.randint(-3600, 3600)}s"])
        verb = rng.choice(verbs)
        if verb[0] == "step":
            self.stepped_back += 3600
        if verb[0] in ("dilate", "leap", "step") and rng.random() < 0.3:
            at = datetime.datetime.now(datetime.UTC)
            at += datetime.timedelta(milliseconds=rng.randint(20, 200))
            verb += ["--at", at.isoformat().replace("+00:00", "Z")]
        return verb

    def _change(self) -> None:
        verb = self._verb()
        done = lorentz.call(verb[0], self.program.name, *verb[1:], timeout=STANDSTILL)
        # Allowed failures: a time that is past when the command reads it; freezing a frozen
        # container.
        may = (0, 2) if "--at" in verb or verb[0] in ("freeze", "unfreeze") else (0,)
        if done.returncode not in may:
            self._found(f"{verb}: {done.returncode}: {done.stderr}")
        if verb[0] == "freeze":
            time.sleep(self.rng.uniform(0, 0.2))
            self._settle()

    def _begin(self, verb: list[str]) -> subprocess.Popen:
        process = subprocess.Popen(
            [*lorentz.session.command(), verb[0], self.program.name, *verb[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=lorentz.session.environment(),
        )
        self.started.append(process)
        return process

    def _killed(self) -> None:
        """A command is killed at any place of its short life, from its start to past its end."""
        verb = self.rng.choice([self._verb(), self._verb(), ["exec", str(build.c("stress/storm"))]])
        process = self._begin(verb)
        time.sleep(self.rng.uniform(0, 0.02))
        process.kill()
        process.wait(timeout=STANDSTILL)
        if verb[0] == "freeze":
            self._settle()

    def _stopped(self) -> None:
        process = self._begin(self._verb())
        time.sleep(self.rng.uniform(0, 0.01))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.rng.uniform(0, 0.2))
            process.send_signal(self.rng.choice([signal.SIGCONT, signal.SIGKILL]))
        process.wait(timeout=STANDSTILL)
        self._settle()

    def _asked(self) -> None:
        shown = lorentz.json_of("time", self.program.name)
        if self.program.name not in [entry["name"] for entry in lorentz.ps()]:
            self._found(f"ps does not show it: {shown}")

    def _settle(self) -> None:
        """Restores the initial state, whichever change was interrupted by a kill."""
        verbs = [["unfreeze"], ["dilate", "--rate", self.weather.rate]]
        if self.stepped_back:
            verbs.append(["step", f"--by={self.stepped_back}s"])
            self.stepped_back = 0
        for verb in verbs:
            done = lorentz.call(verb[0], self.program.name, *verb[1:], timeout=STANDSTILL)
            if done.returncode not in (0, 2):
                self._found(f"{verb}: {done.returncode}: {done.stderr}")

    def _skipper(self) -> None:
        if not self.weather.skip_idle:
            return
        skipper = lorentz.json_of("time", self.program.name)["skip"]["skipper"]
        if skipper is not None and self.rng.random() < 0.5:
            with contextlib.suppress(ProcessLookupError):
                os.kill(skipper, signal.SIGKILL)
        for word in ("off", "on"):
            lorentz.call("skip", self.program.name, word, timeout=STANDSTILL)

    # ------------------------------------------------------------------------------- its end

    def _end(self) -> None:
        fate = self.rng.choice(["", "", "monitor", "launcher", "rm"])
        if self.weather.native or not fate:
            self.program.close_stdin()
            if (status := self._status()) is None:
                self._found(f"does not end:\n{describe(self.program.processes())}")
            for line in self.program.lines(ev="finding"):
                self._found(line.text)
            if status or not self.program.lines(ev="end"):
                self._found(f"status {status}: {self.program.stderr}")
            return
        if fate == "rm":
            lorentz.ok("rm", "--force", self.program.name, timeout=STANDSTILL)
        else:
            victim = self.program.monitor() if fate == "monitor" else self.program.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            time.sleep(self.rng.uniform(0, 0.5))
            self.program.close_stdin()
        # In every case the program ends, and no clock went back.
        self._nothing_is_left(fate)
        for line in self.program.lines(ev="finding"):
            if line["what"] in ("back", "early"):
                self._found(f"after the end of the {fate}: {line.text}")

    def _status(self) -> int | None:
        """Returns the program's exit status, once it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.program.process.wait(timeout=STANDSTILL)
            return self.program.finish()
        return None

    def _nothing_is_left(self, fate: str) -> None:
        deadline = time.monotonic() + STANDSTILL
        while left := self.program.processes():
            if time.monotonic() > deadline:
                self._found(f"left behind after the end of the {fate}: {describe(left)}")
            time.sleep(0.05)


class Watch:
    """Checks that every thread makes progress."""

    def __init__(self, one: Round) -> None:
        self.round = one
        self.asked = 0
        self.asked_at = 0.0
        self.each: list[int] = []
        self.since: list[float] = []

    def look(self) -> None:
        """Reads the threads' progress once a second."""
        program = self.round.program
        answers = program.lines(ev="count")
        now = time.monotonic()
        if len(answers) == self.asked:
            if now - self.asked_at > 1 or not self.asked:
                if answers:
                    self._compare(answers[-1].data, now)
                with contextlib.suppress(BrokenPipeError):
                    program.process.stdin.write(b"?\n")
                    program.process.stdin.flush()
                self.asked += 1
                self.asked_at = now
        elif now - self.asked_at > STANDSTILL:
            self._stands("the first thread", program)

    def _compare(self, answer: dict, now: float) -> None:
        each = answer["each"]
        before = self.each or [None] * len(each)
        since = self.since or [now] * len(each)
        self.since = [
            then if count == old else now
            for count, old, then in zip(each, before, since, strict=True)
        ]
        self.each = each
        for number, then in enumerate(self.since):
            if now - then > STANDSTILL:
                where = answer["in"][number]
                self._stands(f"thread {number} in {where}", self.round.program)

    def _stands(self, who: str, program: Running) -> None:
        shown = describe(program.processes())
        self.round._found(f"stands still for {STANDSTILL:g} s: {who}\n{shown}")


def describe(pids: list[int]) -> str:
    """Returns the place of each thread of these processes, from the kernel."""
    found = []
    for pid in pids:
        for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
            with contextlib.suppress(OSError):
                words = [
                    (task / name).read_text().split("\n")[0]
                    for name in ("comm", "wchan", "syscall")
                ]
                found.append(f"{task.name}: {' '.join(words)}")
    return "\n".join(found)
