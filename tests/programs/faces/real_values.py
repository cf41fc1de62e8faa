"""Numbers that the kernel keeps for a descriptor or a process, and that are times.

Prints a JSON line for each number: the program sets the number, and reads it. At each line of
standard input it reads all of them once more. A test takes the descriptors out of this process,
and reads the same numbers in real time.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from looks import call, libc


@dataclass(frozen=True)
class Value:
    """`make` sets the number `given`, in the kernel's unit, and returns what `read` takes: a
    descriptor, or the number of a process if `of_process`."""

    make: Callable[[], int]
    read: Callable[[int], float]
    given: float
    of_process: bool = False


KEPT: list[object] = []


def kept(opened: socket.socket) -> int:
    KEPT.append(opened)
    return opened.fileno()


def option_of(fd: int, level: int, option: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    length = ctypes.c_uint32(size)
    if libc.getsockopt(fd, level, option, buffer, ctypes.byref(length)) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[: length.value]


def set_option(fd: int, level: int, option: int, value: bytes) -> None:
    if libc.setsockopt(fd, level, option, value, len(value)) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def option(
    level: int,
    number: int,
    given: int,
    form: str = "i",
    family: int = socket.AF_INET,
    kind: int = socket.SOCK_STREAM,
    listens: bool = False,
) -> Value:
    """An option of a socket whose first number, in this form, is the time."""

    def make() -> int:
        fd = kept(socket.socket(family, kind))
        if listens:
            KEPT[-1].bind(("127.0.0.1", 0))
            KEPT[-1].listen()
        value = struct.pack(form[0], given)
        set_option(fd, level, number, value + bytes(struct.calcsize(form) - len(value)))
        return fd

    return Value(
        make,
        lambda fd: struct.unpack_from(form[0], option_of(fd, level, number, struct.calcsize(form)))[
            0
        ],
        given,
    )


TCP, SOCKET, VSOCK = socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.AF_VSOCK
CLOCK_TAI = 11
VALUES: dict[str, Value] = {
    "TCP_KEEPINTVL": option(TCP, 5, 700),
    "TCP_LINGER2": option(TCP, 8, 30),
    # Rounded up to the sum of so many timeouts of retransmission.
    "TCP_DEFER_ACCEPT": option(TCP, 9, 60, listens=True),
    "TCP_TX_DELAY": option(TCP, 37, 7_000),
    "TCP_RTO_MAX_MS": option(TCP, 44, 9_000),
    "TCP_RTO_MIN_US": option(TCP, 45, 24_000),
    "TCP_DELACK_MAX_US": option(TCP, 46, 24_000),
    "SO_BUSY_POLL": option(SOCKET, 46, 70),
    "SO_TXTIME": option(SOCKET, 61, CLOCK_TAI, "iI", kind=socket.SOCK_DGRAM),
    "SO_VM_SOCKETS_CONNECT_TIMEOUT*": option(VSOCK, 6, 70, "qq", VSOCK),
}


# ------------------------------------------------------------------------ flow labels

FLOW_LABEL, FLOW_LABEL_MANAGER, FLOW_INFO_SEND = 0x54321, 32, 33


def flow_label() -> int:
    """A flow label of IPv6 that is to be kept for 10,000 s."""
    owner = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    request = socket.inet_pton(socket.AF_INET6, "::1") + FLOW_LABEL.to_bytes(4, "big")
    request += struct.pack("BBHHHI", 0, 255, 1, 10_000, 10_000, 0)
    owner.setsockopt(socket.IPPROTO_IPV6, FLOW_LABEL_MANAGER, request)
    owner.setsockopt(socket.IPPROTO_IPV6, FLOW_INFO_SEND, 1)
    owner.connect(("::1", 9, FLOW_LABEL))
    return kept(owner)


def life_of_flow_label(fd: int) -> float:
    return struct.unpack_from("24xH", option_of(fd, socket.IPPROTO_IPV6, FLOW_LABEL_MANAGER, 32))[0]


VALUES["IPV6_FLOWLABEL_MGR"] = Value(flow_label, life_of_flow_label, 10_000)


# ------------------------------------------------------------------------ congestion control


def connected() -> int:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    client.setsockopt(TCP, socket.TCP_CONGESTION, b"bbr")
    client.connect(server.getsockname())
    client.send(b"x")
    peer = server.accept()[0]
    peer.recv(1)
    KEPT.extend((server, peer))
    return kept(client)


def least_round_trip(fd: int) -> float:
    """bbr_min_rtt, us: the least of the handshake and of the byte sent, which is over."""
    return struct.unpack_from("8xI", option_of(fd, TCP, 26, 20))[0]


VALUES["TCP_CC_INFO"] = Value(connected, least_round_trip, 0)


# ------------------------------------------------------------------------ automounts


def automount() -> int:
    """The root of an autofs whose mounts expire after 700 s, in a mount namespace."""
    new_mounts, private = 0x20000, 1 << 18 | 1 << 14
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    call("unshare", new_mounts)
    try:
        call("mount", None, b"/", None, private, None)
        folder = tempfile.mkdtemp(prefix="lorentz-faces-")
        _, writer = os.pipe()
        KEPT.append(writer)
        options = f"fd={writer},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect"
        try:
            call("mount", b"lorentz", folder.encode(), b"autofs", 0, options.encode())
            fd = os.open(folder, os.O_RDONLY)
        finally:
            # The descriptor keeps the file system.
            call("umount2", folder.encode(), 2)
            Path(folder).rmdir()
    finally:
        call("setns", before, new_mounts)
    swap_timeout(fd, 700)
    return fd


def swap_timeout(fd: int, seconds: int) -> int:
    """Sets the timeout, and returns the former one."""
    former = fcntl.ioctl(fd, 0xC0089364, struct.pack("Q", seconds))
    return struct.unpack("Q", former)[0]


VALUES["AUTOFS_*"] = Value(automount, lambda fd: swap_timeout(fd, 700), 700)


# ------------------------------------------------------------------------ serial lines


def line() -> int:
    return os.open("/dev/ttyS0", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


def delay_of_close(fd: int) -> float:
    """close_delay of struct serial_struct, in hundredths of a second."""
    return struct.unpack_from("32xH", fcntl.ioctl(fd, 0x541E, bytes(72)))[0]


VALUES["TIOC?SERIAL"] = Value(line, delay_of_close, 0)


# ------------------------------------------------------------------------ of processes


def child() -> int:
    """A process that waits until this one ends."""
    started = os.fork()
    if started == 0:
        libc.prctl(1, signal.SIGKILL)
        signal.pause()
        os._exit(0)
    return started


def slack() -> int:
    call("prctl", 29, 123_456, 0, 0, 0)
    return os.getpid()


def timer_on_wall_clock() -> int:
    timer = ctypes.c_int()
    call("timer_create", 0, struct.pack("qii48x", 0, 0, 1), ctypes.byref(timer))
    return os.getpid()


def clock_of_timer(process: int) -> float:
    """The number of its clock: the program gave 0, and Lorentz uses CLOCK_MONOTONIC."""
    text = Path(f"/proc/{process}/timers").read_text()
    return int(text.split("ClockID: ")[1].split()[0])


def with_deadline() -> int:
    """A child that may run for 5 of 400 ms."""
    started = child()
    attributes = struct.pack("IIQiIQQQII", 56, 6, 0, 0, 0, 5 * MS, 400 * MS, 400 * MS, 0, 0)
    call("sched_setattr", started, attributes, 0)
    return started


def deadline(process: int) -> float:
    """The deadline, ns."""
    buffer = ctypes.create_string_buffer(56)
    call("sched_getattr", process, buffer, 56, 0)
    return struct.unpack_from("32xQ", buffer)[0]


def in_turn() -> int:
    """A child with a slice of the processor."""
    started = child()
    os.sched_setscheduler(started, os.SCHED_RR, os.sched_param(1))
    return started


def limited() -> int:
    """A child that may run for 7 s at a stretch in real time, us."""
    started = child()
    resource.prlimit(started, resource.RLIMIT_RTTIME, (7_000_000, 7_000_000))
    return started


def limit(process: int) -> float:
    return resource.prlimit(process, resource.RLIMIT_RTTIME)[0]


def load_average() -> float:
    """That of 15 minutes, by `sysinfo`."""
    buffer = ctypes.create_string_buffer(112)
    call("sysinfo", buffer)
    return struct.unpack_from("24xQ", buffer)[0]


MS = 1_000_000
VALUES |= {
    "prctl": Value(
        slack,
        lambda process: int(Path(f"/proc/{process}/timerslack_ns").read_text()),
        123_456,
        of_process=True,
    ),
    "/proc/PID/timers": Value(timer_on_wall_clock, clock_of_timer, 1, of_process=True),
    "sched_setattr": Value(with_deadline, deadline, 400 * MS, of_process=True),
    "sched_getattr": Value(with_deadline, deadline, 400 * MS, of_process=True),
    "sysinfo_loads": Value(os.getpid, lambda _: load_average(), 0, of_process=True),
    "RLIMIT_RTTIME": Value(limited, limit, 7_000_000, of_process=True),
    "sched_rr_get_interval": Value(in_turn, os.sched_rr_get_interval, 0, of_process=True),
}


def emit(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    handles = {}
    for name, value in VALUES.items():
        try:
            handles[name] = value.make()
            emit(ev="before", name=name, handle=handles[name], value=value.read(handles[name]))
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being read
            handles.pop(name, None)
            emit(ev="before", name=name, reason=f"{type(error).__name__}: {error}")
    emit(ev="ready", process=os.getpid())
    for number, _ in enumerate(sys.stdin):
        for name, handle in handles.items():
            emit(ev="after", number=number, name=name, value=VALUES[name].read(handle))
        emit(ev="all", number=number)


if __name__ == "__main__":
    main()
