"""Each crate uses the crates that the table in docs/design.md allows, and the table is complete."""

from __future__ import annotations

import json
import re
import subprocess

from framework.build import REPO

ROW = re.compile(r"^\| (?P<names>`[^|]*`) \| [^|]* \| (?P<uses>[^|]*) \|$", re.MULTILINE)
NAME = re.compile(r"`([a-z]+)`")


def allowed() -> dict[str, set[str]]:
    """The table: the crates that each crate may use."""
    page = (REPO / "docs/design.md").read_text()
    table = page.partition("| crate | its one job | uses |")[2].partition("\n\n")[0]
    return {
        name: set(NAME.findall(row["uses"]))
        for row in ROW.finditer(table)
        for name in NAME.findall(row["names"])
    }


def used() -> dict[str, set[str]]:
    """The crates that each crate depends on, except for its tests."""
    command = ["cargo", "metadata", "--format-version=1", "--offline", "--locked", "--no-deps"]
    told = subprocess.run(command, cwd=REPO, capture_output=True, timeout=60, check=True).stdout
    prefix = "lorentz-"
    return {
        package["name"].removeprefix(prefix): {
            dependency["name"].removeprefix(prefix)
            for dependency in package["dependencies"]
            if dependency["kind"] != "dev" and dependency["name"].startswith(prefix)
        }
        for package in json.loads(told)["packages"]
    }


def test_the_table_of_crates_is_that_of_the_manifests():
    table = allowed()
    manifests = used()
    # The preload library is a part of the crate timers.
    manifests.pop("timers-preload", None)
    # So is the first interface of libtimekeeper of the crate timekeeper.
    manifests.pop("timekeeper-float", None)
    assert table == manifests


def test_crates_use_one_another_in_one_direction():
    order: list[str] = []
    left = used()
    while left:
        free = [name for name, uses in left.items() if uses <= set(order)]
        assert free, f"a circle: {left}"
        order += free
        for name in free:
            del left[name]
