"""Containers whose computing takes no virtual time (`--compute none`): clocks go from deadline to
deadline."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from framework import build, lorentz
from framework.experiments import Experiment, Seen, until
from framework.lorentz import refusal
from framework.running import Inside, Running

MS = 1_000_000
REPEATING = build.PROGRAMS / "networks/repeating.py"


def differences(instants: list[int]) -> set[int]:
    return {after - before for before, after in itertools.pairwise(instants)}


def never_waits(experiment: Experiment, **options: object) -> Inside:
    """A program that computes, and neither waits nor reads the clock, as it does when it begins."""
    code = """print('{"ev": "computes"}', flush=True)\nwhile True: pass"""
    program = experiment.run(sys.executable, "-c", code, **options)
    program.line(ev="computes")
    return program


def test_a_sleep_takes_its_time_and_computing_none():
    """A timer every 13 ms. Natively the computing between two sleeps comes on top."""
    with Experiment("--compute", "none") as experiment:
        ticker = experiment.run(sys.executable, REPEATING, "ticker", "0.013", "60")
        experiment.synchronize()
        experiment.start()
        ticker.succeed()
        ticks = [int(line.split()[0]) for line in ticker.stdout.splitlines() if "tick" in line]
    assert len(ticks) == 60
    # The first ones may have come before the experiment was synchronized.
    assert differences(ticks[30:]) == {13 * MS}


def computes_long(experiment: Experiment, **options: object) -> Inside:
    """A timer every 13 ms, once its standard input is closed. The computing in between takes longer
    than the part of a slice after which it may be broken off."""
    ticker = (sys.executable, REPEATING, "ticker", "0.013", "12", "10")
    waits = 'read line; exec "$0" "$@"'
    return experiment.run("sh", "-c", waits, *ticker, stdin=True, **options)


def ticks_of(ticker: Inside) -> set[int]:
    """The virtual times between the ticks of a program that has ended."""
    ticker.succeed()
    ticks = [int(line.split()[0]) for line in ticker.stdout.splitlines() if "tick" in line]
    assert len(ticks) == 12
    return differences(ticks)


def test_computing_takes_none_in_slices_that_are_broken_off():
    """Two timelines on one processor, each of which is moved by a client of its own."""
    with Experiment("--compute", "none", "--cpus", "0") as experiment:
        tickers = {timeline: computes_long(experiment, timeline=timeline) for timeline in (1, 2)}
        experiment.synchronize()
        for ticker in tickers.values():
            experiment.interval(ticker, 400 * MS)
            ticker.close_stdin()
        with ThreadPoolExecutor() as clients:
            list(clients.map(experiment.progress, tickers))
        assert [ticks_of(ticker) for ticker in tickers.values()] == [{13 * MS}] * 2


def test_computing_takes_none_in_slices_that_requests_interrupt():
    with Experiment("--compute", "none") as experiment:
        ticker = computes_long(experiment)
        sleeps = experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.start()
        ticker.close_stdin()
        while ticker.process.poll() is None:
            experiment.dilate(sleeps, "1")
        assert ticks_of(ticker) == {13 * MS}


@pytest.mark.parametrize("mode", ["vdso", "syscall", "coarse"])
def test_a_loop_that_reads_the_clock_ends(mode):
    """Each hundredth read of an instant takes 100 us. Each loop reads equally often."""
    with Experiment("--compute", "none") as experiment:
        command = (build.c("experiment/spin"), mode, str(5 * MS), "8")
        spins = experiment.run(*command, stdin=True)
        experiment.synchronize()
        experiment.start()
        spins.close_stdin()
        spins.succeed()
        spun = [line.data for line in spins.lines(ev="spun")]
    reads = {one["reads"] for one in spun[1:]}
    assert len(spun) == 8
    assert len(reads) == 1 and 4_900 <= reads.pop() <= 5_100
    assert differences([one["at"] for one in spun[1:]]) == {6 * MS}


def test_a_program_that_never_waits_keeps_time_and_lets_requests_through():
    with Experiment("--compute", "none") as experiment:
        computes = never_waits(experiment)
        sleeps = experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.start()
        before = experiment.status()
        after = until(
            lambda: experiment.member(computes)["cpu_got_ns"] > 100 * MS and experiment.status(),
            "computing",
        )
        for container in (computes, sleeps):
            assert experiment.member(container, before)["compute"] == "none"
        # The round under way does not end. The container that computes stands at its beginning.
        assert after["virtual_ns"] == before["virtual_ns"]
        assert experiment.clock(computes) == experiment.member(computes, before)["virtual_ns"]
        experiment.dilate(computes, "3")
        experiment.pause()
        experiment.start()
        experiment.ok("remove", computes.name)
        experiment.advance(0.1)


def test_a_move_ends_when_its_container_is_removed():
    with Experiment("--compute", "none") as experiment:
        computes = never_waits(experiment, timeline=1)
        experiment.synchronize()
        experiment.interval(computes, 10 * MS)
        command = [*lorentz.session.command(), "experiment", "progress", experiment.name, "1"]
        with Running(command, env=lorentz.session.environment()) as progress:
            used = experiment.member(computes)["cpu_got_ns"]
            until(lambda: experiment.member(computes)["cpu_got_ns"] > used + 50 * MS, "a move")
            assert progress.process.poll() is None
            experiment.ok("remove", computes.name)
            progress.succeed()


def test_an_experiment_ends_while_a_program_computes():
    with Experiment("--compute", "none") as experiment:
        computes = never_waits(experiment)
        experiment.synchronize()
        experiment.start()
        experiment.ok("stop")
        before = computes.time()["monotonic_ns"]
        until(lambda: computes.time()["monotonic_ns"] > before, "the clock runs by itself")
        experiment.ok("rm")


def test_a_container_chooses_and_another_has_the_experiments_choice(tmp_path):
    """One that computes for its time, beside one for which computing takes none."""
    with Experiment("--compute", "none") as experiment:
        seen = Seen(tmp_path)
        looks = experiment.run(build.c("experiment/look"), seen.path, "1", compute="real")
        sleeps = experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.start()
        status = experiment.advance(0.1)
        chosen = {one["name"]: one["compute"] for one in status["containers"]}
        assert chosen == {looks.name: "real", sleeps.name: "none"}
        assert seen.backward == 0 and seen.runs()
        experiment.ok("remove", looks.name)
        experiment.ok("add", looks.name)
        assert experiment.member(looks)["compute"] == "none"


@pytest.mark.parametrize("verb", ["create", "add", "run", "populate"])
def test_another_word_is_refused(verb):
    with Experiment() as experiment:
        line = {
            "create": ("experiment", "create", "other"),
            "add": ("experiment", "add", experiment.name, "1"),
            "run": ("run", "--experiment", experiment.name, "--", "true"),
            "populate": ("experiment", "populate", experiment.name, "--count", "1", "--", "true"),
        }[verb]
        at = line.index("--") if "--" in line else len(line)
        words = (*line[:at], "--compute", "some", *line[at:])
        refusal(lorentz.call(*words), "--compute some: expected 'real' or 'none'")


def test_a_choice_without_an_experiment_is_refused():
    refusal(lorentz.call("run", "--compute", "none", "--", "true"), "--experiment")
