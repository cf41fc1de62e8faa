"""scripts/notice: each package that is linked into a program stands in NOTICE, with its licence."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, needs, scripts
from framework.build import REPO

SCRIPT = REPO / "scripts/notice"
ROW = re.compile(r"^(\S+) (\S+) \| (.+) \| ([\d, ]+)$", re.MULTILINE)
TEXT = re.compile(r"^\[(\d+)\] =+$", re.MULTILINE)
#: A program names the source file of each place that can panic.
SOURCE = re.compile(rb"registry/src/[^/]+/([\w-]+?)-(\d+\.\d+\.[\w.+-]+)/")


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    return scripts.load("notice")


@pytest.fixture(scope="module")
def notice(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("notice") / "NOTICE"
    done = subprocess.run([SCRIPT, file], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return file.read_text()


@pytest.fixture(scope="module")
def listed(notice) -> set[tuple[str, str]]:
    """Name and version of each package in the file."""
    return {(name, version) for name, version, _, _ in ROW.findall(notice)}


def cargo(*words: str) -> str:
    command = ["cargo", *words, "--offline", "--locked"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def programs() -> list[str]:
    """The packages of the workspace that are linked into a file of their own."""
    packages = json.loads(cargo("metadata", "--format-version", "1", "--no-deps"))["packages"]
    kinds = {"bin", "cdylib", "staticlib"}
    return [p["name"] for p in packages if any(kinds & {*t["kind"]} for t in p["targets"])]


def test_each_package_that_cargo_links_is_listed(listed):
    selected = [word for name in programs() for word in ("--package", name)]
    edges = ("--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    tree = cargo("tree", *selected, *edges)
    linked = set(re.findall(r"^(\S+) v(\S+)(?: \(\*\))?$", tree, re.MULTILINE))
    assert len(linked) > 100
    assert linked <= listed


def test_each_package_that_the_command_names_is_listed(listed):
    found = SOURCE.findall(Path(lorentz.session.binary).read_bytes())
    assert found
    assert {(name.decode(), version.decode()) for name, version in found} <= listed


def test_each_package_of_the_page_is_listed(listed):
    if not (REPO / "web/dist/licenses.txt").exists():
        needs.missing("web/dist is not there: 'make web' makes it")
    wanted = json.loads((REPO / "web/package.json").read_text())["dependencies"]
    assert {*wanted} <= {name for name, _ in listed}


def test_each_package_has_a_text_and_each_text_a_package(notice):
    texts = TEXT.findall(notice)
    assert len(texts) == len(set(texts))
    used = {number for row in ROW.findall(notice) for number in row[3].split(", ")}
    assert used == set(texts)


def test_each_fact_has_a_reason_and_is_needed(script, listed):
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    linked = {p["name"]: p for p in packages if (p["name"], p["version"]) in listed}
    for name, facts in script.FACTS.items():
        assert facts["reason"] and name in linked, f"{name} is not linked any more"
        directory = Path(linked[name]["manifest_path"]).parent
        assert all((directory / folder).is_dir() for folder in facts.get("skip", []))
        if "licence" in facts:
            assert linked[name]["license"] is None, f"{name} names its licence now"
        if "text" in facts:
            assert script.texts_below(directory, []) == [], f"{name} has a licence file now"


def test_a_package_without_a_licence_is_named(script):
    without_text = script.Package("one", "1.0.0", "MIT", ())
    without_name = script.Package("two", "2.0.0", "", ("Permission is granted",))
    complete = script.Package("three", "3.0.0", "MIT", ("Permission is granted",))
    lists = {"Rust packages": [without_text, without_name, complete]}
    assert script.without_licence(lists) == ["one 1.0.0", "two 2.0.0"]


def test_the_packages_of_the_page_are_those_of_its_file(script):
    licences = "# Licenses\n\n## a/b - 1.0.0 (MIT)\n\nPermission\n\n## c - 2.0.0 (ISC)\n\n"
    first, second = script.page_packages(licences)
    assert (first.name, first.version, first.licence) == ("a/b", "1.0.0", "MIT")
    assert first.texts == ("\n\nPermission\n\n",)
    assert second.texts == ()
