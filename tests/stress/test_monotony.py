"""Clock reads never go backwards and no wait ends early, through thousands of random changes."""

from __future__ import annotations

import os
import random

import pytest
from framework import build, lorentz
from framework.running import Inside, Native

#: They keep all processors busy, by some thirty threads: whoever watches time beside them is late.
pytestmark = pytest.mark.alone

#: Random changes; LORENTZ_CHANGES sets another number.
CHANGES = int(os.environ.get("LORENTZ_CHANGES", "10000"))


class Hammer:
    """Changes a container's clock at random, as fast as processes can be started."""

    def __init__(self, inside: Inside, seed: int, *, steps: bool = True) -> None:
        self.steps = steps
        self.name = inside.name
        self.rng = random.Random(seed)
        self.frozen = False
        self.binary = lorentz.session.command()[0]
        self.environment = lorentz.session.environment()

    def change(self) -> None:
        rng = self.rng
        verb, *arguments = rng.choice(
            [
                ("dilate", "--rate", f"{rng.randint(1, 1000)}/{rng.randint(1, 1000)}"),
                ("dilate", "--rate", str(rng.choice([1, 10, 1000]))),
                ("dilate", "--rate", f"1/{rng.choice([1, 10, 1000])}"),
                ("leap", "--by", f"{rng.randint(0, 10**9)}ns"),
                ("step", f"--by={rng.randint(-3600, 3600) if self.steps else 0}s"),
                ("unfreeze",) if self.frozen else ("freeze",),
            ]
        )
        self.call(verb, *arguments)
        if verb in ("freeze", "unfreeze"):
            self.frozen = verb == "freeze"

    def call(self, verb: str, *arguments: str) -> None:
        """Like lorentz.call, with the cheapest way to start a process."""
        words = [self.binary, verb, self.name, *arguments]
        silence = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
        pid = os.posix_spawn(self.binary, words, self.environment, file_actions=silence)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, f"{words}: {status}"

    def finish(self) -> None:
        if self.frozen:
            self.call("unfreeze")
        self.call("dilate", "--rate", "1")


@pytest.mark.timeout(400)
def test_reads_never_go_backwards_on_any_thread():
    """Six threads, half by the vDSO and half by raw syscalls; 10,000 changes."""
    with Inside(build.c("stress/hammer"), "6", stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        hammer = Hammer(inside, seed=7)
        for _ in range(CHANGES):
            hammer.change()
        hammer.finish()
        inside.close_stdin()
        seen = inside.line(ev="hammer")
        inside.succeed()
    assert seen["reads"] > CHANGES
    assert seen["backwards"] == 0, f"CLOCK_MONOTONIC, by up to {seen['worst_ns']} ns"
    for clock in ("boottime", "raw", "coarse"):
        assert seen[clock] == 0, clock


@pytest.mark.timeout(200)
@pytest.mark.parametrize("flavour", ["dynamic", "musl"])
def test_no_wait_ends_early_or_otherwise(flavour):
    """24 threads in twelve kinds of wait, 5 virtual ms each, through 400 changes."""
    command = [build.c("stress/sleepers", flavour), "24", str(5 * 10**6)]
    with Inside(*command, stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        hammer = Hammer(inside, seed=11, steps=False)  # waits for a date would follow
        for _ in range(400):
            hammer.change()
        hammer.finish()
        inside.close_stdin()
        kinds = inside.wait_for(12, ev="sleeper")
        inside.succeed()
    assert min(kind["calls"] for kind in kinds) > 10
    wrong = [kind.data for kind in kinds if kind["early"] or kind["wrong"]]
    assert not wrong


@pytest.mark.parametrize("rate", ["1", "10"])
def test_signals_are_lost_at_most_twice_as_often_as_natively(rate):
    """A thousand signals at random moments of a wait. nanosleep and poll miss at most twice as many
    as natively, and 2 % of all; sigsuspend misses none."""
    count = 1000
    with Native([build.c("stress/eintr"), str(count)]) as native:
        native.succeed(timeout=60)
    nominal = str(int(rate) * 20_000_000)  # as long as natively, by the host's clock
    with Inside(build.c("stress/eintr"), str(count), nominal, rate=rate) as inside:
        inside.succeed(timeout=60)
    for how in ("nanosleep", "poll", "sigsuspend"):
        expect, event = native.line(ev="eintr", how=how), inside.line(ev="eintr", how=how)
        assert event["spurious"] == 0, how
        assert event["lost"] <= 2 * expect["lost"] + count / 50, how
    assert inside.line(ev="eintr", how="sigsuspend")["lost"] == 0


@pytest.mark.timeout(200)
def test_signals_are_not_lost_while_time_changes():
    """The same while another process changes the rate: sigsuspend does not hang, and no EINTR is
    spurious. Each kind of wait misses at most twice as many signals as natively beside an equally
    busy process, and 5 % of all."""
    count = 400

    with Native([build.c("stress/eintr"), str(count)]) as native:
        while native.process.poll() is None:
            lorentz.call("ps")
        native.succeed()
    with Inside(build.c("stress/eintr"), str(count), rate="1") as inside:
        rng = random.Random(13)
        while inside.process.poll() is None and not inside.lines(ev="end"):
            lorentz.call("dilate", inside.name, "--rate", rng.choice(["1", "3/2", "2", "2/3"]))
        inside.succeed()
    for how in ("nanosleep", "poll", "sigsuspend"):
        expect, event = native.line(ev="eintr", how=how), inside.line(ev="eintr", how=how)
        assert event["spurious"] == 0, how
        assert event["lost"] <= 2 * expect["lost"] + count / 20, how
