"""Programs that go by file times, by turns inside and outside: nothing is built a second time
because of another date.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework import lorentz

DAY = 86_400.0
#: Clocks in which a file of three days ago shows the host's time.
CLOCKS = {
    "the host's date": (),
    "a day ahead": ("--offset", "1d"),
    "2038": ("--at", "2038-01-19"),
    "ten times as fast": ("--rate", "10"),
    "a day behind": ("--offset", "-1d"),
}
#: Clocks in which every file of the host shows the host's time.
AHEAD = {name: options for name, options in CLOCKS.items() if "-1d" not in options}
#: Clocks in which the host's date is to come.
BEHIND = {"a day behind": ("--offset", "-1d"), "1999": ("--at", "1999-12-31T23:00:00Z")}


class Turns:
    """Runs commands in a folder, natively or on a clock of their own."""

    def __init__(self, folder: Path, options: tuple[str, ...]) -> None:
        self.folder = folder
        self.options = options
        self.env = {
            "LC_ALL": "C",
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "",
            "CARGO_TERM_COLOR": "never",
        }

    def write(self, name: str, text: str, age: float = 3 * DAY) -> Path:
        """Writes a file that is `age` seconds old."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.age(name, age)
        return file

    def age(self, name: str, age: float = 3 * DAY) -> None:
        written = time.time() - age
        os.utime(self.folder / name, (written, written))

    def outside(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        return lorentz.call(
            "run",
            *self.options,
            "--",
            *command,
            cwd=self.folder,
            env={**lorentz.session.environment(), **self.env},
        )


@pytest.fixture(params=CLOCKS.values(), ids=CLOCKS.keys())
def turns(request, tmp_path) -> Turns:
    return Turns(tmp_path, request.param)


@pytest.fixture(params=AHEAD.values(), ids=AHEAD.keys())
def ahead(request, tmp_path) -> Turns:
    return Turns(tmp_path, request.param)


@pytest.fixture(params=BEHIND.values(), ids=BEHIND.keys())
def behind(request, tmp_path) -> Turns:
    return Turns(tmp_path, request.param)


def output(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that has to succeed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_python_compiles_a_module_once(turns):
    turns.write("greeting.py", "TEXT = 'hello'\n")
    command = [sys.executable, "-c", "import greeting; print(greeting.TEXT)"]
    output(turns.outside(*command))
    (compiled,) = turns.folder.glob("__pycache__/*.pyc")
    before = (compiled.read_bytes(), compiled.stat().st_ino, compiled.stat().st_mtime_ns)
    for run in (turns.inside, turns.outside, turns.inside):
        assert output(run(*command)) == "hello\n"
        after = (compiled.read_bytes(), compiled.stat().st_ino, compiled.stat().st_mtime_ns)
        assert after == before


def test_a_module_compiled_inside_fits_outside(turns):
    turns.write("greeting.py", "TEXT = 'hello'\n")
    command = [sys.executable, "-c", "import greeting"]
    output(turns.inside(*command))
    (compiled,) = turns.folder.glob("__pycache__/*.pyc")
    before = compiled.stat().st_mtime_ns
    output(turns.outside(*command))
    assert compiled.stat().st_mtime_ns == before


def test_python_sees_a_module_that_changed(turns):
    """The source changes outside, then inside; its length stays."""
    turns.write("greeting.py", "TEXT = 'one'\n")
    command = [sys.executable, "-c", "import greeting; print(greeting.TEXT)"]
    assert output(turns.inside(*command)) == "one\n"
    turns.write("greeting.py", "TEXT = 'two'\n", age=0)
    assert output(turns.inside(*command)) == "two\n"
    edit = "sleep 1.1; sed -i s/two/six/ greeting.py; exec " + sys.executable
    done = turns.inside("sh", "-c", f"{edit} -c 'import greeting; print(greeting.TEXT)'")
    assert output(done) == "six\n"
    assert output(turns.outside(*command)) == "six\n"


def test_make_builds_what_changed_and_nothing_else(turns):
    turns.write("Makefile", "out: in\n\tcp in out\n")
    turns.write("in", "1")
    up_to_date = ("make", "-q")
    output(turns.outside("make"))
    assert turns.inside(*up_to_date).returncode == 0
    # A change inside is seen inside, and what is built then is up to date outside.
    assert turns.inside("sh", "-c", "touch in && make -q").returncode == 1
    output(turns.inside("make"))
    assert turns.inside(*up_to_date).returncode == 0
    assert turns.outside(*up_to_date).returncode == 0
    # A change outside is seen inside.
    turns.write("in", "2", age=0)
    assert turns.inside(*up_to_date).returncode == 1
    output(turns.inside("make"))
    assert turns.inside(*up_to_date).returncode == 0
    assert turns.outside(*up_to_date).returncode == 0


def test_cargo_builds_what_changed_and_nothing_else(turns):
    turns.write("Cargo.toml", '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n')
    turns.write("src/main.rs", "fn main() {}\n")
    build = ("cargo", "build", "--offline")
    assert "Compiling" in output(turns.outside(*build))
    for run in (turns.inside, turns.outside, turns.inside):
        assert "Compiling" not in output(run(*build))
    assert "Compiling" in output(
        turns.inside("sh", "-c", "touch src/main.rs; cargo build --offline")
    )
    for run in (turns.inside, turns.outside, turns.inside):
        assert "Compiling" not in output(run(*build))
    turns.age("src/main.rs", 0)
    assert "Compiling" in output(turns.inside(*build))
    assert "Compiling" not in output(turns.outside(*build))


def test_rsync_copies_what_changed_and_nothing_else(turns):
    """With -t, a file whose time and size are the same is not copied."""
    turns.write("from/old", "1")
    turns.write("from/younger", "2", age=2.5 * DAY)
    turns.age("from")
    copy = ("rsync", "-rt", "--itemize-changes", "--modify-window=-1")
    output(turns.outside(*copy, "from/", "there/"))
    assert output(turns.inside(*copy, "from/", "there/")) == ""
    output(turns.inside(*copy, "from/", "back/"))
    assert output(turns.outside(*copy, "from/", "back/")) == ""
    assert output(turns.inside(*copy, "from/", "back/")) == ""


def test_tar_finds_no_difference(turns):
    turns.write("files/one", "1")
    turns.age("files")
    output(turns.outside("tar", "cf", "outside.tar", "files"))
    output(turns.inside("tar", "cf", "inside.tar", "files"))
    for run in (turns.inside, turns.outside):
        for archive in ("outside.tar", "inside.tar"):
            assert output(run("tar", "df", archive)) == ""


def test_git_does_not_look_again_at_what_it_knows(ahead):
    """`git status` writes the index anew where the times in it are not the files'. One of them is
    the time of the last change of the inode, which is always young here.
    """
    ahead.write("one", "1")
    output(ahead.outside("git", "init", "-q"))
    output(ahead.outside("git", "add", "one"))
    # An entry as young as the index is looked at again in any case.
    ahead.age(".git/index", -5)
    index = ahead.folder / ".git/index"
    before = index.read_bytes()
    for run in (ahead.outside, ahead.inside, ahead.outside):
        assert output(run("git", "status", "--short")) == "A  one\n"
        assert index.read_bytes() == before


def test_no_file_of_before_shows_a_time_to_come(behind):
    """make and tar warn of such files."""
    behind.write("Makefile", "out: in\n\tcp in out\n", age=20)
    behind.write("in", "1", age=5)
    behind.write("out", "0", age=10)
    script = "tar cf all.tar Makefile in out && tar xf all.tar && make -s && make -q"
    assert output(behind.inside("sh", "-c", script)) == ""
    assert (behind.folder / "out").read_text() == "1"


def test_files_keep_their_order_in_a_clock_that_is_behind(behind):
    ages = [2, 3_600, 5_000, DAY, 1.9 * DAY, 2.1 * DAY, 30 * DAY, 20_000 * DAY]
    for number, age in enumerate(ages):
        behind.write(f"file{number}", "", age=age)
    names = output(behind.inside("sh", "-c", "touch new; ls -t new file*")).split()
    assert names == ["new", *(f"file{number}" for number in range(len(ages)))]
