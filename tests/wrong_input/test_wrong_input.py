"""Wrong input: one line that names the flag or name, exit status 2, and nothing was started."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from framework import lorentz
from framework.needs import root
from framework.running import Inside, Native

#: Options of `run` with values that are wrong, and the word the complaint must name.
OPTIONS = [
    ("--rate", value)
    for value in (
        *("0", "-1", "-0.5", "1000001", "1e9", "nan", "inf", "fast", "", " ", "0,5", "1/0"),
        *("0/1", "1/2/3", "10%", "60xx", "ppm", "1 000", "0x10", "1/10000000"),
    )
]
OPTIONS += [("--tdf", value) for value in ("0", "-1", "1000001", "slow", "", "1/0", "nan")]
OPTIONS += [
    ("--offset", value)
    for value in (
        *("", "1parsec", "h", "--", "1.2.3s", "+", "1e3s"),
        *("-100y", "-1000000d", "300000000000d"),
    )
]
OPTIONS += [
    ("--at", value)
    for value in (
        *("", "tomorow", "2023-02-30", "2038-13-01", "2038-01-32", "@", "@abc", "1969-12-31"),
        *("2038-01-19T25:00:00Z", "2038-01-19T03:61:00Z", "2038-01-19T03:14:00+99:00", "@-1"),
        *("99999-01-01", "2038/13/19", "2038-1-40"),
    )
]
OPTIONS += [("--monotonic", value) for value in ("", "x", "-1000y", "1q")]
OPTIONS += [("--boottime", value) for value in ("", "x", "-1000y", "1q")]
OPTIONS += [("--cpu-clocks", value) for value in ("", "yes", "VIRTUALLY")]
OPTIONS += [("--file-times", value) for value in ("", "no", "host")]
OPTIONS += [
    ("--name", value)
    for value in ("", "a b", "a/b", "../a", ".hidden", "-dash", "n" * 129, "a\nb", "ä", "..", ".")
]
OPTIONS += [("--clock", value) for value in ("", "no-such-container", "../x")]


#: Valid syntax, but impossible values: the message is lorentz's own.
READABLE = ("-100y", "@-1", "1969-12-31", "-1000y", "-1000000d")


def refused(*arguments: str, names: str, unprivileged: bool = False) -> str:
    """Returns the one line of the refusal, with status 2."""
    done = lorentz.call(*arguments, unprivileged=unprivileged)
    return lorentz.refusal(done, names)


@pytest.mark.parametrize(("flag", "value"), OPTIONS)
def test_a_bad_option_of_run_is_named_and_nothing_started(tmp_path, flag, value):
    mark = tmp_path / "started"
    before = {entry["name"] for entry in lorentz.ps()}
    line = refused("run", f"{flag}={value}", "--", "touch", str(mark), names=flag)
    assert not mark.exists()
    assert {entry["name"] for entry in lorentz.ps()} == before
    if value.strip() and "\n" not in value and value not in READABLE:
        assert value in line, f"does not tell the value: {line}"


ACCEPTED = {
    "--rate": "such as 2",
    "--tdf": "such as",
    "--offset": "duration",
    "--at": "time",
    "--monotonic": "duration",
    "--boottime": "duration",
    "--cpu-clocks": "virtual or real",
    "--file-times": "virtual or real",
    "--name": "letters",
}


@pytest.mark.parametrize("flag", ACCEPTED)
def test_what_is_accepted_is_told(flag):
    line = refused("run", f"{flag}=?!", "--", "true", names=flag)
    assert "expected" in line
    assert ACCEPTED[flag] in line


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--rate", "2", "--tdf", "2"], "--tdf"),
        (["--at", "2030-01-01", "--offset", "1h"], "--offset"),
        (["--rate", "2", "--rate", "3"], "--rate"),
        (["--clock", "x", "--rate", "3"], "--clock"),
        (["--no-such-flag"], "--no-such-flag"),
    ],
)
def test_options_that_exclude_each_other_are_named(flags, names):
    refused("run", *flags, "--", "true", names=names)


def test_run_needs_a_command():
    refused("run", names="COMMAND")
    refused("run", "--rate", "2", "--", names="COMMAND")
    refused("no-such-verb", names="no-such-verb")


VERBS = [
    ("dilate", "--rate", "2"),
    ("freeze",),
    ("unfreeze",),
    ("leap", "--by", "1s"),
    ("step", "--by", "1s"),
    ("time",),
    ("rm",),
    ("exec", "true"),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("name", ["no-such-container", "999999999", "", "../etc", "a b"])
def test_an_unknown_container_is_named(verb, name):
    word, *rest = verb
    line = refused(word, name, *rest, names=name)
    assert "expected" in line or "no such" in line


@pytest.mark.parametrize("verb", [v for v in VERBS if v[0] != "rm"], ids=lambda verb: verb[0])
def test_a_process_in_real_time_is_no_container(verb):
    with Native(["sleep", "60"]) as native:
        word, *rest = verb
        refused(word, str(native.pid), *rest, names=str(native.pid))


@pytest.fixture
def running():
    with Inside("/bin/sh", "-c", 'echo \'{"ev":"up"}\'; sleep 100000; exit') as inside:
        inside.line(ev="up")
        yield inside


@pytest.mark.parametrize(
    ("verb", "arguments", "names"),
    [
        ("dilate", ["--rate", "0"], "--rate"),
        ("dilate", ["--rate", "-3"], "--rate"),
        ("dilate", ["--rate", "1000001"], "--rate"),
        ("dilate", ["--tdf", "0"], "--tdf"),
        ("dilate", ["--rate", "2", "--tdf", "2"], "--tdf"),
        ("dilate", [], "--rate"),
        ("leap", ["--by=-1s"], "--by"),
        ("leap", ["--by", "soon"], "--by"),
        ("leap", ["--by", "1000y"], "--by"),
        ("leap", ["--to", "1971-01-01"], "--to"),
        ("leap", ["--to", "never"], "--to"),
        ("leap", ["--like", "no-such-container"], "no-such-container"),
        ("leap", [], "--by"),
        ("step", ["--by", "soon"], "--by"),
        ("step", ["--by=-100y"], "--by"),
        ("step", ["--to", "1969-12-31"], "--to"),
        ("step", [], "--by"),
        ("freeze", ["--rate", "2"], "--rate"),
    ],
)
def test_a_bad_change_is_refused_and_changes_nothing(running, verb, arguments, names):
    before = running.time()
    refused(verb, running.name, *arguments, names=names)
    after = running.time()
    assert (after["rate"], after["state"]) == (before["rate"], before["state"])
    passed = (after["monotonic_ns"] - before["monotonic_ns"]) / 1e9
    assert 0 <= passed < 60
    assert after["host"]["monotonic_ns"] > before["host"]["monotonic_ns"]


def test_a_name_in_use_is_refused(running):
    refused("run", "--name", running.name, "--", "true", names="--name")
    assert running.process.poll() is None


def test_rm_is_refused_while_the_container_runs(running):
    refused("rm", running.name, names=running.name)
    assert running.process.poll() is None


def test_rm_of_several_does_nothing_where_one_is_unknown(running):
    refused("rm", "--force", running.name, "nobody", names="nobody")
    assert running.process.poll() is None


@pytest.mark.parametrize("value", ["", "x", "0", "-5", "1.5", "99999999999"])
def test_attach_needs_a_pid(value):
    refused("attach", "--", value, names="PID")


def test_attach_to_a_process_that_is_gone():
    gone = subprocess.Popen(["true"])
    gone.wait()
    refused("attach", str(gone.pid), names=str(gone.pid))


def test_attach_to_what_is_inside_already(running):
    pid = running.shown()["pids"][0]
    refused("attach", str(pid), names=str(pid))
    assert running.process.poll() is None


def test_attach_to_ourselves():
    """The shell execs lorentz: its own pid is the one given."""
    line = " ".join(lorentz.session.command())
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {line} attach $$"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=lorentz.session.environment(),
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "PID" in done.stderr


def test_attach_to_the_kernel():
    root()
    refused("attach", "2", names="PID 2")


def test_attach_to_somebody_elses_process():
    root()
    with Native(["sleep", "60"]) as native:
        refused("attach", str(native.pid), names=str(native.pid), unprivileged=True)
        assert native.process.poll() is None


def test_attach_with_bad_options_leaves_the_process_alone():
    with Native(["sleep", "60"]) as native:
        time.sleep(0.1)
        refused("attach", str(native.pid), "--rate", "0", names="--rate")
        refused("attach", str(native.pid), "--monotonic=-1000y", names="--monotonic")
        assert "Seccomp:\t0" in Path(f"/proc/{native.pid}/status").read_text()


def test_containers_of_another_user_are_not_to_be_had(running):
    """User nobody cannot reach them by name or by pid, neither the clock nor the programs."""
    root()
    pid = str(running.shown()["pids"][0])
    for target in (running.name, pid):
        for word, *rest in VERBS:
            if word != "rm":
                refused(word, target, *rest, names=target, unprivileged=True)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_state_directory_that_others_can_write_to_is_refused(tmp_path, mode):
    root()
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    env = {**lorentz.session.environment(), "LORENTZ_STATE_DIR": str(folder)}
    done = lorentz.call("run", "--rate", "2", "--", "true", env=env)
    assert done.returncode == 2
    assert str(folder) in done.stderr
