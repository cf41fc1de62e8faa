"""Files of docs/limits.md show inside what they show the host, at another date and rate.

The test reads each file before and after a program inside reads it. The program's numbers must lie
between, and those of a virtual face would not. `programs/faces/apart.py` makes what the files tell
of: connections, a bridge, a file system with an error.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import needs
from framework.all_faces import ALL, compared_files
from framework.build import PROGRAMS
from framework.face_files import SYS, pattern_of
from framework.kernel_headers import speaks_of_time
from framework.running import Inside, Native

sys.path.insert(0, str(PROGRAMS / "faces"))
from read_files import text_of  # noqa: E402 - it is no package

RATE = 10
DATE = "2038-01-19"
#: Of each row at most so many files.
MOST_FILES = 8
LOOKS = 8
#: Between two looks, s.
PAUSE = 0.3
#: The number that is a time, in a file with others.
NUMBERS = {
    "/proc/interrupts": r"LOC: +(\d+)",
    "/proc/softirqs": r"TIMER: +(\d+)",
    "/proc/loadavg": r"^(\S+) (\S+) (\S+)",
    "/proc/diskstats": r" \w+ (?:\d+ ){3}([1-9]\d*) (?:\d+ ){3}(\d+)",
    "/proc/schedstat": r"^cpu\d+ (?:\d+ ){6}(\d+) (\d+)",
    "/proc/pressure": r"total=(\d+)",
    "/proc/pressure/*": r"total=(\d+)",
    "/proc/irq/N/spurious": r"last_unhandled (\d+) ms",
    "/proc/fs/jbd2/*/info": r"(\d+)[mu]s",
    "/proc/fs/ext4/*/fc_info": r"(\d+)us",
    "/proc/fs/ext4/*/es_shrinker_info": r"(\d+) us",
    "/proc/fs/ext4/*/mb_stats": r"buddies_time_used: (\d+)",
    "/proc/fs/ext4/*/options": r"(?:commit|time)=(\d+)",
    "/proc/PID/mountstats": r"age:\s+(\d+)",
    "/proc/net/igmp": r" 1:(\w{8})",
    "/proc/net/igmp6": r"ff150000\w+ +\d+ \w+ (\d+)",
    "/proc/net/ip6_flowlabel": r"^12345 \d+ +\d+ +\d+ +(\d+) +(\d+)",
    "/proc/net/ip6t_hashlimit/*": r"^(\d+) ",
    "/proc/net/ipt_hashlimit/*": r"^(\d+) ",
    "/proc/net/nf_conntrack": r"tcp +6 (\d+)",
    "/proc/net/nf_conntrack_expect": r"^(\d+) ",
    "/proc/net/tcp6": r" 02:(\w{8})",
    "/proc/net/xt_recent/*": r"last_seen: (\d+)",
}
#: Numbers of these files are hexadecimal.
HEXADECIMAL = {"/proc/net/igmp", "/proc/net/tcp6"}


#: Any number that is not a part of a word.
ANY_NUMBER = r"(?<![\w.-])(-?\d+(?:\.\d+)?)(?!\w)"


def numbers(name: str, text: str | None) -> list[float]:
    """The times in a file of this row."""
    found = re.findall(NUMBERS.get(name, ANY_NUMBER), text or "", re.MULTILINE)
    words = [word for match in found for word in ([match] if isinstance(match, str) else match)]
    return [int(word, 16) if name in HEXADECIMAL else float(word) for word in words if word]


def files_below(*folders: str) -> Iterator[str]:
    for folder in folders:
        for place, _, names in os.walk(folder):
            yield from (f"{place}/{name}" for name in names)


class World:
    """A program inside that reads files, and the files."""

    def __init__(self, apart: Native) -> None:
        self.apart = apart
        self.errors = apart.line(ev="ready", timeout=60)["errors"]
        self.files = {name: self._files(name) for name in compared_files()}
        #: The text of each file before the program inside begins.
        self.first = {path: text_of(path) for paths in self.files.values() for path in paths}
        self._asked = 0
        self.inside: Inside | None = None

    def _files(self, name: str) -> list[str]:
        """The files of a row that are here and tell a number other than 0, but not all of many."""
        if name in SYS:
            found = self._files_of_sys.get(name, [])
        elif name == "/proc/sys":
            found = [path for path in files_below(name) if speaks_of_time(Path(path).name)]
        elif Path(name).is_dir():
            found = list(files_below(name))
        else:
            pattern = re.sub("^/proc/(PID|net)", self._of_process, name).replace("/N/", "/*/")
            paths = Path("/").glob(pattern.removeprefix("/"))
            found = [str(path) for path in paths if path.is_file()]
        telling = [path for path in sorted(found) if any(numbers(name, text_of(path)))]
        return telling[:: 1 + len(telling) // MOST_FILES]

    def _of_process(self, match: re.Match) -> str:
        return f"/proc/{self.apart.pid}" + {"PID": "", "net": "/net"}[match[1]]

    @functools.cached_property
    def _files_of_sys(self) -> dict[str, list[str]]:
        """The files of each row: those of the machine, and of the devices of `apart.py`."""
        found: dict[str, list[str]] = {}
        elsewhere = f"/proc/{self.apart.pid}/root"
        for path in files_below("/sys", f"{elsewhere}/sys/devices/virtual/net"):
            if speaks_of_time(Path(path).name):
                pattern = pattern_of(path.removeprefix(elsewhere), SYS)
                found.setdefault(pattern or "", []).append(path)
        return found

    def look(self, paths: list[str]) -> list[str | None]:
        """Returns the texts that the program inside reads."""
        self.inside.process.stdin.write(json.dumps(paths).encode() + b"\n")
        self.inside.process.stdin.flush()
        texts = self.inside.line(ev="texts", number=self._asked)["texts"]
        self._asked += 1
        return texts


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    needs.root()
    folder = tmp_path_factory.mktemp("file_system")
    programs = PROGRAMS / "faces"
    unshare = ["unshare", "--net", "--mount", sys.executable]
    with Native([*unshare, programs / "apart.py", folder], stdin=True) as apart:
        found = World(apart)
        command = [sys.executable, programs / "read_files.py"]
        with Inside(*command, rate=str(RATE), at=DATE, stdin=True) as found.inside:
            found.inside.line(ev="ready")
            yield found


def lies_between(before: list[float], seen: list[float], after: list[float]) -> bool:
    if not len(before) == len(seen) == len(after):
        return False
    return all(
        min(early, late) <= x <= max(early, late)
        for early, x, late in zip(before, seen, after, strict=True)
    )


def tells(first: list[float], before: list[float], after: list[float]) -> bool:
    """Whether a number would lie elsewhere if the file were virtual: if the rate multiplied or
    divided the number, or what it has gained since the program began."""
    for begun, early, late in zip(first, before, after, strict=False):
        gain = early - begun
        virtual = [early * RATE, early / RATE] + [begun + gain * RATE] * (gain != 0)
        least, most = min(early, late), max(early, late)
        if early != 0 and not any(least <= x <= most for x in virtual):
            return True
    return False


@pytest.mark.parametrize("name", compared_files())
def test_a_file_shows_inside_what_it_shows_the_host(world, name):
    paths = world.files[name]
    if not paths:
        row = ALL[name]
        assert row.needs, f"nothing to read, and the row says not why; not made: {world.errors}"
        pytest.skip(f"{name}: nothing to read here; it needs {row.needs}")
    for _ in range(LOOKS):
        before = [numbers(name, text_of(path)) for path in paths]
        seen = [numbers(name, text) for text in world.look(paths)]
        after = [numbers(name, text_of(path)) for path in paths]
        first = [numbers(name, world.first[path]) for path in paths]
        between = all(map(lies_between, before, seen, after))
        if between and any(map(tells, first, before, after)):
            return
        # The file changed to and fro meanwhile, or has not changed enough to tell.
        time.sleep(PAUSE)
    assert between, (paths, before, seen, after)
    raise AssertionError(f"too little changes to tell: {paths} {first} {before} {after}")
