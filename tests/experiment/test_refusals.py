"""The wrong order of calls and wrong input: one line, exit status 2, and nothing has changed."""

from __future__ import annotations

import socket
import uuid

import pytest
from framework import lorentz
from framework.experiments import Experiment, is_there
from framework.lorentz import refusal
from framework.running import Inside


def unchanged(status: dict) -> dict:
    """Returns the state that a refused call must not change."""
    members = [
        {key: one[key] for key in ("name", "tdf", "timeline", "virtual_ns")}
        for one in status["containers"]
    ]
    return {**{key: status[key] for key in ("phase", "virtual_ns", "rounds")}, "members": members}


def refused_without_a_change(experiment: Experiment, *call: str, names: str) -> None:
    before = experiment.status()
    experiment.refused(*call, names=names)
    after = experiment.status()
    if before["phase"] == "setting-up":  # each runs by itself
        for status in (before, after):
            for one in status["containers"]:
                one["virtual_ns"] = None
    if before["phase"] == "running":
        assert after["phase"] == "running"
        return
    assert unchanged(after) == unchanged(before)


# ------------------------------------------------------------------------------------- the order


def test_before_it_is_synchronized():
    with Experiment() as experiment:
        refused_without_a_change(experiment, "synchronize", names="add")
        for call in (("start",), ("pause",), ("progress", "1"), ("reset", "1")):
            refused_without_a_change(experiment, *call, names="'synchronize' comes first")
        sleeps = experiment.run("sleep", "1000", timeline=1)
        for call in (
            ("start",),
            ("pause",),
            ("progress", "1"),
            ("reset", "1"),
            ("interval", sleeps.name, "1ms"),
        ):
            refused_without_a_change(experiment, *call, names="'synchronize' comes first")


def test_an_experiment_that_runs_by_itself_takes_no_steps():
    with Experiment() as experiment:
        sleeps = experiment.run("sleep", "1000")
        experiment.synchronize()
        steps = (("progress", "1"), ("reset", "1"), ("interval", sleeps.name, "1ms"))
        refused_without_a_change(experiment, "pause", names="'start' comes first")
        for _ in ("synchronized", "running", "paused"):
            refused_without_a_change(experiment, "synchronize", names="synchronized already")
            for step in steps:
                refused_without_a_change(experiment, *step, names="no timeline")
            if _ == "synchronized":
                experiment.start()
                refused_without_a_change(experiment, "start", names="runs already")
            else:
                experiment.pause()
        experiment.pause()  # is as good as one


def test_an_experiment_that_is_moved_in_steps_does_not_run():
    with Experiment() as experiment:
        sleeps = experiment.run("sleep", "1000", timeline=4)
        experiment.synchronize()
        for phase in ("synchronized", "stepping"):
            assert experiment.status()["phase"] == phase
            for call in ("start", "pause"):
                refused_without_a_change(experiment, call, names="'interval' and 'progress'")
            refused_without_a_change(experiment, "progress", "5", names="timeline 5")
            refused_without_a_change(experiment, "reset", "5", names="timeline 5")
            refused_without_a_change(
                experiment, "interval", sleeps.name, "1ms", "--timeline", "5", names="timeline 5"
            )
            refused_without_a_change(experiment, "synchronize", names="synchronized already")
            experiment.interval(sleeps, 1_000)
            experiment.progress(4)


def test_all_have_a_timeline_or_none():
    with Experiment() as experiment:
        experiment.run("sleep", "1000", timeline=1)
        other = experiment.run("sleep", "1000")
        refused_without_a_change(experiment, "synchronize", names="give one to all, or to none")
        experiment.ok("remove", other.name)
        experiment.synchronize()


@pytest.mark.parametrize("late", ["add", "run"])
def test_who_joins_a_running_experiment_does_not_change_how_it_is_moved(late):
    """A container with a timeline cannot join if the others have none: the experiment goes on as
    before."""
    with Experiment() as experiment, Inside("sleep", "1000") as single:
        experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.start()
        if late == "add":
            done = experiment.call("add", is_there(single).name, "--timeline", "1")
        else:
            done = lorentz.call(
                "run", "--experiment", experiment.name, "--timeline", "1", "--", "true"
            )
        refusal(done, "timeline")
        assert len(experiment.status()["containers"]) == 1
        experiment.advance(0.05)


