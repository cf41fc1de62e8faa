"""Each crate uses the crates that the table in docs/design.md allows, and the table is complete.
No two files of a crate use one another."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from framework.build import REPO
from framework.rust_files import Crate

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
    metadata = subprocess.run(command, cwd=REPO, capture_output=True, timeout=60, check=True).stdout
    prefix = "lorentz-"
    return {
        package["name"].removeprefix(prefix): {
            dependency["name"].removeprefix(prefix)
            for dependency in package["dependencies"]
            if dependency["kind"] != "dev" and dependency["name"].startswith(prefix)
        }
        for package in json.loads(metadata)["packages"]
    }


def test_the_table_of_crates_is_that_of_the_manifests():
    table = allowed()
    manifests = used()
    # The C interface and the preload library are parts of the crate timers.
    manifests.pop("timers-c", None)
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


def sources() -> list[Path]:
    """The folders with the code of each crate."""
    return sorted(REPO.glob("crates/*/src"))


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.parent.name)
def test_no_files_of_a_crate_use_one_another(source):
    circles = [["::".join(module) or "lib" for module in one] for one in Crate(source).circles()]
    assert circles == []


def test_a_circle_of_files_is_found(tmp_path):
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\nmod c;\npub use a::{x, Y};\n")
    (tmp_path / "a.rs").write_text("use crate::b;\npub struct Y;\npub fn x() { b::z() }\n")
    (tmp_path / "b.rs").write_text("use crate::c::Z;\n// crate::a\n#[cfg(test)]\nmod tests {\n}\n")
    (tmp_path / "c.rs").write_text("mod inside { use super::Z; }\npub struct Z(u8);\n")
    assert Crate(tmp_path).circles() == set()
    (tmp_path / "c.rs").write_text("pub struct Z(crate::Y);\n")
    assert Crate(tmp_path).circles() == {frozenset({("a",), ("b",), ("c",)})}
