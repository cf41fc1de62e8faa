"""Two controllers write at once, again and again: no torn clock, and the last writer wins."""

from __future__ import annotations

import random
import subprocess
import threading
import time

import pytest
from framework import build, lorentz, oracle
from framework.running import Inside

#: Number of writes of each controller.
WRITES = 150


def writer(inside: Inside, seed: int, errors: list[str]) -> None:
    """Changes the clock at random."""
    rng = random.Random(seed)
    for _ in range(WRITES):
        verb, *arguments = rng.choice(
            [
                ("dilate", "--rate", f"{rng.randint(1, 1000)}/{rng.randint(1, 1000)}"),
                ("leap", "--by", f"{rng.randint(0, 10**9)}ns"),
                ("step", f"--by={rng.randint(-3600, 3600)}s"),
                ("freeze",),
                ("unfreeze",),
            ]
        )
        done = lorentz.call(verb, inside.name, *arguments)
        if done.returncode != 0:
            errors.append(f"{verb} {arguments}: {done.stderr}")


def test_no_reader_sees_a_torn_clock():
    """A program with four threads, `lorentz time` and two writers at once: the clock never goes
    backwards, and every reading is of one state."""
    errors: list[str] = []
    with Inside(build.c("stress/hammer"), "4", stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        writers = [threading.Thread(target=writer, args=(inside, seed, errors)) for seed in (1, 2)]
        for thread in writers:
            thread.start()
        readings = []
        while any(thread.is_alive() for thread in writers):
            readings.append(inside.time())
        for thread in writers:
            thread.join()
        inside.unfreeze()
        inside.close_stdin()
        seen = inside.line(ev="hammer")
        inside.succeed()
    assert errors == []
    assert seen["backwards"] == 0, f"worst {seen['worst_ns']} ns"
    assert len(readings) > 10
    for earlier, later in zip(readings, readings[1:], strict=False):
        assert later["monotonic_ns"] >= earlier["monotonic_ns"]
        rate = oracle.ratio(later["rate"])
        assert 1 / 1000 <= rate <= 1000
        assert rate * oracle.ratio(later["tdf"]) == pytest.approx(1)
        assert later["state"] in ("running", "frozen")


def test_the_last_writer_wins():
    """After a storm of two writers, a single change determines the clock."""
    errors: list[str] = []
    with Inside("sleep", "100000000", rate="1") as inside:
        inside.wait_until_shown()
        writers = [threading.Thread(target=writer, args=(inside, seed, errors)) for seed in (3, 4)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        assert errors == []
        inside.unfreeze()
        inside.dilate("7")
        first = inside.time()
        time.sleep(0.2)
        second = inside.time()
    assert (first["rate"], first["state"]) == ("7", "running")
    real = second["host"]["monotonic_ns"] - first["host"]["monotonic_ns"]
    virtual = second["monotonic_ns"] - first["monotonic_ns"]
    assert virtual == pytest.approx(7 * real, rel=0.01)


def test_a_controller_that_is_killed_does_not_lock_the_clock():
    """Writers are killed during changes: the clock stays readable and can be changed."""
    with Inside(build.c("stress/hammer"), "2", stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        rng = random.Random(5)
        for _ in range(60):
            command = [*lorentz.session.command(), "dilate", inside.name, "--rate", "3"]
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, env=lorentz.session.environment()
            )
            time.sleep(rng.uniform(0, 0.004))
            process.kill()
            process.wait(timeout=5)
        inside.dilate("2")
        assert inside.time()["rate"] == "2"
        inside.close_stdin()
        assert inside.line(ev="hammer")["backwards"] == 0
        inside.succeed()
