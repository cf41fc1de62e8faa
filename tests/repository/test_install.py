"""`make install` and `make uninstall`: which files they put below a prefix, and remove.

The files of target/release are stand-ins, so these tests need no build.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

COMMANDS = ("lorentz", "lorentz-runtime", "lorentz-cni", "lorentz-probe", "timekeeper")
LIBRARIES = ("lorentz", "lorentz_timers")
HEADERS = {
    "lorentz.h": "crates/ffi/include",
    "timekeeper.h": "crates/timekeeper/include",
    "TimeKeeper_functions.h": "crates/timekeeper/include",
    "TimeKeeper_definitions.h": "crates/timekeeper/include",
    "utility_functions.h": "crates/timekeeper/include",
    "lorentz_timers.h": "crates/timers/include",
    "HighPerTimer.h": "crates/timers/include",
}
UTILITIES = (
    *("dilate", "freeze", "unfreeze", "leap", "gettime", "addToExperiment"),
    *(
        "synchronizeAndFreeze",
        "startExperiment",
        "setInterval",
        "progress",
        "reset",
        "stopExperiment",
    ),
)
PRELOAD = "liblorentz_timers_preload.so"

#: Path below the prefix -> the file of the repository.
FILES = {
    **{f"bin/{name}": f"target/release/{name}" for name in COMMANDS},
    **{f"include/{name}": f"{folder}/{name}" for name, folder in HEADERS.items()},
    **{f"lib/lib{name}.a": f"target/release/lib{name}.a" for name in LIBRARIES},
    **{f"lib/lib{name}.so.0": f"target/release/lib{name}.so" for name in LIBRARIES},
    "lib/libtimekeeper.a": "target/release/libtimekeeper.a",
    "lib/libtimekeeper.so.1": "target/release/libtimekeeper.so",
    "lib/libtimekeeper.so.0": "target/release/libtimekeeper_float.so",
    f"lib/{PRELOAD}": f"target/release/{PRELOAD}",
}
#: Path below the prefix -> the text of the link.
LINKS = {
    **{f"bin/timekeeper-{name}": "timekeeper" for name in UTILITIES},
    **{f"lib/lib{name}.so": f"lib{name}.so.0" for name in LIBRARIES},
    "lib/libtimekeeper.so": "libtimekeeper.so.1",
    "lib/cni/lorentz-cni": "../../bin/lorentz-cni",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A copy of what the script needs, after a build whose files each contain their own path."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(REPO / "scripts", root / "scripts")
    for source in FILES.values():
        target = root / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source)
    return root


@pytest.fixture
def script(repository, tmp_path):
    """Calls the script with DESTDIR and PREFIX; returns what it printed."""

    def script(*words: str, destdir: str = str(tmp_path), prefix: str | None = "/usr") -> str:
        env = {key: value for key, value in os.environ.items() if key not in ("PREFIX", "DESTDIR")}
        env |= {"DESTDIR": destdir} | ({} if prefix is None else {"PREFIX": prefix})
        command = [repository / "scripts/install", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return script


def below(root: Path) -> set[str]:
    """Every file and link below a directory."""
    paths = (path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(root)) for path in paths}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_is_installed_and_nothing_else(script, tmp_path):
    script()
    assert below(tmp_path / "usr") == {*FILES, *LINKS}
    for path, source in FILES.items():
        installed = tmp_path / "usr" / path
        assert installed.read_text() == source
        readable = path.startswith("include/") or path.endswith(".a")
        assert mode(installed) == (0o644 if readable else 0o755), path
    for path, text in LINKS.items():
        link = tmp_path / "usr" / path
        assert str(link.readlink()) == text
        assert link.exists(), f"{path} leads nowhere"


def test_the_prefix_is_usr_local_where_none_is_given(script, tmp_path):
    script(prefix=None)
    assert below(tmp_path) == {f"usr/local/{path}" for path in (*FILES, *LINKS)}


def test_an_installation_is_replaced(script, tmp_path):
    script()
    (tmp_path / "usr/bin/lorentz").write_text("an older one")
    script()
    assert (tmp_path / "usr/bin/lorentz").read_text() == FILES["bin/lorentz"]
    assert below(tmp_path / "usr") == {*FILES, *LINKS}


def test_uninstall_removes_every_file_and_none_of_others(script, tmp_path):
    script()
    others = [tmp_path / "usr/bin/other", tmp_path / "usr/lib/cni/bridge"]
    for other in others:
        other.write_text("")
    script("--uninstall")
    assert below(tmp_path / "usr") == {"bin/other", "lib/cni/bridge"}
    others[1].unlink()
    script()
    script("--uninstall")
    assert not (tmp_path / "usr/lib/cni").exists()


def test_uninstall_of_nothing_is_no_error(script, tmp_path):
    script("--uninstall")
    assert below(tmp_path) == set()


def test_list_prints_the_paths(script, tmp_path):
    assert set(script("--list").split()) == {f"{tmp_path}/usr/{path}" for path in (*FILES, *LINKS)}
    assert below(tmp_path) == set()


def test_every_command_and_library_of_the_workspace_is_installed():
    """A new binary or C library needs an entry here and in scripts/install."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]
    printed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    commands, libraries = set(), set()
    for package in json.loads(printed)["packages"]:
        for target in package["targets"]:
            if "bin" in target["kind"]:
                commands.add(target["name"])
            if "cdylib" in target["kind"] and package["name"] != "lorentz-python":
                libraries.add(target["name"])
    assert commands == set(COMMANDS)
    others = {"timekeeper", "timekeeper_float", "lorentz_timers_preload"}
    assert libraries == {*LIBRARIES, *others}


def test_every_header_of_the_crates_is_installed():
    headers = {str(path.relative_to(REPO)) for path in REPO.glob("crates/*/include/*.h")}
    assert headers == {f"{folder}/{name}" for name, folder in HEADERS.items()}
