"""How all_faces.py reads a face: the list of all faces, and system calls by their names."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
LONG = 1_000_000
libc = ctypes.CDLL(None, use_errno=True)
#: Name, kind, and two looks: the function gives a value at each `next`.
FACES: list[tuple[str, str, Callable[[], Iterator[float]]]] = []


def face(name: str, tells: str) -> Callable:
    def note(look: Callable[[], Iterator[float]]) -> Callable:
        FACES.append((name, tells, look))
        return look

    return note


def each(name: str, tells: str, look: Callable[[], float]) -> None:
    """A face that is read by one call without anything to prepare."""

    def looks() -> Iterator[float]:
        yield look()
        yield look()

    face(name, tells)(looks)


def number(syscall: str) -> int:
    text = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    return int(text.split(f"#define __NR_{syscall} ")[1].split()[0])


def call(syscall: str, *arguments: object) -> int:
    result = libc.syscall(number(syscall), *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def filled(syscall: str, form: str, *before: object, size: int = 512) -> tuple:
    """Returns the value that a call writes to its last argument."""
    buffer = ctypes.create_string_buffer(size)
    call(syscall, *before, buffer)
    return struct.unpack_from(form, buffer)


def words(path: str) -> list[str]:
    return Path(path).read_text().split()
