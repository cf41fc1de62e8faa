"""lorentz bandwidth over a link of `lorentz up`. The link's emulator shares the processors with the
sender: the estimator must distinguish interruptions of the sender from the link's limit."""

from __future__ import annotations

import json
import subprocess

import pytest
from framework import lorentz
from framework.networks import Lab, pair

#: Rate of the link, bit/s.
RATE = 50e6
#: Real seconds. In simulation a method takes at most 47 s, however often its sender is interrupted.
TIMEOUT = 80
#: Nanoseconds. If more than a hundredth of the frames are later than this, the link has not the
#: rate of its file. Such delays equal that of a stream at 1.05 times the rate.
ON_TIME = 1_000_000
#: Least length of a stream, ns. Frames that are late by a part of it change its rate by as great a
#: part.
STREAM = 20_000_000
#: A sender under SCHED_FIFO runs before all other programs; it must return a value.
FIFO = ["--fifo"]


def estimated(method: str, options: list[str]) -> tuple[dict, int]:
    """Returns the result of `lorentz bandwidth` for an idle link between nodes on real time, and
    the 99th percentile of the link's lateness, ns."""
    binary = lorentz.session.command()
    with Lab("tdf: 1\n" + pair("rate: 50mbit")) as lab:
        lab.learn()
        words = ["bandwidth", "serve", "--listen", "10.0.0.2:0", "--json"]
        server = lab.start("b", *binary, *words)
        assert server.stdout is not None
        address = str(json.loads(server.stdout.readline())["listening"])
        words = ["bandwidth", address, "--method", method, "--rate-max", "200mbit", "--json"]
        run = subprocess.run(
            lab.command("a", *binary, *words, *options),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
            env=lorentz.session.environment(),
        )
        late = lab.status()["lateness"]["p99_ns"]
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)
    assert run.returncode == (1 if found["bound"] == "unknown" else 0), run.stderr
    return found, late


@pytest.mark.parametrize("options", [[], FIFO], ids=["shared", "fifo"])
@pytest.mark.parametrize("method", ["trains", "slops", "yaz"])
def test_no_method_takes_interruptions_for_the_links_limit(method: str, options: list[str]) -> None:
    found, late = estimated(method, options)
    # Even on a busy machine: the estimator sent at a rate above the available bandwidth and found
    # that.
    assert found["bound"] in ("value", "unknown"), found
    if found["bound"] == "value":
        off = 0.1 + (late / STREAM if late > ON_TIME else 0)
        assert abs(found["available"] - RATE) < off * RATE, (found, late)
    elif late <= ON_TIME:
        assert {"interrupted", "stalled"} & set(found["cautions"]), found
        assert options != FIFO, found
