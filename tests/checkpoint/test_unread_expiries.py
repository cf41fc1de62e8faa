"""Expiries of timers that wait over a checkpoint are neither lost nor counted twice."""

from __future__ import annotations

import pytest
from framework import build, checkpoints
from framework.checkpoints import Restored, save
from framework.running import Inside, Native, Running

#: Each timer, and how many signals of its number somebody else has sent.
CASES = {"descriptor": 0, "signal": 0, "queued": 1}


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def check(run: Running) -> None:
    done = run.wait_for(len(CASES), ev="done")
    assert {line["case"]: line["others"] for line in done} == CASES
    for line in done:
        assert line["least"] <= line["count"] <= line["most"], line["case"]
        assert line["again"] == 0, line["case"]


def test_natively_none_is_lost():
    with Native([build.c("checkpoint/unread")]) as native:
        check(native)
        native.succeed()


@pytest.mark.parametrize("rate", ["1", "2", "1/2"])
def test_none_is_lost_over_a_checkpoint(rate, tmp_path):
    """The kernel counts some expiries of a descriptor only when it is asked, and CRIU does not ask.
    It restores the signal of a timer as one that anybody may have sent."""
    with Inside(build.c("checkpoint/unread"), rate=rate) as inside:
        inside.line(ev="ready")
        directory = save(inside, tmp_path / "saved", "--leave-running")
        check(inside)
        inside.succeed()
    with Restored(directory, f"{inside.name}-again") as restored:
        check(restored)
        restored.wait_until_ended()


@pytest.mark.parametrize(("taken", "left"), [(1, 0), (5, 3), (20, 2)])
def test_those_that_were_taken_before_do_not_come_again(taken, left, tmp_path):
    program = build.c("pitfalls/pending_series"), str(taken), str(left)
    with Inside(*program, rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    with Restored(directory, f"{inside.name}-again", stdin=True) as restored:
        restored.process.stdin.write(b"\n")
        restored.process.stdin.flush()
        found = restored.line(ev="taken")
        assert found["count"] == found["passed"]
        restored.wait_until_ended()
