"""A program changes its own clock: the command works inside as outside."""

from __future__ import annotations

import datetime
import errno
import json
import time

import pytest
from framework import build, lorentz, needs
from framework.oracle import epoch
from framework.running import Inside

#: Time limit, s. A command that waited for itself, or by the clock that it changes, would never
#: end.
AT_ONCE = 10.0
L = str(lorentz.session.binary)


def script(*lines: str, name: str, **options: object) -> list[dict]:
    """A shell script inside, and the JSON lines that it printed."""
    text = "set -e\n" + "\n".join(lines)
    with Inside("sh", "-c", text, name=name, **options) as inside:
        assert inside.finish(timeout=AT_ONCE) == 0, inside.stderr
        return [json.loads(line) for line in inside.stdout.split("\n") if line.startswith("{")]


def date(label: str) -> str:
    return f'echo "{{\\"{label}\\": $(date +%s)}}"'


@pytest.mark.parametrize("rate", ["1", "1000", "1/1000"])
@pytest.mark.parametrize("unprivileged", [False, True], ids=["root", "nobody"])
def test_each_change_works_from_inside(rate, unprivileged):
    """At once, whatever the rate: its own waits are real time."""
    binary = str(lorentz.session.command(unprivileged)[-1])
    begun = time.monotonic()
    seen = script(
        date("before"),
        f"{binary} leap me --by 1000000s",
        date("leapt"),
        f"{binary} step me --by=-500000s",
        date("stepped"),
        f"{binary} dilate me --rate 7",
        f"{binary} time me --json | tr -d '\\n'; echo",
        f"{binary} ps >&2",
        f"{binary} leap me --to 2040-01-01",
        date("there"),
        name="me",
        rate=rate,
        at="2030-01-01",
        unprivileged=unprivileged,
    )
    assert time.monotonic() - begun < AT_ONCE
    before, leapt, stepped, found, there = seen
    assert leapt["leapt"] - before["before"] >= 1_000_000
    assert 400_000 <= stepped["stepped"] - before["before"] <= 600_000
    assert found["rate"] == "7"
    # The command prints the real time of the host's clocks.
    assert abs(found["host"]["monotonic_ns"] / 1e9 - time.monotonic()) < AT_ONCE
    assert there["there"] >= epoch("2040-01-01")


def test_one_by_exec_changes_the_clock_that_it_joined():
    with Inside("sleep", "100000000", rate="1") as inside:
        inside.wait_until_shown()
        for word in (("dilate", "--rate", "20"), ("leap", "--by", "1h"), ("step", "--by", "1h")):
            verb, *rest = word
            done = lorentz.call("exec", inside.name, L, verb, inside.name, *rest, timeout=AT_ONCE)
            assert done.returncode == 0, done.stderr
        assert inside.time()["rate"] == "20"
        inside.dilate("1")


def test_freezing_oneself_is_refused_and_freezing_others_is_not():
    with Inside("sleep", "100000000", rate="1") as other:
        other.wait_until_shown()
        with Inside(
            "sh", "-c", f"{L} freeze self; echo $?; {L} freeze {other.name}; echo $?", name="self"
        ) as inside:
            assert inside.finish(timeout=AT_ONCE) == 0
            assert inside.stdout.split() == ["2", "0"]
            assert len(inside.stderr.splitlines()) == 1
            assert "self: this command runs on that clock" in inside.stderr
        assert other.time()["state"] == "frozen"
        # A frozen clock is changed from another container all the same.
        with Inside(
            "sh", "-c", f"{L} leap {other.name} --by 1h; {L} unfreeze {other.name}"
        ) as inside:
            assert inside.finish(timeout=AT_ONCE) == 0, inside.stderr
        assert other.time()["state"] == "running"


def test_skipping_is_begun_from_inside():
    """The skipper must not be one of the sleepers that it waits for: the container's monitor starts
    it."""
    text = f"{L} skip me on && sleep 1000000 && date +%s"
    begun = time.time()
    with Inside("sh", "-c", text, name="me", rate="1") as inside:
        assert inside.finish(timeout=AT_ONCE) == 0, inside.stderr
        assert int(inside.stdout) >= int(begun) + 1_000_000