# -------------------------------------------------------------------------------------- the input

BAD_NAMES = ("", "a b", "a/b", "../a", ".hidden", "n" * 129, "a\nb", "ä", "..", ".")

CREATE = [
    *(("--timeslice", value) for value in ("0s", "-3ms", "999ns", "1m1s", "8d", "", "x", "1ms1")),
    *(("--cpus", value) for value in ("", "a", "1-", "3-1", "1,,2", "9999", "99999", "-1", "0.5")),
    *(("--most", value) for value in ("0", "-1", "1000001", "many", "", "1.5", "99999999999")),
]


@pytest.mark.parametrize(("flag", "value"), CREATE)
def test_a_wrong_setting_is_named_and_nothing_made(flag, value):
    name = f"x{uuid.uuid4().hex}"
    line = refusal(lorentz.call("experiment", "create", name, f"{flag}={value}"), flag)
    assert "expected" in line
    assert value in line
    refusal(lorentz.call("experiment", "status", name), name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_wrong_name_is_told(name):
    for call in (("create", name), ("status", name), ("rm", name), ("start", name)):
        line = refusal(lorentz.call("experiment", *call), "name")
        assert "expected" in line


def test_a_name_in_use_is_told():
    with Experiment() as experiment:
        line = refusal(lorentz.call("experiment", "create", experiment.name), experiment.name)
        assert "rm" in line
        experiment.status()


@pytest.mark.parametrize(
    "call",
    [
        ("add", "none", "sh"),
        ("remove", "none", "sh"),
        ("dilate", "none", "sh", "--tdf", "2"),
        ("synchronize", "none"),
        ("start", "none"),
        ("pause", "none"),
        ("stop", "none"),
        ("interval", "none", "sh", "1ms"),
        ("progress", "none", "1"),
        ("step", "none", "sh=1ms"),
        ("reset", "none", "1"),
        ("status", "none"),
        ("rm", "none"),
        ("populate", "none", "--count", "1", "true"),
    ],
    ids=lambda call: call[0],
)
def test_an_experiment_that_is_not_there(call):
    refusal(lorentz.call("experiment", *call), "none: no such experiment")


def test_run_in_an_experiment_that_is_not_there(tmp_path):
    mark = tmp_path / "started"
    refusal(lorentz.call("run", "--experiment", "none", "--", "touch", str(mark)), "none")
    assert not mark.exists()


RATES = [
    *(("--tdf", value) for value in ("0", "-1", "1000001", "slow", "", "1/0", "nan")),
    *(("--rate", value) for value in ("0", "-1", "1000001", "fast", "", "1/0", "inf")),
]


@pytest.mark.parametrize(("flag", "value"), RATES)
def test_a_wrong_tdf_is_named_and_changes_nothing(flag, value):
    with Experiment() as experiment, Inside("sleep", "1000") as single:
        member = experiment.run("sleep", "1000", tdf="3")
        given = f"{flag}={value}"
        is_there(single)
        for call in (
            ("add", single.name, given),
            ("dilate", member.name, given),
            ("populate", "--count", "1", given, "true"),
        ):
            line = experiment.refused(*call, names=flag)
            assert value in line
        line = ("--experiment", experiment.name, given, "--", "true")
        refusal(lorentz.call("run", *line), flag)
        assert [one["tdf"] for one in experiment.status()["containers"]] == [3]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (("populate", "--count", "0", "true"), "--count"),
        (("populate", "--count", "-1", "true"), "--count"),
        (("populate", "--count", "1000001", "true"), "--count"),
        (("populate", "--count", "x", "true"), "--count"),
        (("populate", "--count=", "true"), "--count"),
        (("populate", "true"), "--count"),
        (("populate", "--count", "1"), "COMMAND"),
        (("populate", "--count", "1", "--prefix", "a b", "true"), "a b"),
        (("populate", "--count", "1", "--prefix", "../a", "true"), "../a"),
        (("populate", "--count", "1", "--timeline", "-1", "true"), "--timeline"),
        (("populate", "--count", "1", "--timeline", "x", "true"), "--timeline"),
        (("populate", "--count", "1", "--tdf", "2", "--rate", "2", "true"), "--rate"),
        (("add",), "CONTAINER|PID"),
        (("add", "nobody-of-this-name"), "nobody-of-this-name"),
        (("add", "4194305"), "4194305"),
        (("add", "MEMBER", "--timeline", "1.5"), "--timeline"),
        (("add", "MEMBER"), "already"),
        (("remove",), "CONTAINER|PID"),
        (("remove", "nobody-of-this-name"), "nobody-of-this-name"),
        (("remove", "SINGLE"), "not in this experiment"),
        (("dilate", "MEMBER"), "--tdf"),
        (("dilate", "SINGLE", "--tdf", "2"), "not in this experiment"),
        (("dilate", "MEMBER", "--tdf", "2", "--rate", "2"), "--rate"),
        (("interval", "MEMBER"), "DUR"),
        (("interval", "MEMBER", "x"), "x"),
        (("interval", "MEMBER", ""), "DUR"),
        (("progress",), "TIMELINE"),
        (("progress", "x"), "TIMELINE x"),
        (("progress", "--", "-1"), "TIMELINE -1"),
        (("reset", "4294967296"), "TIMELINE 4294967296"),
        (("step",), "CONTAINER|PID=DUR"),
        (("step", "MEMBER"), "expected CONTAINER=DUR"),
        (("step", "x=0"), "x=0"),
        (("step", "x=-1ms"), "x=-1ms"),
        (("step", "MEMBER=1ms", "MEMBER=2ms"), "named twice"),
        (("step", "nobody-of-this-name=1ms"), "nobody-of-this-name"),
        (("step", "MEMBER=1ms"), "not synchronized yet"),
        (("step", "SINGLE=1ms"), "not synchronized yet"),
        (("start", "more"), "more"),
        (("status", "--json", "--prometheus"), "--prometheus"),
        (("status", "--watch", "--json"), "--json"),
        (("no-such-call",), "populate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_named_and_changes_nothing(call, names):
    with Experiment() as experiment, Inside("sleep", "1000") as single:
        member = experiment.run("sleep", "1000")
        words = {"MEMBER": member.name, "SINGLE": is_there(single).name}
        parts = (word.split("=") for word in call)
        line = ("=".join([words.get(first, first), *rest]) for first, *rest in parts)
        refused_without_a_change(experiment, *line, names=names)
        assert not [one for one in lorentz.ps() if one["name"].startswith(f"{experiment.name}-")]


@pytest.mark.parametrize("interval", ["0", "0ns", "-1ms"])
def test_an_interval_is_above_zero(interval):
    with Experiment() as experiment:
        member = experiment.run("sleep", "1000", timeline=1)
        experiment.synchronize()
        refused_without_a_change(experiment, "interval", member.name, interval, names="interval")
        assert experiment.status()["phase"] == "synchronized"


def test_status_watch_needs_a_name():
    refusal(lorentz.call("experiment", "status", "--watch"), "NAME")


def test_one_more_than_there_is_room_for():
    with Experiment("--most", "2") as experiment, Inside("sleep", "1000") as third:
        for _ in range(2):
            experiment.run("sleep", "1000")
        refused_without_a_change(experiment, "add", is_there(third).name, names="--most")
        mark = lorentz.session.folder / f"mark-{experiment.name}"
        line = ("--experiment", experiment.name, "--", "touch", str(mark))
        refusal(lorentz.call("run", *line), "--most")
        assert not mark.exists()


def test_populate_whose_program_is_not_there():
    with Experiment() as experiment:
        done = experiment.call("populate", "--count", "2", "no-such-program")
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
        assert "no-such-program" in done.stderr
        assert experiment.status()["containers"] == []


def test_populate_with_a_name_in_use():
    with Experiment() as experiment, Inside("sleep", "1000", name=f"{experiment.name}-2") as two:
        is_there(two)
        done = experiment.call("populate", "--count", "3", "sleep", "1000")
        refusal(done, f"{experiment.name}-2")
        assert experiment.status()["containers"] == []


def test_populate_with_more_than_there_is_room_for():
    with Experiment("--most", "3") as experiment:
        experiment.run("sleep", "1000")
        refused_without_a_change(experiment, "populate", "--count", "3", "true", names="--count 3")
        experiment.populate(2, "sleep", "1000")
        assert len(experiment.status()["containers"]) == 3


# ------------------------------------------------------------------------------------ the members


def test_a_container_is_in_one_experiment():
    with Experiment() as one, Experiment() as other:
        member = one.run("sleep", "1000")
        line = other.refused("add", member.name, names=one.name)
        assert "remove" in line
        assert other.status()["containers"] == []
        assert len(one.status()["containers"]) == 1
        one.ok("remove", member.name)
        other.ok("add", member.name)


def test_a_shared_clock_is_refused():
    with Experiment() as experiment, Inside("sleep", "1000") as owner:
        is_there(owner)
        with Inside("sleep", "1000", options=["--clock", owner.name]) as guest:
            for each in (owner, guest):
                experiment.refused("add", is_there(each).name, names="shares its clock")
        assert experiment.status()["containers"] == []


def test_nobody_shares_a_members_clock():
    with Experiment() as experiment:
        member = experiment.run("sleep", "1000")
        line = ("--name", f"{experiment.name}-guest", "--clock", member.name, "--", "true")
        refusal(lorentz.call("run", *line), experiment.name)


def test_one_that_skips_idle_time_is_refused():
    with (
        Experiment() as experiment,
        Inside("sh", "-c", "while :; do :; done", options=["--skip-idle"]) as skips,
    ):
        experiment.refused("add", is_there(skips).name, names="--as-fast-as-possible")
        assert experiment.status()["containers"] == []


def test_run_in_an_experiment_skips_no_idle_time():
    with Experiment() as experiment:
        line = ("--experiment", experiment.name, "--skip-idle", "--", "true")
        refusal(lorentz.call("run", *line), "--skip-idle")
        assert experiment.status()["containers"] == []


def test_one_in_a_time_namespace_alone_is_refused():
    with (
        Experiment() as experiment,
        Inside("sleep", "1000", options=["--monotonic", "1h"]) as offsets,
    ):
        experiment.refused("add", is_there(offsets).name, names="--rate")
        assert experiment.status()["containers"] == []


@pytest.mark.parametrize("phase", ["setting-up", "synchronized", "running"])
@pytest.mark.parametrize(
    "verb",
    [
        ("dilate", "--rate", "2", "--at", "2100-01-01"),
        ("freeze",),
        ("unfreeze",),
        ("leap", "--by", "1s"),
        ("step", "--by", "1s"),
        ("skip", "on"),
    ],
    ids=lambda verb: verb[0],
)
def test_nobody_else_changes_a_members_time(verb, phase):
    with Experiment() as experiment:
        member = experiment.run("sleep", "1000")
        if phase != "setting-up":
            experiment.synchronize()
        if phase == "running":
            experiment.start()
        line = refusal(lorentz.call(verb[0], member.name, *verb[1:]), experiment.name)
        assert "remove" in line
        experiment.ok("remove", member.name)
        done = lorentz.call(verb[0], member.name, *verb[1:])
        assert done.returncode in (0, 2), done.stderr
        assert experiment.name not in done.stderr


def test_a_members_program_sets_its_own_clock_alone():
    """The experiment carries it out; the other member shows the old date."""
    with Experiment() as experiment:
        script = "read -r _; date -s 2040-01-01 >&2; echo status $?"
        other = experiment.run("sleep", "1000")
        sets = experiment.run("sh", "-c", script, stdin=True)
        experiment.synchronize()
        experiment.start()
        sets.close_stdin()
        sets.finish(timeout=30)
        assert "status 0" in sets.stdout
        assert experiment.status()["phase"] == "running"
        assert lorentz.json_of("clock", "show", other.name)["offset_ns"] == 0


def test_the_wrong_calls_of_somebody_at_the_socket_change_nothing():
    """A client sends nonsense to the experiment's socket."""
    with Experiment() as experiment:
        experiment.run("sleep", "1000")
        for words in (b"", b"\n", b"rubbish\n", b'{"do":"fly"}\n', b"{" * 70000, b"\xff\n"):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(5)
                caller.connect(str(experiment.place / "socket"))
                caller.sendall(words)
                caller.shutdown(socket.SHUT_WR)
                answer = caller.recv(1000)
            assert not words.strip() or b"refused" in answer or not answer
        assert experiment.status()["phase"] == "setting-up"
