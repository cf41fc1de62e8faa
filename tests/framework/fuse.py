"""A file system of one file, served by this process, of which the kernel makes no overlay: it does
not answer statfs(2), which overlayfs asks of each layer.

It speaks the FUSE protocol (include/uapi/linux/fuse.h) at /dev/fuse.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framework import needs

#: The only file, and the nodes' numbers in the protocol.
FILE = b"note"
ROOT_ID, FILE_ID = 1, 2

#: Requests that have no answer: FORGET, INTERRUPT, BATCH_FORGET.
SILENT = (2, 36, 42)
#: Answers are valid for so many seconds.
VALID = 60


def attributes(node: int, size: int) -> bytes:
    """`struct fuse_attr`."""
    is_file = node == FILE_ID
    mode = stat.S_IFREG | 0o666 if is_file else stat.S_IFDIR | 0o777
    times = (0,) * 6
    blocks, links, owner, device, block_size = 1, 1, (0, 0), 0, 512
    numbers = (node, size if is_file else 0, blocks, *times, mode, links, *owner, device)
    return struct.pack("<QQQQQQIIIIIIIIII", *numbers, block_size, 0)


def answer(request: int, node: int, body: bytes, content: bytes) -> bytes:
    """The answer to a request for a node. Raises OSError where there is none."""
    match request:
        case 1 if node == ROOT_ID and body.rstrip(b"\0") == FILE:  # LOOKUP
            head = struct.pack("<QQQQII", FILE_ID, 0, VALID, VALID, 0, 0)
            return head + attributes(FILE_ID, len(content))
        case 1:
            raise OSError(errno.ENOENT, "no such file")
        case 3:  # GETATTR
            return struct.pack("<QII", VALID, 0, 0) + attributes(node, len(content))
        case 14 | 27:  # OPEN, OPENDIR
            return struct.pack("<QII", 0, 0, 0)
        case 15:  # READ
            _, offset, size = struct.unpack_from("<QQI", body)
            return content[offset : offset + size]
        case 18 | 25 | 29 | 34:  # RELEASE, FLUSH, RELEASEDIR, ACCESS
            return b""
        case 26:  # INIT: version 7.31 of the protocol, without options
            return struct.pack("<IIIIHHIIHH32x", 7, 31, 65536, 0, 8, 8, 65536, 1, 0, 0)
        case 28:  # READDIR
            _, offset, _ = struct.unpack_from("<QQI", body)
            entry = struct.pack("<QQII", FILE_ID, 1, len(FILE), stat.S_IFREG >> 12) + FILE
            return entry.ljust(32, b"\0") if offset == 0 else b""
    raise OSError(errno.ENOSYS, "no such request")


def serve(device: int, content: bytes) -> None:
    """Answers requests until the file system is unmounted."""
    while True:
        try:
            read = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue
        _, request, unique, node = struct.unpack_from("<IIQQ", read)
        if request in SILENT:
            continue
        try:
            status, body = 0, answer(request, node, read[40:], content)
        except OSError as error:
            status, body = -error.errno, b""
        os.write(device, struct.pack("<IiQ", 16 + len(body), status, unique) + body)


@contextmanager
def without_overlay(place: Path, content: str) -> Iterator[None]:
    """Mounts the file system, with `content` in the file `note`, at the directory `place`."""
    needs.root()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    words = ["mount", "-t", "fuse", "-o", options, "test", str(place)]
    server = threading.Thread(target=serve, args=(device, content.encode()), daemon=True)
    try:
        subprocess.run(words, check=True, timeout=30, pass_fds=(device,))
        server.start()
        yield
    finally:
        # Ends the server, if it runs.
        subprocess.run(["umount", "--lazy", place], check=False, timeout=30)
        if server.is_alive():
            server.join(timeout=30)
        os.close(device)