def test_skipping_is_ended_from_inside():
    """The skipper ends, and waits take as long as without it."""
    text = f'{L} skip me on; sleep 1000000; {L} skip me off; echo "{{\\"ev\\": \\"off\\"}}"; '
    text += 'read -r _; sleep 0.5; echo "{\\"ev\\": \\"slept\\"}"; read -r _ || :'
    with Inside("sh", "-c", text, name="me", rate="1", stdin=True) as inside:
        inside.line(ev="off", timeout=AT_ONCE)
        assert inside.time()["skip"] is None
        begun = time.monotonic()
        inside.process.stdin.write(b"sleep\n")
        inside.process.stdin.flush()
        slept = inside.line(ev="slept", timeout=AT_ONCE)
        assert slept.at - begun >= 0.5
        inside.close_stdin()
        assert inside.finish(timeout=AT_ONCE) == 0, inside.stderr


@pytest.mark.parametrize("rate", ["1", "1000", "1/1000"])
@pytest.mark.parametrize("unprivileged", [False, True], ids=["root", "nobody"])
def test_a_change_is_announced_from_inside(rate, unprivileged):
    """For a time of the host, whatever the program's own clock shows. It comes by itself."""
    binary = str(lorentz.session.command(unprivileged)[-1])
    at = time.time() + 3
    first, second = (
        datetime.datetime.fromtimestamp(begins, datetime.UTC).isoformat()
        for begins in (at, at + 0.1)
    )
    seen = script(
        date("before"),
        f"{binary} leap me --by 10000000s --at {first}",
        f"{binary} dilate me --rate 7 --at {second}",
        f"{binary} time me --json | tr -d '\\n'; echo",
        date("still"),
        # These loops only read: the changes come by themselves.
        "now=$(date +%s); end=$((now + 5000000))",
        'while [ "$(date +%s)" -lt $end ]; do :; done',
        f"while {binary} time me --json | grep -q '\"in_ns\":'; do :; done",
        f"{binary} time me --json | tr -d '\\n'; echo",
        name="me",
        rate=rate,
        at="2030-01-01",
        unprivileged=unprivileged,
    )
    before, announced, still, came = seen
    assert time.time() >= at
    assert still["still"] - before["before"] < 5_000_000
    assert [change["leap_ns"] for change in announced["to_come"]] == [10**16, 0]
    assert (came["rate"], came["to_come"]) == ("7", [])


#: Command lines that read or change a clock, or what is on it.
VERBS = (
    "dilate me --rate 7",
    "leap me --by 1h",
    "step me --by 1h",
    "freeze me",
    "skip me on",
    "rm me --force",
    "exec me true",
    "dilate $$ --rate 7",
    "leap $$ --by 1h",
)


@pytest.mark.parametrize("variable", ["roots", "none"])
def test_a_lesser_program_changes_no_clock_of_roots(variable):
    """Not even its own: each verb is refused with a line, whichever state directory it knows."""
    needs.root()
    binary = lorentz.session.reachable()
    start = [*lorentz.as_nobody(), "sh", "-c"]
    unset = "unset LORENTZ_STATE_DIR; " if variable == "none" else ""
    calls = "; ".join(f"{binary} {words}; echo $?" for words in VERBS)
    text = f"""{unset}{calls}; date -s 2000-01-01 >&2; echo $?; echo '{{"ev": "end"}}'; read -r _"""
    options = {"name": "me", "rate": "3", "stdin": True}
    with Inside(*start, text, **options) as inside:
        inside.line(ev="end", timeout=AT_ONCE)
        found = inside.time()
        statuses = inside.stdout.split("\n")[: len(VERBS) + 1]
        assert statuses == ["2"] * len(VERBS) + ["1"], inside.stderr
        assert (found["rate"], found["state"], found["skip"]) == ("3", "running", None)
        passed = found["monotonic_ns"] - found["host"]["monotonic_ns"]
        assert 0 <= passed / 1e9 < 3 * AT_ONCE


def test_a_lesser_program_cannot_write_the_page_of_its_clock():
    needs.root()
    program = build.c("process/own_clock")
    with Inside(*lorentz.as_nobody(), program, rate="3") as inside:
        assert inside.finish(timeout=AT_ONCE) == 0, inside.stderr
        pages = inside.lines(ev="page")
        assert pages
        for page in pages:
            assert page["mprotect"] == errno.EACCES
            assert page["path"] != 0 and page["map_files"] != 0


def test_run_inside_is_refused():
    with Inside(L, "run", "true", rate="1") as inside:
        assert inside.finish(timeout=AT_ONCE) == 126
