"""`lorentz-faketime`: the command line of libfaketime, beside `faketime` itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.build import REPO

#: Command lines that mean the same for both, with output that does not depend on when they run.
SAME = [
    ("2008-12-24 08:15:42", "date", "+%F %H:%M"),
    ("last friday 5 pm", "date", "+%A %H:%M"),
    ("-m", "2008-12-24 08:15:42", "date", "+%F"),
    ("-f", "@2030-01-01 00:00:00", "date", "+%F %H:%M"),
    ("-f", "-0 x1", "date", "+%F"),
    ("-f", "+3650d", "date", "+%Y"),
    ("--exclude-monotonic", "2008-12-24 08:15:42", "date", "+%F"),
    ("2008-12-24 08:15:42", "sh", "-c", "exit 7"),
]


@pytest.fixture
def link(tmp_path: Path) -> Path:
    path = tmp_path / "lorentz-faketime"
    path.symlink_to(lorentz.session.binary)
    return path


def run(program: str | Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**lorentz.session.environment(), "TZ": "America/New_York", **variables}
    command = [str(program), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_a_command_line_means_what_it_means_for_faketime(link: Path, words: tuple[str, ...]):
    needs.tool("faketime")
    ours, theirs = run(link, *words), run("faketime", *words)
    assert ours.stdout == theirs.stdout
    assert (ours.returncode == 0) == (theirs.returncode == 0)


def test_no_date_is_refused_as_by_faketime(link: Path):
    needs.tool("faketime")
    assert run("faketime", "no such date", "date").returncode != 0
    lorentz.refusal(run(link, "no such date", "date"), "no such date: expected a time such as")


def test_a_speed_holds_for_waits(link: Path):
    done = run(link, "-f", "@2030-01-01 00:00:00 x3600", "sh", "-c", "sleep 3600; date +%H")
    assert (done.returncode, done.stdout) == (0, "01\n")


def test_a_clock_that_stands_shows_what_was_slept(link: Path):
    script = "date +%T; sleep 3600; date +%T"
    done = run(link, "-f", "2030-01-01 00:00:00", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "00:00:00\n01:00:00\n")


def test_a_look_at_the_clock_costs_what_was_asked(link: Path):
    script = "import time; begun = time.time(); print(time.time() - begun >= 0.5)"
    done = run(link, "-f", "+1d i0,5", "python3", "-c", script)
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_faketimes_variables_take_the_place_of_a_timestamp(link: Path, tmp_path: Path):
    file = tmp_path / "timestamp"
    file.write_text("\n@2040-01-01 00:00:00\n")
    of_variable = run(link, "date", "+%Y", FAKETIME="@2030-01-01 00:00:00")
    of_file = run(link, "date", "+%Y", FAKETIME_TIMESTAMP_FILE=str(file))
    assert (of_variable.stdout, of_file.stdout) == ("2030\n", "2040\n")


def test_a_dry_run_shows_what_was_understood(link: Path):
    done = run(link, "--dry-run", "2008-12-24 08:15:42", "date")
    assert "2008-12-24T13:15:42Z, 2008-12-24 08:15:42 -05:00 America/New_York" in done.stdout


def test_what_cannot_be_is_refused_in_one_line(link: Path):
    lorentz.refusal(run(link, "-f", "%", "date"), "%: not accepted")
    lorentz.refusal(run(link, "-f", "+1d x0", "date"), "x0: must be above 0")
    lorentz.refusal(run(link, "2030-01-01"), "expected a PROGRAM")


def test_its_help_is_its_own(link: Path):
    done = run(link, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: lorentz-faketime [-f] TIMESTAMP PROGRAM")


def test_a_plan_for_dates_is_json_too():
    text = lorentz.ok("run", "--dry-run", "--json", "--at", "2030-01-01", "date", "-u")
    assert json.loads(text)["command"] == ["date", "-u"]


#: libfaketime's own test scripts that mean the same here. test_exclude_mono.sh wants a clock that
#: stands to show nothing of a sleep (docs/faketime.md).
OWN_SCRIPTS = ("test_null.sh", "test_true.sh", "test_walkone.sh")
#: Has their calls go to `lorentz-faketime` instead of the library.
OWN_CALLS = """
fakecmd() {
    typeset specification="$1"; shift
    FAKETIME="$specification" LINK "$@"
}
"""


def test_libfaketimes_own_scripts_pass(link: Path, tmp_path: Path):
    tests = REPO / "build/faketime/unpacked/test"
    if not tests.exists():
        needs.missing("libfaketime's tests are not here (scripts/setup test fetches them)")
    folder = tmp_path / "test"
    shutil.copytree(tests, folder)
    for script in (folder / "functests").glob("test_*.sh"):
        if script.name not in OWN_SCRIPTS:
            script.unlink()
    with (folder / "functests/common.inc").open("a") as common:
        common.write(OWN_CALLS.replace("LINK", str(link)))
    command = ["bash", "testframe.sh", "functests"]
    environment = {**lorentz.session.environment(), "TZ": "UTC"}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"# Test Suites summary: {len(OWN_SCRIPTS)} succeeded, 0 failed" in done.stdout
    assert "test_walkone.sh summary: 31 succeeded, 0 failed" in done.stdout
