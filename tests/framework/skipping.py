"""Containers that skip their idle time, for tests of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from framework import real
from framework.running import Inside

#: Time limit of a skipped day on the busiest machine, real seconds.
BLINK = 20

BY_COUNT = pytest.param(False, id="counted")
BY_LOOKING = pytest.param(True, id="looked")


def skipping(*command: str | Path, mode: str = "--skip-idle", **options) -> Inside:
    return Inside(*command, options=[mode, *options.pop("flags", [])], **options)


def python(text: str) -> list[str]:
    return [real.python(), "-c", text]


def seconds_inside(text: str, *flags: str, **options) -> float:
    """Virtual seconds that a Python program takes between `start` and its end."""
    program = (
        "import time, json\nstart = time.monotonic()\n"
        + text
        + "\nprint(json.dumps({'ev': 'took', 'took': time.monotonic() - start}), flush=True)\n"
    )
    began = time.monotonic()
    with skipping(*python(program), flags=flags, **options) as inside:
        took = inside.line(ev="took", timeout=BLINK)["took"]
        inside.succeed(timeout=BLINK)
    assert time.monotonic() - began < BLINK
    return took
