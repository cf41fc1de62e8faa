"""Features and tools that tests need.

If one is missing, the test skips and says why. With LORENTZ_TESTS_STRICT=1 a missing tool, or a
root file system that cannot be made, is a failure instead: for machines that must have them all.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from typing import NoReturn

import pytest


def tool(name: str) -> str:
    """The path of a program, which tests/packages.txt lists."""
    path = shutil.which(name)
    if path:
        return path
    return missing(f"{name} is not installed (tests/packages.txt lists what the tests use)")


def missing(why: str) -> NoReturn:
    """Skips the test; with LORENTZ_TESTS_STRICT=1 it fails."""
    if os.environ.get("LORENTZ_TESTS_STRICT") == "1":
        pytest.fail(why)
    pytest.skip(why)


def root() -> None:
    """Skips unless the user is root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@functools.cache
def features() -> dict[str, tuple[bool, str]]:
    """Returns the result of `lorentz doctor`: name -> (there, its words)."""
    from framework import lorentz

    # Its exit status is 1 if a feature is missing; the tests of doctor judge that.
    entries = json.loads(lorentz.call("doctor", "--json").stdout)["features"]
    return {
        entry["name"]: (entry["available"], f"{entry['detail']}; to get it: {entry['how_to_get']}")
        for entry in entries
    }


def feature(name: str) -> None:
    """Skips unless `lorentz doctor` says that the machine has `name`."""
    known = features()
    if name not in known:
        pytest.fail(f"lorentz doctor --json knows no feature {name!r}, only {sorted(known)}")
    there, words = known[name]
    if not there:
        pytest.skip(f"doctor: {name} is missing: {words}")
