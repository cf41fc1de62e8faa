"""Features and tools a test cannot do without.

What is missing makes a test skip and say why. With LORENTZ_TESTS_STRICT=1 a missing tool is a
failure instead: for machines that are to have them all.
"""

from __future__ import annotations

import functools
import os
import shutil

import pytest


def tool(name: str) -> str:
    """The path of a program, which tests/packages.txt lists."""
    path = shutil.which(name)
    if path:
        return path
    why = f"{name} is not installed (tests/packages.txt lists what the tests use)"
    if os.environ.get("LORENTZ_TESTS_STRICT") == "1":
        pytest.fail(why)
    return pytest.skip(why)


def root() -> None:
    """For what only root may do."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@functools.cache
def features() -> dict[str, tuple[bool, str]]:
    """What `lorentz doctor` says of this machine: name -> (there, its words)."""
    from framework import lorentz

    found = lorentz.json_of("doctor")
    entries = found.get("features", found) if isinstance(found, dict) else found
    if isinstance(entries, dict):
        entries = [
            {"name": name, **(value if isinstance(value, dict) else {"available": value})}
            for name, value in entries.items()
        ]
    result = {}
    for entry in entries:
        there = next((entry[key] for key in ("available", "present", "ok") if key in entry), None)
        if there is None:
            there = entry.get("state", entry.get("status")) in ("ok", "yes", "available", True)
        words = [str(v) for k, v in entry.items() if k != "name" and v not in (None, "", [], {})]
        result[entry["name"]] = (bool(there), "; ".join(words))
    return result


def feature(name: str) -> None:
    """Skips unless `lorentz doctor` says that the machine has `name`."""
    known = features()
    if name not in known:
        pytest.fail(f"lorentz doctor --json knows no feature {name!r}, only {sorted(known)}")
    there, words = known[name]
    if not there:
        pytest.skip(f"doctor: {name} is missing: {words}")
