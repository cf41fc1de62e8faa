"""TimeKeeper's functions: its documentation's figures 3.1 and 3.2, and each function by itself."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from framework import lorentz, processes
from framework.linked import Calls, linked, pid_inside, spin, stands, works
from framework.running import Inside, Native

MICROS = 10**6


@pytest.fixture
def calls():
    with Calls("timekeeper_calls", "timekeeper") as calls:
        yield calls


def test_figure_3_2_a_simulator_moves_its_processes():
    with linked("timekeeper_cs", "timekeeper", 3, 4, 100_000) as simulator:
        simulator.succeed()
    made = simulator.lines(ev="child")
    assert len(made) == 3 and all(one["count"] == 0 for one in made), "should_start 1: not yet"
    for step in ("clone_time", "addToExp", "synchronizeAndFreeze", "setInterval", "reset"):
        assert simulator.lines(ev=step)
        assert all(line["result"] == 0 for line in simulator.lines(ev=step)), step
    early = simulator.line(ev="too early")
    assert (early["result"], early["errno"]) == (-1, errno.EPERM)
    assert "addToExp comes first" in early["error"]
    mixed = simulator.line(ev="startExp")
    assert mixed["result"] == -1 and "have timelines" in mixed["error"]
    stood = simulator.lines(ev="stands")
    assert len(stood) == 12
    for line in stood:
        assert line["gone"] == 100_000 * line["round"], "exactly, with force and without"
        assert line["seen"] <= line["gone"], "nobody sees a time beyond the interval"
    assert all(line["count"] > 0 for line in simulator.lines(ev="stands", round=4))
    assert simulator.line(ev="after reset")["gone"] == 400_000, "without an interval nobody moves"
    assert [line["result"] for line in simulator.lines(ev="stopExp")] == [0]
    assert simulator.line(ev="stopExp again")["errno"] == errno.EPERM
    assert lorentz.json_of("experiment", "status") == []


def test_a_simulator_sets_all_intervals_anew_at_each_step(calls):
    """They wait for the progress, and each counts from then on; what has ended holds nobody up."""
    with spin() as one, spin() as other:
        for program in (one, other):
            calls.ok("addToExp", program.pid, 0)
        calls.ok("synchronizeAndFreeze")

        def gone(program) -> int:
            return lorentz.json_of("time", str(program.pid))["monotonic_ns"] - begin[program.pid]

        begin = {
            program.pid: lorentz.json_of("time", str(program.pid))["monotonic_ns"]
            for program in (one, other)
        }
        for step in range(1, 6):
            calls.ok("setInterval", one.pid, 100 * step)
            calls.ok("setInterval", other.pid, 7 * step)
            # The last one holds.
            calls.ok("setInterval", other.pid, 50 * step)
            calls.ok("progress", 0, 0)
        assert (gone(one), gone(other)) == (1_500_000, 750_000)
        calls.ok("progress", 0, 0)
        assert (gone(one), gone(other)) == (2_000_000, 1_000_000), "an interval stays"
        calls.ok("setInterval", one.pid, 100)
        calls.ok("reset", 0, 0)
        calls.ok("progress", 0, 0)
        assert gone(one) == 2_000_000, "a reset drops what waits"
        calls.ok("setInterval", one.pid, 100)
        calls.ok("progress", 0, 0)
        name = lorentz.json_of("time", str(other.pid))["name"]
        for nanos in (1, 2):
            calls.ok("setInterval", other.pid, nanos)
            calls.ok("setInterval", one.pid, 100)
            calls.ok("progress", 0, 0)
        calls.ok("setInterval", other.pid, 100)
        calls.ok("setInterval", one.pid, 100)
        lorentz.ok("rm", "--force", name)
        calls.ok("progress", 0, 0)
        assert gone(one) == 2_400_000
        calls.ok("stopExp")


def test_figure_3_1_an_experiment_that_runs_by_itself():
    with linked("timekeeper_cbe", "timekeeper", 3, 300_000) as simulator:
        simulator.succeed()
    at = [line["at"] for line in simulator.lines(ev="stands")]
    assert at == [0, 0, 0], "all stand at one time"
    assert [line["count"] for line in simulator.lines(ev="stands")] == [0, 0, 0]
    gone = [line["micros"] for line in simulator.lines(ev="gone")]
    assert min(gone) >= 300_000 - 3_000
    assert all(line["count"] > 0 for line in simulator.lines(ev="gone"))
    assert simulator.line(ev="interval")["result"] == -1, (
        "startExp and setInterval exclude each other"
    )


def test_a_simulator_that_dies_leaves_nothing_stopped():
    with linked("timekeeper_cs", "timekeeper", 2, 4, 1000, "die") as simulator:
        assert simulator.finish() == 128 + 9
        for line in simulator.lines(ev="child"):
            assert works(line["pid"], within=15)
        status = lorentz.json_of("experiment", "status", "timekeeper")
        assert (status["phase"], status["containers"]) == ("setting-up", [])
        # The environment of the children has the test's mark, so they end here.


def test_figure_2_1_dilations(calls):
    with spin() as program:
        for dilation, rate in [(3, "1/3"), (2, "0.5"), (0, "1"), (-2, "2"), (-3, "3"), (0.1, "10")]:
            calls.ok("dilate", program.pid, dilation)
            assert lorentz.json_of("time", str(program.pid))["rate"] == rate
        refused = calls("dilate", program.pid, 1e8)
        assert refused["errno"] == errno.EINVAL and "1/1000000 to 1000000" in refused["error"]
        assert lorentz.json_of("time", str(program.pid))["rate"] == "10", "nothing has changed"


def test_tdf_0_of_a_process_in_real_time_leaves_it_there(calls):
    with spin() as program:
        calls.ok("dilate", program.pid, 0)
        assert lorentz.call("time", str(program.pid)).returncode == 2


def test_dilate_all_takes_the_descendants(calls):
    with Native(["sh", "-c", "sh -c 'sleep 1000; :' & sleep 1000"]) as parent:
        deadline = time.monotonic() + 10
        while len(parent.processes()) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        calls.ok("dilate", parent.pid, 2)
        [alone] = lorentz.json_of("time", str(parent.pid))["pids"]
        assert alone == parent.pid
        calls.ok("dilate_all", parent.pid, 5)
        shown = lorentz.json_of("time", str(parent.pid))
        assert shown["rate"] == "0.2"
        assert sorted(shown["pids"]) == sorted(parent.processes())


#: Fate of a descendant before its attach, which then fails.
MEANWHILE = {
    # It stays as a zombie: its parent does not wait for it.
    "it ends": 'kill -9 "$pid"',
    # As a program that was being executed does.
    "it comes in by itself": '{lorentz} "$@"',
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_dilate_all_when_a_descendant_needs_no_attach_any_more(what, tmp_path):
    binary = lorentz.session.binary
    command = tmp_path / "lorentz"
    command.write_text(
        "#!/bin/bash\n"
        f'case "$*" in *--clock*) pid=${{@: -1}}; {MEANWHILE[what].format(lorentz=binary)};; esac\n'
        f'exec {binary} "$@"\n'
    )
    command.chmod(0o755)
    with (
        Calls("timekeeper_calls", "timekeeper", command) as calls,
        Native(["sh", "-c", "sleep 1000 & exec sleep 1000"]) as parent,
    ):
        deadline = time.monotonic() + 10
        while len(parent.processes()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        calls.ok("dilate", parent.pid, 2)
        calls.ok("dilate_all", parent.pid, 5)
        expected = 1 if what == "it ends" else 2
        assert len(lorentz.json_of("time", str(parent.pid))["pids"]) == expected


@pytest.mark.parametrize("suffix", ["", "_all"])
def test_what_is_frozen_neither_works_nor_ages(calls, suffix):
    with spin() as program:
        calls.ok(f"freeze{suffix}", program.pid)
        before = calls.ok("gettimepid", program.pid)["micros"]
        assert stands(program.pid)
        assert calls.ok("gettimepid", program.pid)["micros"] == before
        calls.ok(f"unfreeze{suffix}", program.pid)
        assert works(program.pid)
        after = calls.ok("gettimepid", program.pid)["micros"]
        host = calls.ok("gettimeofdayoriginal")["micros"]
        assert before < after < host - 0.25 * MICROS, "it has not perceived that time"


def test_freeze_all_takes_the_descendants(calls):
    spins = "while :; do :; done"
    with Native(["sh", "-c", f"sh -c '{spins}' & {spins}"]) as parent:
        deadline = time.monotonic() + 10
        while len(parent.processes()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        both = parent.processes()
        calls.ok("freeze_all", parent.pid)
        assert [stands(pid) for pid in both] == [True, True]
        calls.ok("unfreeze_all", parent.pid)
        assert [works(pid) for pid in both] == [True, True]


def test_leap_goes_to_the_time_of_another_and_not_back(calls):
    with spin() as early, Inside("sleep", "1000", at="2040-01-01") as late:
        late_pid = pid_inside(late)
        calls.ok("leap_to", early.pid, late_pid)
        there = calls.ok("gettimepid", early.pid)["micros"]
        assert 0 <= calls.ok("gettimepid", late_pid)["micros"] - there + 5 * MICROS < 10 * MICROS
        with spin() as other:
            back = calls("leap_to", early.pid, other.pid)
            assert back["errno"] == errno.EINVAL and "leaps go forward" in back["error"]


def test_gettimepid_is_what_the_process_sees(calls):
    with Calls("timekeeper_calls", "timekeeper") as program:
        host = program.ok("gettimeofday")["micros"]
        assert 0 <= calls.ok("gettimepid", program.pid)["micros"] - host < 20 * MICROS
        calls.ok("dilate", program.pid, 1000)
        lorentz.ok("step", str(program.pid), "--by=-10d")
        for _ in range(5):
            # At TDF 1000 a second of delay here is a millisecond there.
            before = calls.ok("gettimepid", program.pid)["micros"]
            seen = program.ok("gettimeofday")["micros"]
            after = calls.ok("gettimepid", program.pid)["micros"]
            assert before <= seen <= after
            assert before <= program.ok("gettimepid")["micros"] <= after + 20_000, "its own pid"
        name = lorentz.json_of("time", str(program.pid))["name"]
        named = calls.ok("gettimename", name)["micros"]
        assert after <= named <= calls.ok("gettimepid", program.pid)["micros"]


def test_gettimeofdayoriginal_is_the_hosts_even_inside(calls):
    with Calls("timekeeper_calls", "timekeeper") as program:
        calls.ok("dilate", program.pid, 10)
        lorentz.ok("step", str(program.pid), "--by=-10d")
        before = int(time.time() * MICROS)
        assert before <= program.ok("gettimeofdayoriginal")["micros"] <= time.time() * MICROS + 1
        assert program.ok("gettimeofday")["micros"] < before - 9 * 86400 * MICROS


def test_wrong_pids_and_the_wrong_order(calls):
    gone = calls("gettimepid", 2**22)
    assert (gone["result"], gone["errno"]) == (-1, errno.ESRCH)
    assert calls("gettimename", "no-such-container")["errno"] == errno.ESRCH
    assert calls("freeze", 2**22)["errno"] == errno.ESRCH
    for early in ("synchronizeAndFreeze", "startExp", "progress", "reset", "stopExp"):
        output = calls(early, 0, 0)
        assert output["errno"] == errno.EPERM and "addToExp comes first" in output["error"]
    with spin() as program:
        calls.ok("addToExp", program.pid, 0)
        assert "not synchronized yet" in calls("progress", 0, 0)["error"]
        assert "not synchronized yet" in calls("setInterval", program.pid, 1000)["error"]
        assert calls("freeze", program.pid)["errno"] == errno.EPERM, "the experiment moves it"
        calls.ok("dilate", program.pid, 4)
        assert works(program.pid), "nothing has changed"
        calls.ok("synchronizeAndFreeze")
        assert calls("setInterval", program.pid, 0)["errno"] == errno.EINVAL
        assert calls("progress", 0, -1)["errno"] == errno.EINVAL
        assert "no container follows it" in calls("progress", 0, 7)["error"]
        status = lorentz.json_of("experiment", "status", "timekeeper")
        assert (status["phase"], status["containers"][0]["tdf"]) == ("synchronized", 4)
        assert stands(program.pid)
        calls.ok("stopExp")
        assert works(program.pid)


def test_what_is_cloned_runs_or_is_held(calls):
    running = calls.ok("clone_time", 0, 2)["micros"]
    assert works(running)
    assert lorentz.json_of("time", str(running))["tdf"] == "2"
    held = calls.ok("clone_time", 1, -2)["micros"]
    assert stands(held) and processes.state(held) == "T"
    assert lorentz.json_of("time", str(held))["rate"] == "2"
    calls.ok("unfreeze", held)
    assert works(held)
    host, inside = (Path(f"/proc/{one}/ns/uts").readlink() for one in (calls.pid, held))
    assert host != inside, "CLONE_NEWUTS"


def test_a_clone_has_the_namespaces_of_cores_nodes(calls):
    """... and its parent starts its next children where it did before."""
    cloned = calls.ok("clone_time", 3, 2)["micros"]
    assert works(cloned)
    assert lorentz.json_of("time", str(cloned))["tdf"] == "2"
    status = Path(f"/proc/{cloned}/status").read_text()
    assert status.split("NSpid:")[1].split()[1] == "1", "CLONE_NEWPID"
    for name in ("mnt", "uts", "ipc", "pid", "net"):
        host, inside = (Path(f"/proc/{one}/ns/{name}").readlink() for one in (calls.pid, cloned))
        assert host != inside, name
    other = calls.ok("clone_time", 0, 2)["micros"]
    host, beside = (Path(f"/proc/{one}/ns/pid").readlink() for one in (calls.pid, other))
    assert host == beside


def test_flags_that_cannot_be_are_told(calls):
    refused = calls("clone_time", 2, 1)
    assert refused["errno"] == errno.EINVAL and "CLONE_NEWNS" in refused["error"]
    assert len(calls.processes()) == 1, "nobody was made"
