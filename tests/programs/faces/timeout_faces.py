"""Waits with a timeout that the kernel keeps: of sockets, terminals, keys, processor time.

Each face is a `wait`: the length of the wait by the program's clock, over the length asked for.
For timeouts in real time it is the inverse. All wait at once, each in a thread of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import mmap
import os
import pty
import resource
import select
import signal
import socket
import struct
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from looks import call, face

#: A wait by virtual time, s.
LENGTH = 10
#: A wait by real time, s: at rate 10 it takes ten times as long by the program's clock.
REAL_LENGTH = 1
#: One for timeouts that the kernel rounds.
ROUND_LENGTH = 3
WAITS: dict[str, Callable[[], float]] = {}


def wait(name: str) -> Callable:
    """A function that makes a wait, and returns its length over the length asked for."""

    def note(function: Callable[[], float]) -> Callable:
        WAITS[name] = function

        @face(name, "wait")
        def looks() -> Iterator[float]:
            found = ratios()[name].result()
            yield found
            yield found

        return function

    return note


@functools.cache
def ratios() -> dict:
    pool = ThreadPoolExecutor(len(WAITS))
    return {name: pool.submit(function) for name, function in WAITS.items()}


def taken(blocks: Callable[[], object], length: float) -> float:
    begun = time.monotonic()
    with contextlib.suppress(BlockingIOError):
        blocks()
    return (time.monotonic() - begun) / length


def host_ratio(blocks: Callable[[], object], length: float) -> float:
    """The inverse: 1 / rate for a wait by real time, as for a clock that shows real time."""
    return 1 / taken(blocks, length)


def of_child(run: Callable[[int], None]) -> float:
    """Runs a function in a child process. Returns the number that it writes to its argument."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        run(writer)
        os._exit(0)
    number = struct.unpack("d", os.read(reader, 8))[0]
    os.waitpid(child, 0)
    return number


# ------------------------------------------------------------------------ timeouts of sockets


def pair(option: int, seconds: int, full: bool = False) -> socket.socket:
    """A socket with a timeout, to which nothing comes, and which takes nothing if it is full."""
    near, far = socket.socketpair()
    KEPT.append(far)
    if full:
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(4096))
        near.setblocking(True)
    near.setsockopt(socket.SOL_SOCKET, option, struct.pack("qq", seconds, 0))
    return near


#: Descriptors that have to stay open.
KEPT: list[object] = []


class Vector:
    """A struct iovec of one byte, and the struct msghdr with it."""

    def __init__(self) -> None:
        self.byte = ctypes.create_string_buffer(1)
        self.vector = (ctypes.c_uint64 * 2)(ctypes.addressof(self.byte), 1)
        # Two of them in a row are as long as a struct mmsghdr.
        self.header = (ctypes.c_uint64 * 16)(0, 0, ctypes.addressof(self.vector), 1)


RECEIVES: dict[str, Callable[[int, Vector], object]] = {
    "read": lambda fd, at: call("read", fd, at.byte, 1),
    "readv": lambda fd, at: call("readv", fd, at.vector, 1),
    "recvfrom": lambda fd, at: call("recvfrom", fd, at.byte, 1, 0, None, None),
    "recvmsg": lambda fd, at: call("recvmsg", fd, at.header, 0),
}
SENDS: dict[str, Callable[[int, Vector], object]] = {
    "write": lambda fd, at: call("write", fd, at.byte, 1),
    "writev": lambda fd, at: call("writev", fd, at.vector, 1),
    "sendto": lambda fd, at: call("sendto", fd, at.byte, 1, 0, None, 0),
    "sendmsg": lambda fd, at: call("sendmsg", fd, at.header, 0),
}
for name, function in {**RECEIVES, **SENDS}.items():

    @wait(name)
    def blocks(name: str = name, function: Callable = function) -> float:
        option = socket.SO_RCVTIMEO if name in RECEIVES else socket.SO_SNDTIMEO
        near = pair(option, LENGTH, full=name in SENDS)
        return taken(lambda: function(near.fileno(), Vector()), LENGTH)


for name in ("accept", "accept4"):

    @wait(name)
    def accepts(name: str = name) -> float:
        server = socket.create_server(("127.0.0.1", 0))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", LENGTH, 0))
        return taken(lambda: call(name, server.fileno(), None, None, 0), LENGTH)


