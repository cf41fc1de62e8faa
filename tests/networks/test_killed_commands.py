"""`up` and `down` that are killed at any of their steps leave nothing behind another `down`."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import lorentz, needs, processes, steps
from framework.networks import Lab, pair

pytestmark = pytest.mark.patient


@pytest.fixture(autouse=True)
def _needs():
    needs.root()
    needs.feature("taps")


def left_of(lab: Lab) -> list[str]:
    """Paths of it in the state directory and below the control groups."""
    state = lorentz.session.state_dir()
    paths = [*state.iterdir(), *state.glob(".networks/*"), *state.glob(".experiments/*")]
    left = [path for path in paths if path.name.startswith(lab.name)]
    left += [path for path in processes.control_groups(lab.name) if path.parent.name == "lorentz"]
    return [str(path) for path in left]


@pytest.mark.parametrize("call", steps.CALLS)
@pytest.mark.parametrize("rounds", [False, True], ids=["", "rounds"])
def test_a_killed_up_tells_and_leaves_nothing_behind_a_down(rounds, call):
    """The command, its emulator, and the processes that make nodes: each at its own steps."""
    lab = Lab(("rounds: true\n" if rounds else "") + pair("delay: 1ms"))
    lab.file.write_text(lab.text)
    folder = Path(lab.folder.name)
    words = [*lorentz.session.command(), "up", str(lab.file)]
    try:
        for status in steps.until_unharmed(
            lambda count: steps.status_at(call, count, words, folder, lab.tag, children=True)
        ):
            is_told = status == steps.KILLED or (folder / "log").read_text().count("\n") == 1
            assert status == 0 or is_told, (status, (folder / "log").read_text())
            down = lorentz.call("down", lab.name)
            assert down.returncode == 0 or "no such network" in down.stderr
            lab.wait_until(lambda: not left_of(lab), "nothing is left")
    finally:
        lab.__exit__()


@pytest.mark.parametrize("call", ["flock", "mkdir", "rename", "unlinkat"])
def test_a_killed_down_is_finished_by_another(call):
    lab = Lab(pair("delay: 1ms"))
    lab.file.write_text(lab.text)
    folder = Path(lab.folder.name)
    words = [*lorentz.session.command(), "down", lab.name]

    def attempt(count: int) -> int:
        assert lab.up().returncode == 0
        return steps.status_at(call, count, words, folder, lab.tag, children=False)

    try:
        for status in steps.until_unharmed(attempt):
            assert status in (0, steps.KILLED), (folder / "log").read_text()
            down = lorentz.call("down", lab.name)
            assert down.returncode == 0 or "no such network" in down.stderr
            lab.wait_until(lambda: not left_of(lab), "nothing is left")
    finally:
        lab.__exit__()
