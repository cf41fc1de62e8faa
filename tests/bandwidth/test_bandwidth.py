"""lorentz bandwidth: over loopback, over a link of known rate, and with wrong input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.needs import root, tool
from framework.running import Running

BOTTLENECK = build.REPO / "target" / "release" / "examples" / "bottleneck"
#: Time limit of an estimate, s. One whose sender is interrupted all the time takes 47 s.
LIMIT = 80


@contextmanager
def served(*options: str, inside: tuple[str, ...] = (), at: str = "127.0.0.1:0") -> Iterator[str]:
    """Runs a server. Yields its address."""
    words = [*inside, *lorentz.session.command(), "bandwidth", "serve", "--listen", at, "--json"]
    with Running([*words, *options], env=lorentz.session.environment()) as server:
        yield str(server.line()["listening"])


def estimated(*words: str, inside: tuple[str, ...] = ()) -> dict:
    """Returns the result of `lorentz bandwidth WORDS --json`."""
    command = [*inside, *lorentz.session.command(), "bandwidth", *words, "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)
    # "unknown" is an answer too, and has a status of its own.
    assert run.returncode == (1 if found["bound"] == "unknown" else 0), run.stderr
    return found


@pytest.mark.parametrize("method", ["trains", "slops", "yaz"])
def test_loopback_is_faster_than_what_is_asked_for(method: str) -> None:
    """At up to 50 Mbit/s nothing queues: the answer is a lower bound, not a value."""
    with served() as address:
        found = estimated(address, "--method", method, "--rate-max", "50mbit", "--packet", "1500")
    # With other load, the machine looks like a slower path, or like none.
    assert found["available"] < 53e6, found
    assert found["bound"] in ("at_least", "value", "unknown"), found
    assert found["low"] <= found["available"] <= found["high"]
    assert found["method"] == method and found["packets"] > 0 and found["timers"] == "precise"


@pytest.mark.timeout(5 * LIMIT)
def test_in_words_and_without_progress_in_a_pipe() -> None:
    with served() as address:
        for _ in range(4):
            done = lorentz.call("bandwidth", address, "--rate-max", "5mbit", timeout=LIMIT)
            assert done.returncode in (0, 1) and done.stderr == "", done
            # With other load, there may be no estimate.
            if done.returncode == 0:
                break
    assert done.returncode == 0, done
    assert done.stdout.startswith(f"{address}: ") and "trains" in done.stdout


@pytest.mark.timeout(4 * LIMIT)
def test_watching_goes_on_until_it_is_ended() -> None:
    with served() as address:
        words = [*lorentz.session.command(), "bandwidth", address, "--watch", "--json"]
        words += ["--rate-max", "5mbit"]
        with Running(words, env=lorentz.session.environment()) as watching:
            lines = watching.wait_for(3, 3 * LIMIT, host=address)
            assert len(lines) >= 3
            watching.signal(signal.SIGTERM)


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret\n")
    wrong.write_text("public\n")
    with served("--token-file", str(right)) as address:
        found = estimated(address, "--token-file", str(right), "--rate-max", "5mbit")
        assert found["packets"] > 0
        for options, why in (((), "asks for a token"), (("--token-file", str(wrong)), "wrong")):
            done = lorentz.call("bandwidth", address, *options)
            assert done.returncode == 1 and why in done.stderr, done
            assert done.stderr.count("\n") == 1


def test_a_server_that_goes_away_is_one_line() -> None:
    with served() as address:
        pass
    done = lorentz.call("bandwidth", address)
    assert done.returncode == 1 and address in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bandwidth", "expected HOST"),
        ("bandwidth h --method guess", "--method guess: expected slops or trains or yaz"),
        ("bandwidth h --timers sundial", "--timers sundial: expected system or precise"),
        ("bandwidth h --rate-max fast", "--rate-max fast: expected a bandwidth such as"),
        ("bandwidth h --rate-max 0", "--rate-max 0: expected a bandwidth such as"),
        ("bandwidth h --packet 5", "--packet 5: "),
        ("bandwidth h:port", "HOST h:port: expected a port"),
        ("bandwidth serve --listen here", "--listen here: "),
        ("bandwidth serve --token-file /nonexistent", "--token-file /nonexistent: "),
        ("bandwidth serve --token-file /dev/null", "--token-file /dev/null: it is empty"),
    ],
)
def test_wrong_input_is_one_line(words: str, expected: str) -> None:
    done = lorentz.call(*words.split())
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"lorentz: {expected}") and done.stderr.count("\n") == 1, done


@contextmanager
def link(rate: int, cross: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Makes a link of `rate` bit/s. Yields the words before a command at either end."""
    root()
    ip = tool("ip")
    assert BOTTLENECK.exists(), f"{BOTTLENECK} is missing: make build makes it"
    near, middle, far = names = [f"lorentz-test-{os.getpid()}-{end}" for end in "nmf"]

    def run(*command: str) -> None:
        done = subprocess.run([ip, *command], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {command}: {done.stderr}"

    try:
        for name in names:
            run("netns", "add", name)
        for name, here, there in ((near, "n0", "n1"), (far, "f0", "f1")):
            run("link", "add", here, "netns", name, "type", "veth", "peer", there, "netns", middle)
            run("-n", name, "link", "set", here, "up")
            run("-n", middle, "link", "set", there, "up")
        run("-n", near, "addr", "add", "10.98.0.1/24", "dev", "n0")
        run("-n", far, "addr", "add", "10.98.0.2/24", "dev", "f0")
        inside = [(ip, "netns", "exec", name) for name in names]
        shape = (str(rate), str(cross), str(rate // 80), "0", "120")
        with Running([*inside[1], str(BOTTLENECK), "n1", "f1", *shape]) as bottleneck:
            deadline = time.monotonic() + 20
            while "ready" not in bottleneck.stdout:
                assert time.monotonic() < deadline, bottleneck.stderr
                time.sleep(0.02)
            yield inside[0], inside[2]
    finally:
        for name in names:
            subprocess.run([ip, "netns", "del", name], capture_output=True)


@pytest.mark.timeout(4 * LIMIT)
@pytest.mark.parametrize("method", ["trains", "slops"])
def test_what_cross_traffic_leaves_of_a_link(method: str) -> None:
    """200 Mbit/s, of which 80 are taken: the estimate is about 120, or unknown."""
    with link(200_000_000, 80_000_000) as (near, far), served(inside=far, at="10.98.0.2:0") as at:
        # On a busy machine there may be no estimate: try again.
        for _ in range(3):
            words = (at, "--method", method, "--rate-max", "400mbit", "--fifo")
            found = estimated(*words, inside=near)
            # In every case: never a confident lower bound above the available bandwidth.
            if found["bound"] == "at_least":
                assert found["available"] < 150e6, found
            assert found["bound"] == "unknown" or found["low"] < 210e6, found
            if found["bound"] == "value" and not set(found["cautions"]) - {"loss"}:
                assert 90e6 < found["available"] < 150e6, found
                break
