"""Commands beside many containers: the files they read, by strace, and their results."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.containers import Bundle
from framework.experiments import Experiment, until
from framework.needs import feature, root, tool
from framework.processes import has_ended
from framework.running import Inside, Native

FEW, MANY = 3, 12
UP = 'echo "{\\"ev\\":\\"up\\",\\"pid\\":$$}"'


@contextlib.contextmanager
def sleepers(count: int, unprivileged: bool = False) -> Iterator[list[Inside]]:
    """Makes `count` containers of one process each."""
    with contextlib.ExitStack() as stack:
        several = [
            Inside("/bin/sh", "-c", f"{UP}; exec sleep 100000", unprivileged=unprivileged)
            for _ in range(count)
        ]
        for one in several:
            stack.enter_context(one)
        for one in several:
            wait_until_it_sleeps(one.line(ev="up")["pid"])
        yield several


def wait_until_it_sleeps(pid: int) -> None:
    """Waits until a shell has become `sleep`, in virtual time or not. In the midst of its exec a
    process is on no clock."""
    until(lambda: "(sleep) S" in Path(f"/proc/{pid}/stat").read_text(), "the exec of sleep")


def accesses(*words: str, unprivileged: bool = False) -> list[str]:
    """Returns the paths that `lorentz WORDS` names in system calls, once for each call."""
    strace = tool("strace")
    trace = lorentz.session.state_dir(unprivileged).parent / f"trace-{unprivileged}"
    trace.touch()
    trace.chmod(0o666)
    line = lorentz.session.command(unprivileged)
    options = [strace, "-f", "-qq", "-e", "trace=%file", "-s", "4096", "-o", str(trace)]
    done = subprocess.run(
        [*line[:-1], *options, line[-1], *words],
        env=lorentz.session.environment(unprivileged),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=lorentz.TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    paths = re.findall(r"^\d+ +\w+\((?:AT_FDCWD, )?\"([^\"]*)\"", trace.read_text(), re.MULTILINE)
    assert paths, "strace has seen nothing"
    return paths


def of_process(paths: Sequence[str], pid: int) -> Counter[str]:
    """Returns the number of times each file of /proc/PID is among `paths`."""
    return Counter(path for path in paths if path.startswith(f"/proc/{pid}/"))


@pytest.mark.parametrize("unprivileged", [False, True], ids=["caller", "nobody"])
@pytest.mark.parametrize("words", [("ps",), ("ps", "--json")], ids=" ".join)
def test_ps_looks_once_at_each_process(words, unprivileged):
    """For any number of containers, at two kinds of processes: this one, which is in none, and one
    that is."""
    seen = []
    for count in (FEW, MANY):
        with sleepers(count, unprivileged) as several:
            paths = accesses(*words, unprivileged=unprivileged)
            inside = several[0].line(ev="up")["pid"]
            there = of_process(paths, inside)
            seen.append((of_process(paths, os.getpid()), sum(there.values())))
            assert len([path for path in paths if path == "/proc"]) == 1
            assert there[f"/proc/{inside}/maps"] <= 2
            records = Counter(path for path in paths if path.endswith("/container.json"))
            assert set(records.values()) == {1}
    (few, few_inside), (many, many_inside) = seen
    assert few and few == many and set(many.values()) == {1}
    assert few_inside == many_inside


@pytest.mark.parametrize(
    "words",
    [["time"], ["dilate", "--rate", "2"], ["leap", "--by", "1s"], ["freeze"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("unprivileged", [False, True], ids=["caller", "nobody"])
def test_a_command_for_one_container_looks_at_no_other(words, unprivileged):
    with sleepers(FEW, unprivileged) as several:
        paths = accesses(words[0], several[0].name, *words[1:], unprivileged=unprivileged)
        others = several[1:]
        pids = [one.line(ev="up")["pid"] for one in others] + [one.monitor() for one in others]
        assert any(f"/{several[0].name}/" in path for path in paths)
        for path in paths:
            assert not any(f"/{one.name}/" in path for one in others), path
            assert not any(path.startswith(f"/proc/{pid}/") for pid in pids), path
            assert path != "/proc"


def test_a_command_for_a_container_on_a_shared_clock_reads_no_record_of_others():
    with sleepers(FEW) as others, shared() as (first, second, _):
        paths = accesses("dilate", second.name, "--rate", "2")
        assert any(path.endswith(f"/{first.name}/container.json") for path in paths)
        for one in others:
            assert not any(path.endswith(f"/{one.name}/container.json") for path in paths)


def test_rm_walks_over_proc_for_all_together():
    """Each walk finds the programs of all: there are far fewer walks than containers."""
    with sleepers(2 * MANY) as several:
        paths = accesses("rm", "--force", *(one.name for one in several))
        walks = len([path for path in paths if path == "/proc"])
        assert 1 <= walks < MANY
        left = {entry["name"] for entry in lorentz.ps()}
        assert not left & {one.name for one in several}
        for one in several:
            assert has_ended(one.line(ev="up")["pid"])


def test_rm_of_dead_ones_walks_over_proc_for_all_together():
    with sleepers(MANY) as several:
        for one in several:
            kill(one.monitor())
        shown = {entry["name"]: entry for entry in lorentz.ps()}
        for one in several:
            assert shown[one.name]["state"] == "monitor dead"
            assert shown[one.name]["pids"] == [one.line(ev="up")["pid"]]
            kill(one.line(ev="up")["pid"])
        shown = {entry["name"]: entry for entry in lorentz.ps()}
        assert {shown[one.name]["state"] for one in several} == {"ended"}
        paths = accesses("ps", "--json")
        assert len([path for path in paths if path == "/proc"]) == 1
        paths = accesses("rm", *(one.name for one in several))
        assert len([path for path in paths if path == "/proc"]) == 1
        assert not {entry["name"] for entry in lorentz.ps()} & set(shown)


def test_rm_removes_those_before_the_one_that_runs():
    with sleepers(3) as (dead, runs, dead_too):
        for one in (dead, dead_too):
            kill(one.monitor())
        done = lorentz.call("rm", dead.name, runs.name, dead_too.name)
        assert done.returncode == 2 and runs.name in done.stderr
        shown = {entry["name"]: entry["state"] for entry in lorentz.ps()}
        assert dead.name not in shown
        assert (shown[runs.name], shown[dead_too.name]) == ("running", "monitor dead")


# ------------------------------------------------------------------- each kind, with others beside


def test_a_container_of_several_processes_and_one_that_came_by_exec():
    script = f"{UP}; sleep 100000 & sleep 100000"
    with sleepers(FEW) as others, Inside("/bin/sh", "-c", script) as inside:
        shell = inside.line(ev="up")["pid"]
        until(lambda: len(inside.shown()["pids"]) == 3, "the shell's children")
        command = [*lorentz.session.command(), "exec", inside.name, "/bin/sh", "-c"]
        with Native([*command, f"{UP}; exec sleep 100000"], env=inside_env()) as more:
            came = more.line(ev="up")["pid"]
            # In the midst of its exec a process is on no clock.
            until(lambda: came in inside.shown()["pids"], "the end of the exec")
            shown = inside.shown()
            assert {shell, came} < set(shown["pids"]) and len(shown["pids"]) == 4
            assert sorted(shown["pids"]) == inside.time()["pids"]
            for one in others:
                assert one.shown()["pids"] == [one.line(ev="up")["pid"]]
        until(lambda: came not in inside.shown()["pids"], "the end of the command")


@contextlib.contextmanager
def shared() -> Iterator[tuple[Inside, Inside, list[int]]]:
    """Two containers on one clock, with the process id of each."""
    with Inside("/bin/sh", "-c", f"{UP}; exec sleep 100000") as first:
        one = first.line(ev="up")["pid"]
        options = ("--clock", first.name)
        with Inside("/bin/sh", "-c", f"{UP}; exec sleep 100000", options=options) as second:
            pids = [one, second.line(ev="up")["pid"]]
            for pid in pids:
                wait_until_it_sleeps(pid)
            yield first, second, pids


def test_containers_on_one_clock():
    with sleepers(FEW) as others, shared() as (first, second, pids):
        assert [first.shown()["pids"], second.shown()["pids"]] == [[pid] for pid in pids]
        assert [first.time()["pids"], second.time()["pids"]] == [[pid] for pid in pids]
        kill(second.monitor())
        assert second.shown()["state"] == "monitor dead"
        assert [first.shown()["pids"], second.shown()["pids"]] == [[pid] for pid in pids]
        lorentz.ok("rm", second.name)
        assert has_ended(pids[1])
        assert first.shown()["pids"] == pids[:1]
        for one in others:
            assert one.shown()["pids"] == [one.line(ev="up")["pid"]]


def test_an_attached_process_that_is_in_no_group_of_its_container():
    with sleepers(FEW), Native(["/bin/sh", "-c", f"{UP}; exec sleep 100000"]) as outside:
        pid = outside.line(ev="up")["pid"]
        wait_until_it_sleeps(pid)
        name = lorentz.json_of("attach", str(pid))["name"]
        assert lorentz.shown(name)["pids"] == [pid]
        shown = lorentz.json_of("time", name)
        assert (shown["pids"], shown["monitor_alive"]) == ([pid], True)
        kill(shown["monitors"][0]["pid"])
        assert lorentz.shown(name)["state"] == "monitor dead"
        assert "monitor is dead" in lorentz.ok("time", name)
        lorentz.ok("rm", name)
        assert has_ended(pid)


def test_a_process_in_a_namespace_of_its_own():
    """`ps` names it by its number outside, and a change of the clock reaches it there."""
    root()
    sleep = [build.c("waits/sleep"), str(1000 * 10**9), "nanosleep"]
    with sleepers(FEW), Inside("unshare", "--pid", "--fork", *sleep, rate="1") as inside:
        inside.line(ev="ready")
        status = [Path(f"/proc/{pid}/status").read_text() for pid in inside.shown()["pids"]]
        inner = [re.search(r"NSpid:\t(\d+)\t1\n", text) for text in status]
        assert any(inner), "the first process of the namespace is not there"
        until(lambda: inside.time()["waits"] == 1, "the wait")
        inside.leap("1000s")
        inside.line(timeout=5, ev="done")


def test_a_change_finds_a_process_in_a_namespace_by_its_control_group():
    """The command does not look at processes of other containers if this one has a control
    group."""
    root()
    feature("cgroup-freeze")
    sleep = [build.c("waits/sleep"), str(1000 * 10**9), "nanosleep"]
    with sleepers(FEW) as others, Inside("unshare", "--pid", "--fork", *sleep, rate="1") as inside:
        inside.line(ev="ready")
        until(lambda: inside.time()["waits"] == 1, "the wait")
        paths = accesses("leap", inside.name, "--by", "1000s")
        inside.line(timeout=5, ev="done")
    assert "/proc" not in paths
    for one in others:
        assert not of_process(paths, one.line(ev="up")["pid"])


def test_a_container_of_the_runtime():
    root()
    with sleepers(FEW), Bundle(["sleep", "100000"], rate="2") as bundle:
        assert bundle.call("create", bundle.id).returncode == 0
        assert bundle.call("start", bundle.id).returncode == 0
        shown = lorentz.json_of("time", bundle.id)
        until(lambda: lorentz.shown(shown["name"])["pids"], "its process")
        (pid,) = lorentz.shown(shown["name"])["pids"]
        assert b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
        lorentz.ok("rm", "--force", shown["name"])
        assert has_ended(pid)
        assert lorentz.shown(shown["name"]) is None


def test_rm_of_one_of_an_experiments_containers_leaves_the_monitor_of_the_others():
    """One monitor supervises all containers of an experiment."""
    root()
    with Experiment() as experiment:
        names = experiment.populate(4, "sleep", "100000")
        until(lambda: all(lorentz.shown(name)["pids"] for name in names), "the programs")
        before = {entry["name"]: entry for entry in lorentz.ps()}
        monitors = {before[name]["monitors"][0]["pid"] for name in names}
        assert len(monitors) == 1
        lorentz.ok("rm", "--force", *names[:2])
        after = {entry["name"]: entry for entry in lorentz.ps()}
        assert not set(names[:2]) & set(after)
        for name in names[:2]:
            assert all(has_ended(pid) for pid in before[name]["pids"])
        for name in names[2:]:
            assert after[name]["monitor_alive"] and after[name]["pids"] == before[name]["pids"]
        lorentz.ok("rm", "--force", *names[2:])
        until(lambda: has_ended(monitors.pop()) if monitors else True, "the monitor's end")


def inside_env() -> dict[str, str]:
    return lorentz.session.environment()


def kill(pid: int) -> None:
    """Kills a process of a container that this test has started."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while not has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
