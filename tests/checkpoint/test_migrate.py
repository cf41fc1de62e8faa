"""Moving containers to another host: here one with another CLOCK_MONOTONIC and a state directory of
its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework import checkpoints, lorentz, needs
from framework.experiments import until
from framework.oracle import HostNoise
from framework.running import Inside

COUNTS = (
    "n=0; while :; do n=$((n + 1)); read up rest </proc/uptime; "
    'echo "$n $(date +%s.%N) $up" >>FILE; sleep 0.05; done'
)


class OtherHost:
    """A host whose CLOCK_MONOTONIC is a million seconds ahead."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "other-host"
        self.state.mkdir()
        self.log = folder / "ssh.log"
        offsets = ("--monotonic", "1000000", "--boottime", "1000000")
        enter = f"exec unshare --time {' '.join(offsets)} env LORENTZ_STATE_DIR={self.state}"
        self.ssh = folder / "ssh"
        # As ssh: the host, then the command for its shell.
        self.ssh.write_text(f'#!/bin/sh\necho "$1" >>{self.log}\nshift\n{enter} /bin/sh -c "$*"\n')
        self.ssh.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess:
        """Runs `lorentz WORDS` there."""
        command = [self.ssh, "other", *lorentz.session.command(), *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, env=lorentz.session.environment()
        )

    def shown(self) -> list[dict]:
        return json.loads(self.run("ps", "--json").stdout)

    def options(self) -> tuple[str, ...]:
        here = " ".join(map(str, lorentz.session.command()))
        return ("--ssh", str(self.ssh), "--remote-lorentz", here)

    def left(self) -> list[str]:
        return [path.name for path in self.state.iterdir() if not path.name.startswith(".")]


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


@pytest.fixture
def other(tmp_path):
    host = OtherHost(tmp_path)
    yield host
    for row in host.shown():
        host.run("rm", "--force", row["name"])


def counting(folder: Path, **options: object) -> Inside:
    script = COUNTS.replace("FILE", str(folder / "counts"))
    return Inside("/bin/sh", "-c", script, at="2038-01-19", **options)


def counts(folder: Path) -> list[tuple[int, float, float]]:
    """The lines so far: number, wall clock and uptime."""
    texts = (folder / "counts").read_text().splitlines()
    return [(int(n), float(wall), float(up)) for n, wall, up in map(str.split, texts)]