@wait("connect")
def connect() -> float:
    """To a server whose queue is full."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(b"\0lorentz-faces-%d" % os.getpid())
    server.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(server.getsockname())
    late = socket.socket(socket.AF_UNIX)
    late.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", LENGTH, 0))
    address = struct.pack("H", socket.AF_UNIX) + server.getsockname()
    return taken(lambda: call("connect", late.fileno(), address, len(address)), LENGTH)


# ------------------------------------------------------------------------ out of changes' reach


@wait("sendmmsg")
def sendmmsg() -> float:
    near = pair(socket.SO_SNDTIMEO, LENGTH, full=True)
    vector = Vector()
    return taken(lambda: call("sendmmsg", near.fileno(), vector.header, 1, 0), LENGTH)


@wait("sendfile")
def sendfile() -> float:
    near = pair(socket.SO_SNDTIMEO, LENGTH, full=True)
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
        source = (near.fileno(), file.fileno(), ctypes.byref(ctypes.c_int64(0)), 1)
        return taken(lambda: call("sendfile", *source), LENGTH)


@wait("splice")
def splice() -> float:
    near = pair(socket.SO_RCVTIMEO, LENGTH)
    _, writer = os.pipe()
    return taken(lambda: call("splice", near.fileno(), None, writer, None, 1, 0), LENGTH)


# ------------------------------------------------------------------------ of TCP


def stuck() -> socket.socket:
    """A connection by TCP whose peer takes nothing more, with data left to send."""
    server = socket.socket()
    # The kernel does not enlarge a buffer whose length was set.
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    client = socket.socket()
    # Many times what the peer can take: a buffer that is full holds data that are left.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    client.connect(server.getsockname())
    KEPT.extend((server, server.accept()[0]))
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client.send(bytes(1 << 16))
    client.setblocking(True)
    return client


@wait("SO_LINGER")
def linger() -> float:
    """Measures close, with data left. Other threads start processes, and close waits only where no
    other process has the socket: it is made in a process of its own."""

    def measure(writer: int) -> None:
        client = stuck()
        option = struct.pack("ii", 1, REAL_LENGTH)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        os.write(writer, struct.pack("d", host_ratio(client.close, REAL_LENGTH)))

    return of_child(measure)


@wait("TCP_USER_TIMEOUT")
def user_timeout() -> float:
    """Measures how long the kernel probes a closed window."""
    client = stuck()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * ROUND_LENGTH)
    poll = select.poll()
    poll.register(client, 0)
    return host_ratio(lambda: poll.poll(), ROUND_LENGTH)


@wait("SO_MAX_PACING_RATE")
def pacing() -> float:
    """Measures how long bytes take that are to take so long."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    other = server.accept()[0]
    rate, left = 1_000_000, 1_000_000 * REAL_LENGTH
    client.setsockopt(socket.SOL_SOCKET, 47, rate)

    def transfer() -> None:
        remaining = left
        client.setblocking(False)
        while remaining > 0:
            with contextlib.suppress(BlockingIOError):
                client.send(bytes(8192))
            remaining -= len(other.recv(1 << 16))

    return host_ratio(transfer, REAL_LENGTH)


# ------------------------------------------------------------------------ of others


@wait("VTIME")
def vtime() -> float:
    """Measures a read from a terminal."""
    _, terminal = pty.openpty()
    settings = termios.tcgetattr(terminal)
    settings[3] &= ~termios.ICANON
    settings[6][termios.VMIN] = 0
    settings[6][termios.VTIME] = 10 * REAL_LENGTH
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    return host_ratio(lambda: os.read(terminal, 1), REAL_LENGTH)


@wait("keyctl")
def key() -> float:
    """Measures how long a key can be found."""
    keyring, set_timeout, read = -2, 15, 11
    number = call("add_key", b"user", b"lorentz-faces", b"x", 1, keyring)
    # By whole seconds of the kernel: up to one less.
    call("keyctl", set_timeout, number, ROUND_LENGTH)

    def expires() -> None:
        with contextlib.suppress(OSError):
            while call("keyctl", read, number, None, 0) >= 0:
                time.sleep(0.05)

    return host_ratio(expires, ROUND_LENGTH)


@wait("request_key")
def asked_key() -> float:
    """Measures how long a key is found by its description."""
    keyring, set_timeout, name = -2, 15, b"lorentz-faces-asked"
    number = call("add_key", b"user", name, b"x", 1, keyring)
    call("keyctl", set_timeout, number, ROUND_LENGTH)

    def expires() -> None:
        with contextlib.suppress(OSError):
            while call("request_key", b"user", name, None, 0) >= 0:
                time.sleep(0.05)

    return host_ratio(expires, ROUND_LENGTH)


@wait("PERF_EVENT_IOC_*")
def period() -> float:
    """Measures the period of an event of the processor's clock, which an ioctl sets."""
    software, clock, size = 1, 0, 64
    # A period of an hour; a sample wakes who polls.
    attributes = struct.pack("IIQQQQQI", software, size, clock, 3600 * 10**9, 1, 0, 0, 1)
    fd = call("perf_event_open", attributes + bytes(size - len(attributes)), -1, 0, -1, 0)
    KEPT.append(mmap.mmap(fd, 2 * mmap.PAGESIZE))
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    fcntl.ioctl(fd, 0x40082404, struct.pack("Q", REAL_LENGTH * 10**9))
    return host_ratio(lambda: poll.poll(600_000), REAL_LENGTH)


@wait("prlimit64")
def processor_limit() -> float:
    """Measures the CPU time of a child at its end by RLIMIT_CPU."""

    def burn(writer: int) -> None:
        signal.signal(signal.SIGXCPU, lambda *_: os._exit(os.write(writer, used()) and 0))
        resource.prlimit(0, resource.RLIMIT_CPU, (REAL_LENGTH, 60))
        while True:
            pass

    return REAL_LENGTH / of_child(burn)


def used() -> bytes:
    return struct.pack("d", time.process_time())
