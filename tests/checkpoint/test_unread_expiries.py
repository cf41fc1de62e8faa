"""Expiries of a timer descriptor that wait over a checkpoint are neither lost nor counted twice."""

from __future__ import annotations

import pytest
from framework import build, checkpoints
from framework.checkpoints import Restored, save
from framework.running import Inside, Native, Running


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def check(run: Running) -> None:
    [done] = run.wait_for(1, ev="done")
    assert done["least"] <= done["count"] <= done["most"]
    assert done["again"] == 0


def test_natively_none_is_lost():
    with Native([build.c("checkpoint/unread")]) as native:
        check(native)
        native.succeed()


@pytest.mark.parametrize("rate", ["1", "2", "1/2"])
def test_none_is_lost_over_a_checkpoint(rate, tmp_path):
    """The kernel counts some of them only when it is asked, and CRIU does not ask."""
    with Inside(build.c("checkpoint/unread"), rate=rate) as inside:
        inside.line(ev="ready")
        directory = save(inside, tmp_path / "saved", "--leave-running")
        check(inside)
        inside.succeed()
    with Restored(directory, f"{inside.name}-again") as restored:
        check(restored)
        restored.wait_until_ended()
