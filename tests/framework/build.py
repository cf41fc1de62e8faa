"""Builds the test programs, once for each content, under build/tests/."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from framework.needs import tool

REPO = Path(__file__).resolve().parents[2]
PROGRAMS = REPO / "tests" / "programs"
OUTPUT = REPO / "build" / "tests"
TIMEOUT = 600

#: Ways to link C programs. Static ones read the vDSO themselves; musl does so in its own way.
C_FLAVOURS = ("dynamic", "static", "musl")


def c(name: str, flavour: str = "dynamic") -> Path:
    """The C program programs/NAME.c."""
    compiler = ["musl-gcc", "-static"] if flavour == "musl" else ["gcc"]
    if flavour == "static":
        compiler.append("-static")
    tool(compiler[0])
    source = PROGRAMS / f"{name}.c"
    command = [*compiler, "-O1", "-g", "-Wall", "-Wextra", "-pthread", str(source)]
    return _built(
        f"{Path(name).name}-{flavour}",
        [source, PROGRAMS / "lt.h", *sorted(source.parent.glob("*.h"))],
        command,
        lambda out: _run([*command, "-o", str(out)]),
    )


def cpp(name: str) -> Path:
    """The C++ program programs/NAME.cpp."""
    tool("g++")
    source = PROGRAMS / f"{name}.cpp"
    command = ["g++", "-O1", "-g", "-Wall", "-Wextra", "-pthread", str(source)]
    return _built(
        f"{Path(name).name}-cpp", [source], command, lambda out: _run([*command, "-o", str(out)])
    )


def i386(name: str) -> Path:
    """The 32-bit program programs/NAME.S, which uses no library."""
    tool("as")
    source = PROGRAMS / f"{name}.S"

    def build(out: Path) -> None:
        obj = out.with_suffix(".o")
        _run(["as", "--32", "-o", str(obj), str(source)])
        _run(["ld", "-m", "elf_i386", "-o", str(out), str(obj)])
        obj.unlink()

    return _built(f"{Path(name).name}-i386", [source], ["as", "ld"], build)


def go(name: str) -> Path:
    """The static Go program in the directory programs/NAME."""
    tool("go")
    folder = PROGRAMS / name
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath", "GOTOOLCHAIN": "local"}
    return _built(
        f"{Path(name).name}-go",
        sorted(folder.iterdir()),
        ["go", "build"],
        lambda out: _run(["go", "build", "-o", str(out), "."], cwd=folder, env=env),
    )


def java(name: str) -> list[str]:
    """The command that runs the class of programs/NAME.java."""
    tool("javac")
    source = PROGRAMS / f"{name}.java"

    def build(out: Path) -> None:
        _run(["javac", "-d", str(out), str(source)])

    classes = _built(f"{Path(name).name}-java", [source], ["javac"], build)
    java_binary = Path(shutil.which("java") or "java").resolve()
    return [str(java_binary), "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", str(classes)] + [
        Path(name).name
    ]


def cargo(name: str, binary: str) -> Path:
    """The Rust program in the Cargo project programs/NAME."""
    tool("cargo")
    folder = PROGRAMS / name
    target = OUTPUT / "cargo"
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(target)]

    def build(out: Path) -> None:
        try:
            _run([*command, "--offline"], cwd=folder)
        except BuildFailed:
            _run(command, cwd=folder)
        shutil.copy2(target / "release" / binary, out)

    sources = [folder / "Cargo.toml", folder / "Cargo.lock", *sorted((folder / "src").iterdir())]
    return _built(f"{binary}-cargo", sources, ["cargo"], build)


class BuildFailed(Exception):
    """A test program does not compile; the text is the compiler's."""


def _run(command: list[str], **options: object) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False, **options
    )
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


@functools.cache
def _version(compiler: str) -> bytes:
    flag = "version" if compiler == "go" else "--version"
    return subprocess.run([compiler, flag], capture_output=True, timeout=60, check=False).stdout


def _built(
    name: str, sources: Iterable[Path], command: list[str], build: Callable[[Path], None]
) -> Path:
    """Returns the path of `name`, built from `sources` if it does not exist yet."""
    digest = hashlib.sha256(" ".join(command).replace(str(REPO), "").encode())
    digest.update(_version(command[0]))
    for source in sources:
        digest.update(source.read_bytes())
    folder = OUTPUT / digest.hexdigest()[:16]
    result = folder / name
    if result.exists():
        return result
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (OUTPUT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two sessions may run at once
        if result.exists():
            return result
        half = Path(tempfile.mkdtemp(prefix=".half-", dir=OUTPUT))
        try:
            build(half / name)
            half.chmod(0o755)
            half.rename(folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return result


def published(source: Path, *flags: str) -> Path:
    """A C program for TimeKeeper, linked to libtimekeeper. `flags` are of the compiler."""
    tool("gcc")
    headers = REPO / "crates" / "timekeeper" / "include"
    libraries = REPO / "target" / "release"
    # From standard input, so that a header beside the program does not come before ours.
    command = ["gcc", "-O1", "-g", "-Wall", "-Wextra", *flags, "-pthread", "-xc", "-"]
    command += [f"-I{headers}", f"-L{libraries}", "-ltimekeeper", f"-Wl,-rpath,{libraries}"]
    text = source.read_text(errors="replace")
    return _built(
        f"{source.stem}-published",
        [source, *sorted(headers.iterdir())],
        command,
        lambda out: _run([*command, "-o", str(out)], input=text, cwd=headers),
    )


def linked(name: str, library: str) -> Path:
    """The C program programs/NAME.c, linked to liblorentz ("lorentz") or libtimekeeper as it was
    built; "timekeeper.so.0" is the interface with dilations of type float."""
    tool("gcc")
    name_of_library, _, version = library.partition(".")
    crate = REPO / "crates" / {"lorentz": "ffi", "timekeeper": "timekeeper"}[name_of_library]
    libraries = REPO / "target" / "release"
    source = PROGRAMS / f"{name}.c"
    header = crate / "include" / f"{name_of_library}.h"
    link = f"-l:lib{library}" if version else f"-l{library}"
    command = ["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", str(source)]
    command += [f"-I{header.parent}", f"-L{libraries}", link, f"-Wl,-rpath,{libraries}"]
    return _built(
        f"{Path(name).name}-linked",
        [source, header],
        command,
        lambda out: _run([*command, "-o", str(out)]),
    )
