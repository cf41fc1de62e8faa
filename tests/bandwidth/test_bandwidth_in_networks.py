"""lorentz bandwidth over a link of `lorentz up`, whose emulator shares the processors with the
sender: what interrupts the sender is told from what the link can do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from framework import lorentz
from framework.networks import Lab, pair

#: What the link serves, bits per second.
RATE = 50e6
#: Real seconds. `slops` sends 24 fleets of 12 streams, 200 spoilt streams and 5 trains at most.
#: Each takes some 0.2 s with its rest: 100 s. On an idle machine a method takes a fifth of that.
TIMEOUT = 200
#: A machine that is busy may leave nothing to be told.
TRIES = 4


@pytest.fixture(scope="module")
def lab() -> Iterator[tuple[Lab, str]]:
    """Two nodes on real time and a link of 50 Mbit/s; where the server at its far end listens."""
    with Lab("tdf: 1\n" + pair("rate: 50mbit")) as lab:
        lab.learn()
        words = ["bandwidth", "serve", "--listen", "10.0.0.2:0", "--json"]
        server = lab.start("b", *lorentz.session.command(), *words)
        assert server.stdout is not None
        yield lab, str(json.loads(server.stdout.readline())["listening"])


def estimated(lab: Lab, address: str, method: str) -> dict:
    words = ["bandwidth", address, "--method", method, "--rate-max", "200mbit", "--json"]
    run = subprocess.run(
        lab.command("a", *lorentz.session.command(), *words),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        env=lorentz.session.environment(),
    )
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)
    assert run.returncode == (1 if found["bound"] == "unknown" else 0), run.stderr
    return found


@pytest.mark.parametrize("method", ["trains", "slops", "yaz"])
def test_each_method_tells_what_an_idle_link_serves(lab: tuple[Lab, str], method: str) -> None:
    """It never takes its sender's interruptions for the link's limit."""
    for _ in range(TRIES):
        found = estimated(*lab, method)
        if found["bound"] != "unknown":
            break
        assert "interrupted" in found["cautions"], found
    assert found["bound"] == "value", found
    assert 0.9 * RATE < found["available"] < 1.1 * RATE, found
