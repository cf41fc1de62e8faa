"""`make install` and `make uninstall`: which files they put below a prefix, and remove.

The files of target/release are stand-ins, so most of these tests need no build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.build import REPO

COMMANDS = (
    *("lorentz", "lorentz-runtime", "lorentz-cni", "lorentz-probe", "timekeeper"),
    *("lorentz-web", "lorentz-agent"),
)
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
PKG_CONFIG = {"lorentz": "ffi", "lorentz_timers": "timers", "timekeeper": "timekeeper"}
#: A command line for the stand-ins, and the man pages that belong to it.
INTERFACE = """\
lorentz --help
lorentz run
lorentz run --at <TIME>
lorentz run [COMMAND]...
lorentz receive
lorentz receive --json
lorentz link
lorentz link add
lorentz web
lorentz cluster
lorentz cluster ls
lorentz generate
lorentz generate man
lorentz generate man <DIR>
"""
VERBS = ("", "-run", "-link", "-link-add", "-web", "-cluster", "-cluster-ls")
OTHER_PAGES = {
    "lorentz-faketime.1": "crates/cli/man",
    "lorentz.yaml.5": "target/release/generated/man",
    "lorentz-runtime.8": "crates/runtime/man",
    "lorentz-cni.8": "crates/cni/man",
    "lorentz-probe.1": "crates/study/man",
    "timekeeper.1": "crates/timekeeper/man",
}
COMPLETIONS = {
    "share/bash-completion/completions/lorentz": "bash",
    "share/zsh/site-functions/_lorentz": "zsh",
    "share/fish/vendor_completions.d/lorentz.fish": "fish",
}
DOCUMENTATION = (
    *("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"),
    *("docs/index.md", "docs/how-to/containers.md", "examples/service/service.py"),
)

#: Path below the prefix -> the file of the repository.
FILES = {
    **{f"bin/{name}": f"target/release/{name}" for name in COMMANDS},
    **{f"include/{name}": f"{folder}/{name}" for name, folder in HEADERS.items()},
    **{f"lib/lib{name}.a": f"target/release/lib{name}.a" for name in LIBRARIES},
    **{f"lib/lib{name}.so.0": f"target/release/lib{name}.so" for name in LIBRARIES},
    "lib/libtimekeeper.a": "target/release/libtimekeeper.a",
    "lib/libtimekeeper.so.1": "target/release/libtimekeeper.so",
    "lib/libtimekeeper.so.0": "target/release/libtimekeeper_float.so",
    f"lib/lorentz/{PRELOAD}": f"target/release/{PRELOAD}",
    **{
        f"share/man/man1/lorentz{verb}.1": f"target/release/generated/man/lorentz{verb}.1"
        for verb in VERBS
    },
    **{f"share/man/man{name[-1]}/{name}": f"{at}/{name}" for name, at in OTHER_PAGES.items()},
    **{path: f"target/release/generated/lorentz.{shell}" for path, shell in COMPLETIONS.items()},
    **{f"share/doc/lorentz/{name}": name for name in DOCUMENTATION},
    "share/doc/lorentz/NOTICE": "target/release/generated/NOTICE",
}
#: The same for files with the prefix in their text.
TEMPLATES = {
    f"lib/pkgconfig/{name}.pc": f"crates/{crate}/pkgconfig/{name}.pc.in"
    for name, crate in PKG_CONFIG.items()
}
#: Programs that `make web` builds, each a package of its own.
SERVERS = {
    "lorentz-web": {"bin/lorentz-web", "share/man/man1/lorentz-web.1"},
    "lorentz-agent": {
        "bin/lorentz-agent",
        "bin/kubectl-lorentz",
        *(f"share/man/man1/{name}.1" for name in ("lorentz-agent", "kubectl-lorentz")),
        *(f"share/man/man1/lorentz-cluster{verb}.1" for verb in ("", "-ls")),
    },
}
#: Path below the prefix -> the text of the link.
LINKS = {
    "bin/lorentz-faketime": "lorentz",
    "bin/kubectl-lorentz": "lorentz-agent",
    **{f"bin/timekeeper-{name}": "timekeeper" for name in UTILITIES},
    **{f"lib/lib{name}.so": f"lib{name}.so.0" for name in LIBRARIES},
    "lib/libtimekeeper.so": "libtimekeeper.so.1",
    "lib/cni/lorentz-cni": "../../bin/lorentz-cni",
    **{f"share/man/man1/timekeeper-{name}.1": "timekeeper.1" for name in UTILITIES},
    "share/man/man1/lorentz-agent.1": "lorentz-cluster.1",
    "share/man/man1/kubectl-lorentz.1": "lorentz-cluster.1",
}
ALL = {*FILES, *TEMPLATES, *LINKS}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A copy of what the script needs, after a build whose files each contain their own path."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(REPO / "scripts", root / "scripts")
    for source in FILES.values():
        target = root / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source)
    for source in (*TEMPLATES.values(), "Cargo.toml"):
        (root / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / source, root / source)
    interface = root / "crates/cli/src/args/interface.txt"
    interface.parent.mkdir(parents=True)
    interface.write_text(INTERFACE)
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
    assert below(tmp_path / "usr") == ALL
    for path, source in FILES.items():
        installed = tmp_path / "usr" / path
        assert installed.read_text() == source
        assert mode(installed) == (0o755 if path.startswith("bin/") else 0o644), path
    for path in TEMPLATES:
        text = (tmp_path / "usr" / path).read_text()
        assert "prefix=/usr\nlibdir=${prefix}/lib\n" in text and "@" not in text
    for path, text in LINKS.items():
        link = tmp_path / "usr" / path
        assert str(link.readlink()) == text
        assert link.exists(), f"{path} leads nowhere"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_installed_where_it_was_built(name, script, repository, tmp_path):
    server = repository / FILES[f"bin/{name}"]
    server.unlink()
    script()
    assert below(tmp_path / "usr") == ALL - SERVERS[name]
    server.write_text(FILES[f"bin/{name}"])


def test_the_prefix_is_usr_local_where_none_is_given(script, tmp_path):
    script(prefix=None)
    assert below(tmp_path) == {f"usr/local/{path}" for path in ALL}


def test_an_installation_is_replaced(script, tmp_path):
    script()
    (tmp_path / "usr/bin/lorentz").write_text("an older one")
    script()
    assert (tmp_path / "usr/bin/lorentz").read_text() == FILES["bin/lorentz"]
    assert below(tmp_path / "usr") == ALL


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
    assert not (tmp_path / "usr/share/doc/lorentz").exists()
    assert not (tmp_path / "usr/lib/lorentz").exists()


def test_uninstall_of_nothing_is_no_error(script, tmp_path):
    script("--uninstall")
    assert below(tmp_path) == set()


def test_list_prints_the_paths(script, tmp_path):
    assert set(script("--list").split()) == {f"{tmp_path}/usr/{path}" for path in ALL}
    assert below(tmp_path) == set()


def test_packages_have_each_file_once(script, tmp_path):
    names = ("lorentz", *SERVERS, "liblorentz0", "liblorentz-dev", "licences")
    found = []
    for name in names:
        script("--package", name, destdir=str(tmp_path / name))
        found += below(tmp_path / name / "usr")
    assert sorted(found) == sorted(ALL)
    for name, files in SERVERS.items():
        assert below(tmp_path / name / "usr") == files


def test_each_man_page_of_the_command_is_installed(tmp_path):
    """The list that the script makes of the stored interface, and the command's own."""
    command = [lorentz.session.binary, "generate", "man", tmp_path]
    subprocess.run(command, check=True, timeout=60)
    own = {path.name for path in tmp_path.iterdir()}
    listed = subprocess.run(
        [REPO / "scripts/install", "--list"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    pages = {Path(path).name for path in listed if re.search(r"/man/man[15]/lorentz", path)}
    # Where `make web` has not built them.
    of_servers = {page for page in own if re.match(r"lorentz-(web|cluster)\b", page)}
    by_hand = {"lorentz-probe.1", "lorentz-faketime.1"}
    assert (pages | of_servers) - {"lorentz-agent.1"} == own | by_hand


def test_a_program_finds_the_libraries_by_pkg_config(tmp_path):
    needs.tool("pkg-config")
    env = {**os.environ, "DESTDIR": "", "PREFIX": str(tmp_path / "at")}
    for package in ("liblorentz0", "liblorentz-dev"):
        subprocess.run([REPO / "scripts/install", "--package", package], env=env, check=True)
    env["PKG_CONFIG_PATH"] = str(tmp_path / "at/lib/pkgconfig")
    for name, header in (
        ("lorentz", "lorentz.h"),
        ("lorentz_timers", "lorentz_timers.h"),
        ("timekeeper", "timekeeper.h"),
    ):
        program = tmp_path / name
        source = f"#include <{header}>\nint main(void) {{ return 0; }}\n"
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", name],
            env=env, capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        subprocess.run(
            ["cc", "-x", "c", "-", "-x", "none", "-o", program, "-Wl,--no-as-needed", *flags],
            input=source, text=True, check=True,
        )  # fmt: skip
        library_path = {**env, "LD_LIBRARY_PATH": str(tmp_path / "at/lib")}
        subprocess.run([program], env=library_path, check=True, timeout=60)


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
