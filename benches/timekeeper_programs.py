"""C programs for TimeKeeper in a directory: whether they compile with our headers, and link to
libtimekeeper."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labs import ROOT, TIMEOUT

HEADERS = ROOT / "crates/timekeeper/include"
LIBRARY = ROOT / "target/release"
INCLUDES = re.compile(
    r'^\s*#\s*include\s*[<"][^>"]*(TimeKeeper_functions|utility_functions|timekeeper)\.h[>"]',
    re.MULTILINE,
)
MAIN = re.compile(r"\bmain\s*\(")


@dataclass
class Program:
    """A C program, and what became of it."""

    path: Path
    is_compiled: bool = False
    is_linked: bool = False
    #: How many warnings -Wall -Wextra gives.
    warnings: int = 0
    #: The first error of the compiler or of the linker.
    error: str = ""


def find(folder: Path) -> Iterator[Program]:
    """Yields the programs below the folder that include one of TimeKeeper's headers."""
    for path in sorted(folder.rglob("*.c")):
        text = path.read_text(errors="replace") if path.is_file() else ""
        if INCLUDES.search(text) and MAIN.search(text):
            yield Program(path)


def build(program: Program, work: Path) -> None:
    """Compiles and links the program, in the directory `work`."""
    # A header beside the program would come before ours.
    source = work / "program.c"
    shutil.copyfile(program.path, source)
    compiled, linked = source.with_suffix(".o"), source.with_suffix("")
    warn = ("-Wall", "-Wextra", "-pthread", f"-I{HEADERS}", "-idirafter", program.path.parent)
    done = _cc(*warn, "-c", source, "-o", compiled)
    program.warnings = len(re.findall(r": warning: ", done.stderr))
    program.is_compiled = done.returncode == 0
    if program.is_compiled:
        # lxcStarter reads its commands by readline.
        more = ["-lreadline"] if "readline/readline.h" in source.read_text(errors="replace") else []
        flags = ("-pthread", f"-L{LIBRARY}", "-ltimekeeper", *more, "-lm")
        done = _cc(compiled, *flags, "-o", linked)
        program.is_linked = done.returncode == 0
    if done.returncode != 0:
        program.error = _first_error(done.stderr).replace(f"{source}:", "")


def _cc(*words: object) -> subprocess.CompletedProcess:
    command = ["gcc", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def _first_error(text: str) -> str:
    lines = text.strip().splitlines()
    signs = ("error:", "undefined reference", "cannot find")
    return next((line for line in lines if any(sign in line for sign in signs)), *lines[-1:])
