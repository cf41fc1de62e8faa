"""Prints times of btrfs by ioctl, s: `unshare --mount subvolumes.py FOLDER`.

For each line of standard input it makes a subvolume and replaces the device, and prints a line of
the three times. The images lie in FOLDER.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

GET_SUBVOL_INFO, SET_RECEIVED_SUBVOL, DEV_REPLACE = 0x81F8943C, 0xC0C89425, 0xCA289435
#: The least file system of btrfs, bytes.
IMAGE = 128 << 20


def run(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return done.stdout.strip()


def image(name: str) -> Path:
    path = Path(sys.argv[1]) / name
    with path.open("wb") as file:
        file.truncate(IMAGE)
    return path


def passed(path: Path, request: int, argument: bytes, at: int) -> int:
    """A number of the structure that an ioctl fills."""
    fd = os.open(path, os.O_RDONLY)
    try:
        buffer = bytearray(argument)
        fcntl.ioctl(fd, request, buffer)
        return struct.unpack_from("q", buffer, at)[0]
    finally:
        os.close(fd)


class Device:
    """A loop device that the kernel frees when nobody has it open any more."""

    def __init__(self, name: str) -> None:
        self.path = run("losetup", "--find", "--show", image(name))
        self._fd = os.open(self.path, os.O_RDONLY)
        run("losetup", "--detach", self.path)

    def close(self) -> None:
        os.close(self._fd)


class Mounted:
    """A file system, in the mount namespace of this process."""

    def __init__(self, place: Path) -> None:
        self._place, self._made = place, 0
        place.mkdir()
        self._device = Device("0")
        run("mkfs.btrfs", "--quiet", self._device.path)
        run("mount", self._device.path, place)

    def times(self) -> list[int]:
        """When the kernel made a subvolume, noted its receipt, and began to move the file system
        to another device, s."""
        self._made += 1
        path = self._place / f"subvolume-{self._made}"
        run("btrfs", "subvolume", "create", path)
        target = Device(str(self._made))
        devices = (self._device.path, target.path)
        run("btrfs", "replace", "start", "-f", "-B", *devices, self._place)
        self._device.close()
        self._device = target
        return [
            passed(path, GET_SUBVOL_INFO, bytes(504), OTIME),
            passed(path, SET_RECEIVED_SUBVOL, bytes(200), RTIME),
            passed(self._place, DEV_REPLACE, struct.pack("Q", 1) + bytes(2592), TIME_STARTED),
        ]


#: Where the structures of the ioctls have these times.
OTIME, RTIME, TIME_STARTED = 392, 48, 32


def main() -> None:
    mounted = Mounted(Path(sys.argv[1]) / "mounted")
    for _ in sys.stdin:
        print(*mounted.times(), flush=True)


if __name__ == "__main__":
    main()
