"""`lorentz adopt` for containers of the OCI runtime, of networks and of experiments."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from framework import build, lorentz, needs, processes
from framework.containers import Bundle
from framework.experiments import Experiment, until
from framework.networks import Lab, pair

#: A shell of busybox that executes a program for each file that appears, and notes the result.
STEPS = (
    "n=1; while :; do if [ -e /proc/self ] && sleep 0.1 2>/dev/null; then echo works; "
    "else echo fails; fi; n=$((n + 1)); [ $n -lt 100000 ] || break; done"
)


def kill_monitors(name: str) -> None:
    """Kills the monitors of a container, and waits until they have ended."""
    alive = [one["pid"] for one in lorentz.shown(name)["monitors"] if one["alive"]]
    assert alive, "no monitor is alive"
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(processes.has_ended(pid) for pid in alive), "dead monitors", 5)


def adopt(name: str, *flags: str) -> list[int]:
    report = lorentz.json_of("adopt", name, *flags)
    assert report["refused"] == [] and not report["needs_adopt"]
    return report["adopted"]


def year(done: str) -> int:
    return int(done.split()[-1])


# The OCI runtime


@pytest.fixture
def bundle():
    """A container in 2038 whose program executes others, with no_new_privs."""
    with Bundle(["sh", "-c", STEPS], at="2038-01-19", rate="10") as bundle:
        bundle.config["process"]["noNewPrivileges"] = True
        bundle.write()
        bundle.start()
        until(lambda: "works" in bundle.printed(), "a program's start")
        yield bundle


def works_again(bundle: Bundle) -> None:
    """Waits until the program has started others, after it could not."""
    before = len(bundle.printed().splitlines())
    until(lambda: bundle.printed().splitlines()[before:][-3:] == ["works"] * 3, "programs' starts")


def test_a_container_of_the_oci_runtime(bundle):
    kill_monitors(bundle.id)
    until(lambda: bundle.printed().endswith("fails\n"), "a failed start")
    assert bundle.pid() in adopt(bundle.id)
    works_again(bundle)
    assert year(bundle.exec("date", "+%Y")) == 2038
    lorentz.ok("dilate", bundle.id, "--rate", "2")
    assert lorentz.json_of("time", bundle.id)["rate"] == "2"
    bundle.ok("pause", bundle.id)
    assert bundle.status() == "paused"
    bundle.ok("resume", bundle.id)
    works_again(bundle)
    (monitor,) = lorentz.shown(bundle.id)["monitors"]
    bundle.ok("kill", bundle.id, "KILL")
    bundle.wait_until("stopped")
    bundle.ok("delete", bundle.id)
    assert lorentz.shown(bundle.id) is None
    until(lambda: processes.has_ended(monitor["pid"]), "the monitor's end", 5)


def test_the_runtimes_exec_replaces_a_dead_monitor(bundle):
    kill_monitors(bundle.id)
    assert year(bundle.exec("date", "+%Y")) == 2038
    works_again(bundle)


def test_the_runtimes_exec_after_the_containers_directory_was_deleted(bundle):
    """The monitor makes the directory anew, but not its socket there. exec has a monitor of its
    own."""
    place = lorentz.session.state_dir() / bundle.id
    shutil.rmtree(place)
    until(lambda: (place / "container.json").exists(), "the directory", 5)
    assert year(bundle.exec("date", "+%Y")) == 2038
    works_again(bundle)


def test_a_container_without_rights_of_its_own():
    """Neither CAP_SYS_ADMIN nor no_new_privs: the line says so; exec works all the same."""
    with Bundle(["sh", "-c", STEPS], at="2038-01-19") as bundle:
        bundle.start()
        until(lambda: "works" in bundle.printed(), "a program's start")
        kill_monitors(bundle.id)
        done = lorentz.call("adopt", bundle.id)
        assert done.returncode == 1 and "no_new_privs" in done.stderr
        assert year(bundle.exec("date", "+%Y")) == 2038
        until(lambda: bundle.printed().endswith("fails\n"), "a failed start")
        assert bundle.pid() in adopt(bundle.id, "--no-new-privs")
        works_again(bundle)


# Networks


@pytest.mark.parametrize("isolation", ["", "isolation: private\n"], ids=["host", "private"])
def test_a_node(isolation):
    """It keeps its namespaces, its links and its clock."""
    with Lab(isolation + "at: 2038-01-19\ntdf: 1/2\n" + pair("delay: 1ms")) as lab:
        name = lab.container("a")
        script = "while :; do sleep 0.2 2>/dev/null && echo works; done"
        other = lab.start("a", "sh", "-c", script)
        assert other.stdout.readline() == "works\n"
        kill_monitors(name)
        assert lorentz.shown(name)["needs_adopt"]
        # The program of the node, and the shell.
        assert len(adopt(name)) >= 2
        # The first of them may be from before.
        assert [other.stdout.readline() for _ in range(4)] == ["works\n"] * 4
        assert lab.run("a", "hostname") == "a\n"
        assert year(lab.run("a", "date", "+%Y")) == 2038
        assert len(lab.ping("a", "10.0.0.2", count=2)) == 2
    assert not [one for one in lorentz.ps() if one["name"].startswith(lab.name)]


@pytest.mark.parametrize("isolation", ["", "isolation: private\n"], ids=["host", "private"])
def test_an_exec_in_a_node_replaces_its_dead_monitor(isolation):
    with Lab(isolation + pair("delay: 1ms")) as lab:
        name = lab.container("a")
        if not isolation:
            # Without its monitor the program could not begin. That of a private node is idle.
            until(lambda: lorentz.shown(name)["pids"], "the program")
        kill_monitors(name)
        assert lab.run("a", "hostname") == "a\n"
        assert not lorentz.shown(name)["needs_adopt"]


# Experiments


def works_in(place: Path, before: int) -> bool:
    return len(place.read_text().splitlines()) > before


def test_a_container_of_an_experiment(tmp_path):
    """While it runs in rounds."""
    needs.root()
    out = tmp_path / "out"
    script = f"while :; do /bin/sleep 0.01 2>/dev/null && echo works >> {out}; done"
    with Experiment() as experiment:
        inside = experiment.run("/bin/sh", "-c", script)
        other = experiment.run(build.c("experiment/count"), "5000000")
        experiment.synchronize()
        experiment.start()
        until(lambda: out.exists() and works_in(out, 2), "starts")
        inside.kill_monitor()
        time.sleep(0.3)
        before = len(out.read_text().splitlines())
        pids = adopt(inside.name)
        assert len(pids) >= 1
        until(lambda: works_in(out, before + 3), "starts")
        status = experiment.advance(0.05)
        assert {one["perceived_overshoot_ns"] for one in status["containers"]} == {0}
        assert {one["name"] for one in status["containers"]} == {inside.name, other.name}


def test_one_of_many_containers_that_share_a_monitor(tmp_path):
    """`populate` starts many under one monitor. Each is adopted by itself, while programs of others
    execute others all the time."""
    needs.root()
    script = f"while :; do /bin/sleep 0.02 2>/dev/null && echo works >> {tmp_path}/$$; done"
    with Experiment() as experiment:
        names = experiment.populate(6, "/bin/sh", "-c", script)
        experiment.synchronize()
        experiment.start()
        until(lambda: len(list(tmp_path.iterdir())) == 6, "starts")
        kill_monitors(names[0])
        pids = {name: adopt(name) for name in names[:5]}
        assert lorentz.shown(names[5])["needs_adopt"]
        for name in names[:5]:
            (place,) = [path for path in tmp_path.iterdir() if int(path.name) in pids[name]]
            before = len(place.read_text().splitlines())
            until(lambda place=place, before=before: works_in(place, before + 2), "starts")


def test_a_paused_experiment_is_told():
    """Its containers stand still, and nothing may let them go but the experiment."""
    needs.root()
    with Experiment() as experiment:
        inside = experiment.run("/bin/sh", "-c", "sleep 1000; true")
        until(lambda: len(inside.programs()) == 2, "both programs")
        experiment.synchronize()
        inside.kill_monitor()
        done = lorentz.call("adopt", inside.name)
        assert done.returncode == 1 and "stand" in done.stderr, done.stderr
        experiment.start()
        assert adopt(inside.name)
