"""A program changes its own clock: the command works inside as outside."""

from __future__ import annotations

import json
import time

import pytest
from framework import lorentz
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


def test_run_inside_is_refused():
    with Inside(L, "run", "true", rate="1") as inside:
        assert inside.finish(timeout=AT_ONCE) == 126