def wait_for_lines(folder: Path, count: int) -> list[tuple[int, float, float]]:
    deadline = time.monotonic() + 10
    while not (folder / "counts").exists() or len(counts(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return counts(folder)


def longest_step(lines: list[tuple[int, float, float]]) -> float:
    """By the wall clock, from one line to the next, s."""
    return max(later[1] - line[1] for line, later in zip(lines, lines[1:], strict=False))


def scratches() -> set[str]:
    return {path.name for path in Path("/tmp").glob("lorentz-migration-*")}


# The restored programs have the environment of `inside`, and end with it.


@pytest.fixture(params=["at-once", "pre-copy"])
def way(request) -> tuple[str, ...]:
    """How the memory is sent: options of `migrate`."""
    if request.param == "at-once":
        return ()
    needs.feature("memory-tracking")
    return ("--pre-copy",)


def test_a_container_goes_on_at_the_other_host(other, way, tmp_path):
    """With each clock where it stood, and the rate and what it had to wait for."""
    before = scratches()
    with HostNoise() as noise, counting(tmp_path, rate="2") as inside:
        usual = longest_step(wait_for_lines(tmp_path, 5))
        options = ("--name", "moved", *way, *other.options())
        lorentz.ok("migrate", inside.name, "user@other", *options)
        assert inside.finish() == 137
        assert lorentz.shown(inside.name) is None
        assert other.log.read_text().split()[0] == "user@other"
        wait_for_lines(tmp_path, len(counts(tmp_path)) + 8)
        lines = counts(tmp_path)
        assert [n for n, _, _ in lines] == list(range(1, len(lines) + 1))
        steps = [(b[1] - a[1], b[2] - a[2]) for a, b in zip(lines, lines[1:], strict=False)]
        (row,) = other.shown()
        assert (row["name"], row["rate"], row["state"]) == ("moved", "2", "running")
        assert other.run("exec", "moved", "date", "+%Y").stdout.strip() == "2038"
        assert other.run("leap", "moved", "--by", "3y").returncode == 0
        assert other.run("exec", "moved", "date", "+%Y").stdout.strip() == "2041"
        assert other.run("rm", "--force", "moved").returncode == 0
        assert other.left() == [] and scratches() == before
    most = 1 + 2 * noise.slack + usual
    assert all(0 <= wall < most and -0.02 <= up < most for wall, up in steps), steps


#: Holds MEGABYTES of memory, writes a part of it again and again, and checks it.
WRITES = """
import json, random, sys, time
size, part = int(sys.argv[1]) << 20, 1 << 20
memory, page = bytearray(random.randbytes(size)), 4096
ticks = {}
for turn in range(100000):
    for at in range(0, part, page):
        memory[at : at + 8] = turn.to_bytes(8, "little")
        ticks[at] = turn
    assert all(int.from_bytes(memory[at : at + 8], "little") == ticks[at] for at in ticks)
    print(json.dumps({"ev": "turn", "turn": turn, "sum": sum(memory[part::page])}), flush=True)
    time.sleep(0.02)
"""


def test_most_of_the_memory_is_sent_while_the_program_runs(other, tmp_path):
    """It stands still for as long as the copies take, by its clock not at all, and finds its memory
    as it was."""
    needs.feature("memory-tracking")
    log = tmp_path / "log"
    script = f"exec {sys.executable} -c '{WRITES}' 64 >{log} 2>&1"

    def turns() -> list[dict]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    with Inside("/bin/sh", "-c", script) as inside:
        until(lambda: len(turns()) > 20, "turns")
        lorentz.ok("migrate", inside.name, "other", "--pre-copy", *other.options())
        assert inside.finish() == 137
        seen = len(turns())
        until(lambda: len(turns()) > seen + 20, "turns there")
        lines = turns()
    assert [line["turn"] for line in lines] == list(range(len(lines)))
    assert len({line["sum"] for line in lines}) == 1


def test_where_the_kernel_does_not_track_memory_one_line_says_so(tmp_path):
    there, words = needs.features()["memory-tracking"]
    if there:
        pytest.skip("this kernel tracks memory")
    with counting(tmp_path) as inside:
        wait_for_lines(tmp_path, 3)
        done = lorentz.call("migrate", inside.name, "other", "--pre-copy", "--ssh", "/bin/false")
        assert done.returncode == 1 and done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert "--pre-copy" in line and words.split(";")[0] in line
        wait_for_lines(tmp_path, len(counts(tmp_path)) + 3)


def test_the_age_of_files_goes_on(other, tmp_path):
    """A file that was written before the migration is as old as the clock says."""
    file = tmp_path / "old"
    script = f"touch {file}; sleep 1; echo here >>{tmp_path}/counts; sleep 1000"
    with Inside("/bin/sh", "-c", script, at="2038-01-19") as inside:
        deadline = time.monotonic() + 10
        while not (tmp_path / "counts").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stat = ("exec", inside.name, "stat", "-c", "%.9Y", str(file))
        before = float(lorentz.ok(*stat))
        lorentz.ok("migrate", inside.name, "other", *other.options())
        done = other.run(*stat)
        assert float(done.stdout) == pytest.approx(before, abs=0.02), done.stderr


def test_a_frozen_container_stays_frozen(other, tmp_path):
    with counting(tmp_path) as inside:
        wait_for_lines(tmp_path, 3)
        inside.freeze()
        before = counts(tmp_path)
        time_before = inside.time()["monotonic_ns"]
        lorentz.ok("migrate", inside.name, "other", *other.options())
        (row,) = other.shown()
        assert (row["state"], row["monotonic_ns"]) == ("frozen", time_before)
        assert counts(tmp_path) == before
        assert other.run("unfreeze", row["name"]).returncode == 0
        wait_for_lines(tmp_path, len(before) + 3)


def test_a_host_that_cannot_be_reached(tmp_path):
    with counting(tmp_path) as inside:
        wait_for_lines(tmp_path, 3)
        done = lorentz.call("migrate", inside.name, "nosuch", "--ssh", "/bin/false")
        assert done.returncode == 1
        assert "goes on here" in done.stderr, done.stderr
        wait_for_lines(tmp_path, len(counts(tmp_path)) + 3)


def test_a_name_in_use_there_is_told(other, tmp_path):
    with counting(tmp_path) as inside:
        wait_for_lines(tmp_path, 3)
        first = subprocess.Popen(
            [other.ssh, "other", *lorentz.session.command(), "run", "--name", "taken"]
            + ["--", "sleep", "60"],
            env=lorentz.session.environment(),
        )
        try:
            deadline = time.monotonic() + 10
            while not other.shown():
                assert time.monotonic() < deadline
            options = ("--name", "taken", *other.options())
            done = lorentz.call("migrate", inside.name, "other", *options)
            assert done.returncode == 1
            assert "taken" in done.stderr and "goes on here" in done.stderr, done.stderr
            wait_for_lines(tmp_path, len(counts(tmp_path)) + 3)
        finally:
            other.run("rm", "--force", "taken")
            first.wait(timeout=10)


#: Moments after the start of the command, s. A migration of this program takes some 0.35 s.
MOMENTS = [0.02 * step for step in range(24)]


def test_a_migration_that_is_killed(other, way, tmp_path):
    """The container runs here or there, never at both; nothing is left where it does not run."""
    before = scratches()
    ends = {"here": 0, "there": 0}
    inside = None
    try:
        for moment in MOMENTS:
            if inside is None:
                shutil.rmtree(tmp_path / "counts", ignore_errors=True)
                (tmp_path / "counts").unlink(missing_ok=True)
                inside = counting(tmp_path)
                inside.__enter__()
                wait_for_lines(tmp_path, 3)
            migrate = subprocess.Popen(
                [*lorentz.session.command(), "migrate", inside.name, "other"]
                + [*way, *other.options()],
                env=lorentz.session.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(moment)
            migrate.kill()
            migrate.wait(timeout=10)
            where = settled(inside.name, other)
            ends[where] += 1
            wait_for_lines(tmp_path, len(counts(tmp_path)) + 3)
            if where == "there":
                other.run("rm", "--force", inside.name)
                inside.end()
                inside = None
    finally:
        if inside is not None:
            inside.end()
    assert ends["here"] > 0
    deadline = time.monotonic() + 10
    while scratches() != before or other.left():
        assert time.monotonic() < deadline, (scratches() - before, other.left())
        time.sleep(0.1)


def test_a_migration_after_one_whose_other_side_was_killed(other, tmp_path):
    """No remains of the first one touch the container that the second one brings."""
    words = [*other.options()]
    with counting(tmp_path) as inside:
        wait_for_lines(tmp_path, 3)
        migrate = subprocess.Popen(
            [*lorentz.session.command(), "migrate", inside.name, "other", *words],
            env=lorentz.session.environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10
        while not (
            receivers := [pid for pid in receiving() if (other.state / inside.name).exists()]
        ):
            assert time.monotonic() < deadline, migrate.poll()
        # The first one; the others are its children.
        os.kill(min(receivers), signal.SIGKILL)
        assert migrate.wait(timeout=20) != 0
        assert settled(inside.name, other) == "here"
        lorentz.ok("migrate", inside.name, "other", *words)
        assert inside.finish() == 137
        # As long as anything of the first one might look for a container to remove.
        for _ in range(12):
            time.sleep(0.5)
            (row,) = other.shown()
            assert row["state"] == "running"
        wait_for_lines(tmp_path, len(counts(tmp_path)) + 3)


def receiving() -> list[int]:
    """The processes of `lorentz receive` that still read from the other side."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_receiver = b"\0receive\0" in (process / "cmdline").read_bytes()
            if is_receiver and str((process / "fd/0").readlink()).startswith("pipe:"):
                found.append(int(process.name))
    return found


def migration_is_over() -> bool:
    """Whether the other side decides nothing any more. The monitor that it leaves reads no pipe."""
    return not receiving()


def settled(name: str, other: OtherHost) -> str:
    """Waits until a container runs at one host alone, and says where. Lets it go on here where the
    command was killed at the moment of decision."""
    deadline = time.monotonic() + 20
    while True:
        is_over = migration_is_over()
        here, there = lorentz.shown(name), [row for row in other.shown() if row["name"] == name]
        running_there = bool(there) and there[0]["state"] == "running"
        if here and here["state"] == "running" and not there:
            return "here"
        if running_there and not here:
            return "there"
        assert not (here and here["state"] == "running" and running_there), "it runs twice"
        if here and here["state"] == "frozen" and is_over:
            # Killed at the moment of decision.
            lorentz.ok(*(("rm", "--force") if there else ("unfreeze",)), name)
        states = [row and row["state"] for row in (here, *there)]
        assert time.monotonic() < deadline, states
        time.sleep(0.05)
