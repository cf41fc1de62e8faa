"""`up`, `down` and `node add` that are killed at any of their steps leave nothing that another
command cannot clear."""

from __future__ import annotations

import fcntl
import subprocess
from functools import partial
from pathlib import Path

import pytest
from framework import lorentz, needs, processes, steps
from framework.networks import STAR, Lab, pair

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


def test_down_finds_what_an_emulator_made_that_had_not_noted_itself():
    """`up` was killed as soon as its emulator existed. The emulator notes itself and makes its
    nodes while `down` waits for whoever makes nodes."""
    with Lab(pair()) as lab:
        folder = lorentz.session.state_dir() / ".networks" / lab.name
        record, aside = folder / "network.json", folder / "aside"
        record.rename(aside)
        making = folder / "making"
        with making.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            command = [*lorentz.session.command(), "down", lab.name]
            with subprocess.Popen(command, env=lorentz.session.environment()) as down:
                lab.wait_until(lambda: making in opened(down.pid), "it waits")
                aside.rename(record)
                fcntl.flock(lock, fcntl.LOCK_UN)
                assert down.wait() == 0
        assert left_of(lab) == []


def opened(pid: int) -> set[Path]:
    """The files that a process has open."""
    return {one.readlink() for one in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.parametrize("call", ["flock", "mkdir", "rename", "clone", "connect"])
def test_a_network_goes_on_after_a_killed_node_add(call):
    """The command and the processes that make the node: each at its own steps. The node can be
    removed and made anew after each."""
    with Lab(STAR) as lab:
        folder = Path(lab.folder.name)
        late = ["node", "add", "--network", lab.name, "late", "--link", "eth0=s:3,10.0.0.3/24"]
        words = [*lorentz.session.command(), *late, "--", "sleep", "1000"]
        for status in steps.until_unharmed(
            lambda count: steps.status_at(call, count, words, folder, lab.tag, children=True)
        ):
            is_told = status == steps.KILLED or (folder / "log").read_text().count("\n") == 1
            assert status == 0 or is_told, (status, (folder / "log").read_text())
            assert len(lab.ping("a", "10.0.0.2", 1)) == 1
            if "late" in {node["name"] for node in lab.status()["nodes"]}:
                lorentz.ok("node", "rm", "--network", lab.name, "late")
            lorentz.ok(*late)
            assert len(lab.ping("late", "10.0.0.1", 1)) == 1
            lorentz.ok("node", "rm", "--network", lab.name, "late")
            group = partial(processes.control_groups, lab.container("late"))
            lab.wait_until(lambda left=group: not left(), "nothing is left")
