"""A message between two containers is never received before it was sent."""

from pathlib import Path

import pytest
from framework import build
from framework.experiments import STATE_TIMEOUT, Experiment

COUNT = 60


@pytest.mark.parametrize("ping", ["wait", "poll"])
@pytest.mark.parametrize("echo", ["wait", "poll"])
def test_a_message_is_never_seen_before_it_was_sent(tmp_path: Path, ping: str, echo: str):
    """A third container always has work; a program that polls is never idle."""
    program = build.c("experiment/messages")
    one, other, go = (str(tmp_path / name) for name in ("one", "other", "go"))
    with Experiment() as experiment:
        experiment.run(build.c("experiment/count"))
        pair = [
            experiment.run(program, one, other, "ping", ping, COUNT, go, tdf="2"),
            experiment.run(program, other, one, "echo", echo, COUNT, go),
        ]
        for inside in pair:
            inside.line(ev="ready", timeout=STATE_TIMEOUT)
        experiment.synchronize()
        experiment.start()
        Path(go).touch()
        said = [inside.line(ev="done", timeout=2 * STATE_TIMEOUT) for inside in pair]
    assert [(line["early"], line["worst_ns"]) for line in said] == [(0, 0), (0, 0)]
