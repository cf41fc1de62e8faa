"""TimeKeeper's utilities: one program, by twelve names; and `make install`, which makes those."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.linked import environment, spin, stands, works

UTILITIES = [
    "dilate",
    "freeze",
    "unfreeze",
    "leap",
    "gettime",
    "addToExperiment",
    "synchronizeAndFreeze",
    "startExperiment",
    "setInterval",
    "progress",
    "reset",
    "stopExperiment",
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The directory with everything installed."""
    root = tmp_path_factory.mktemp("root")
    env = {**os.environ, "DESTDIR": str(root), "PREFIX": "/usr"}
    subprocess.run([build.REPO / "scripts" / "install"], env=env, check=True, timeout=60)
    return root / "usr"


@pytest.fixture
def call(installed):
    def call(utility: str, *arguments: object) -> subprocess.CompletedProcess:
        program = installed / "bin" / f"timekeeper-{utility}"
        command = [str(program), *map(str, arguments)]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=30, check=False
        )

    return call


@pytest.fixture
def ok(call):
    def ok(utility: str, *arguments: object) -> str:
        done = call(utility, *arguments)
        assert done.returncode == 0, f"{utility} {arguments}: {done.stderr}"
        return done.stdout

    return ok


def test_linked_programs_find_the_libraries_by_their_sonames(installed):
    sonames = {"lorentz": "0", "timekeeper": "1", "lorentz_timers": "0"}
    for library, version in sonames.items():
        shared = installed / "lib" / f"lib{library}.so"
        assert shared.resolve().name == f"lib{library}.so.{version}"
        assert f"[lib{library}.so.{version}]" in _dynamic(shared)
    # Programs that were linked to the first interface need this one.
    assert "[libtimekeeper.so.0]" in _dynamic(installed / "lib" / "libtimekeeper.so.0")


def _dynamic(library: Path) -> str:
    """Return readelf's listing of a library's dynamic section."""
    words = ["readelf", "-d", library]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_libraries_export_what_the_headers_declare(installed):
    """... and nothing else: a library must not export a name such as `freeze` by accident."""
    timekeeper = ("timekeeper.h", "utility_functions.h")
    for library, prefix, headers in (
        ("lorentz", "lorentz_", ("lorentz.h",)),
        ("timekeeper", "", timekeeper),
        ("timekeeper.so.0", "", timekeeper),
    ):
        name = library if ".so" in library else f"{library}.so"
        shared = installed / "lib" / f"lib{name}"
        output = subprocess.run(
            ["nm", "-D", "--defined-only", shared], capture_output=True, text=True, check=True
        )
        exported = {line.split()[-1] for line in output.stdout.splitlines()}
        header = "".join((installed / "include" / one).read_text() for one in headers)
        assert exported and all(f"{name}(" in header for name in exported), exported
        assert all(name.startswith(prefix) for name in exported)


def test_an_experiment_by_hand(ok):
    with spin() as one, spin() as two:
        ok("dilate", "-r", "-p", one.pid, 2)
        name = lorentz.json_of("time", str(one.pid))["name"]
        ok("addToExperiment", "-t", 0, "-n", name)
        ok("addToExperiment", "-t", 0, "-d", 3, "-p", two.pid)
        ok("synchronizeAndFreeze")
        assert stands(one.pid) and stands(two.pid)
        begin = ok("gettime", "-p", one.pid)
        assert ok("gettime", "-n", name) == begin == ok("gettime", "-p", two.pid)
        ok("setInterval", "-p", one.pid, 2500, 0)
        ok("progress", "-f", "-t", 0)
        ok("setInterval", "-n", name, 500, 0)
        # Without -t it is timeline 0.
        ok("progress")
        gone = float(ok("gettime", "-p", one.pid)) - float(begin)
        assert gone == pytest.approx(0.003, abs=1.1e-6)
        assert ok("gettime", "-p", two.pid) == begin, "no interval"
        ok("reset")
        status = lorentz.json_of("experiment", "status", "timekeeper")
        assert [member["tdf"] for member in status["containers"]] == [2, 3]
        ok("stopExperiment")
        assert works(one.pid) and works(two.pid)


def test_an_experiment_that_runs_by_itself(ok):
    with spin() as program:
        ok("addToExperiment", "-p", program.pid)
        ok("synchronizeAndFreeze")
        ok("startExperiment")
        assert works(program.pid)
        ok("stopExperiment")


def test_freezing(ok):
    with spin() as program:
        ok("freeze", "-r", program.pid)
        assert stands(program.pid)
        before = ok("gettime", "-p", program.pid)
        assert ok("gettime", "-p", program.pid) == before
        ok("unfreeze", "-r", program.pid)
        assert works(program.pid)


def test_leaping(ok):
    with spin() as program:
        ok("dilate", "-p", program.pid, 1)
        ok("freeze", program.pid)
        before = float(ok("gettime", "-p", program.pid))
        ok("leap", program.pid, 5_000_000)
        assert float(ok("gettime", "-p", program.pid)) - before == pytest.approx(5, abs=2e-6)
        ok("unfreeze", program.pid)
        assert works(program.pid)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("dilate -p 0 2", "'0' for '-p <PID>': expected the number of a running process"),
        ("dilate -p 4194304 2", "4194304: no such process"),
        ("dilate -p 1 1e9", "expected 0, or a number from 1/1000000 to 1000000"),
        ("dilate -p 1 -n x 2", "cannot be used with"),
        ("dilate 2", "-p <PID>|-n <NAME>"),
        ("freeze x", "'x' for '<PID>': expected the number of a running process"),
        ("gettime -n no-such-container", "no-such-container: no such container"),
        ("setInterval -p 1 0 0", "expected a whole number of microseconds above 0"),
        ("setInterval -p 1 1000 0", "addToExp comes first"),
        ("progress -t -1", "expected a whole number of 0 or more"),
        ("progress -t 0", "addToExp comes first"),
        ("stopExperiment", "addToExp comes first"),
        ("stopExperiment now", "unexpected argument 'now'"),
    ],
)
def test_wrong_input_is_one_line(call, words, says):
    done = call(*words.split())
    assert done.returncode == 2
    assert done.stderr.startswith("timekeeper: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
