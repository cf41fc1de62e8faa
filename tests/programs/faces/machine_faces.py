"""Faces that show the host's time: virtual machines, accounting, audit, control groups."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from limit_faces import lines_by
from looks import TICK, face, libc
from network_faces import attributes

# ------------------------------------------------------------------------ virtual machines

KVM = 0xAE00
CREATE_MACHINE, CREATE_PROCESSOR, TSC_KHZ = KVM | 0x01, KVM | 0x41, KVM | 0xA3
GET_CLOCK, SET_CLOCK, CREATE_PIT = 0x8030AE7C, 0x4030AE7B, 0x4040AE77
GET_PIT, SET_PIT, CREATE_CHIP = 0xC048AE65, 0x8048AE66, KVM | 0x60
GET_MSRS, TSC = 0xC008AE88, 0x10


def machine() -> int:
    with Path("/dev/kvm").open("rb") as kvm:
        return fcntl.ioctl(kvm, CREATE_MACHINE, 0)


def clock_of(guest: int) -> float:
    return struct.unpack_from("Q", fcntl.ioctl(guest, GET_CLOCK, bytes(48)))[0] / 1e9


@face("KVM_GET_CLOCK", "span")
def kvm_clock() -> Iterator[float]:
    guest = machine()
    for _ in range(2):
        yield clock_of(guest)


@face("KVM_SET_CLOCK", "span")
def kvm_clock_set() -> Iterator[float]:
    """A guest's clock that was set to a million seconds."""
    guest = machine()
    fcntl.ioctl(guest, SET_CLOCK, struct.pack("Q40x", 10**15))
    for _ in range(2):
        told = clock_of(guest)
        assert told >= 1e6, told
        yield told


@face("KVM_?ET_PIT*", "span")
def kvm_pit() -> Iterator[float]:
    """The instant at which a counter of the guest's timer was loaded."""
    guest = machine()
    fcntl.ioctl(guest, CREATE_CHIP, 0)
    fcntl.ioctl(guest, CREATE_PIT, bytes(64))
    for _ in range(2):
        fcntl.ioctl(guest, SET_PIT, fcntl.ioctl(guest, GET_PIT, bytes(72)))
        # count_load_time of the third channel.
        yield struct.unpack_from("64xq", fcntl.ioctl(guest, GET_PIT, bytes(72)))[0] / 1e9


def guests_counter() -> Iterator[float]:
    """The time stamp counter that a guest reads, by the frequency that KVM tells."""
    processor = fcntl.ioctl(machine(), CREATE_PROCESSOR, 0)
    frequency = fcntl.ioctl(processor, TSC_KHZ) * 1e3
    for _ in range(2):
        entry = fcntl.ioctl(processor, GET_MSRS, struct.pack("IIIIQ", 1, 0, TSC, 0, 0))
        yield struct.unpack_from("16xQ", entry)[0] / frequency


face("guest", "span")(guests_counter)
face("KVM_?ET_TSC_KHZ", "span")(guests_counter)

# ------------------------------------------------------------------------ accounting


@face("acct", "date")
def accounted() -> Iterator[float]:
    """The begin of a process by its record, in a namespace of process ids with accounting."""
    script = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.acct(sys.argv[1].encode()):
            sys.exit(os.strerror(ctypes.get_errno()))
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        libc.acct(None)
    """
    for _ in range(2):
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
            lines = "\n".join(line[8:] for line in script.splitlines())
            command = ["unshare", "--pid", "--fork", "python3", "-c", lines, file.name]
            subprocess.run(command, check=True, timeout=600, capture_output=True)
            record = Path(file.name).read_bytes()
            assert len(record) >= 64, "no record"
            # struct acct_v3: flag, version, tty, exitcode, uid, gid, pid, ppid, btime.
            yield struct.unpack_from("24xI", record)[0]


GENERIC, CONTROL = 16, 16


def asked(netlink: socket.socket, kind: int, command: int, attribute: int, value: bytes) -> dict:
    """The attributes of the answer to a command of generic netlink."""
    body = struct.pack("BBHHH", command, 1, 0, 4 + len(value), attribute) + value
    body += bytes(-len(body) % 4)
    netlink.send(struct.pack("IHHII", 16 + len(body), kind, 1, 1, 0) + body)
    return attributes(netlink.recv(1 << 16)[20:])


@face("TASKSTATS", "span")
def taskstats() -> Iterator[float]:
    """ac_etime of this process, us since its begin."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
    netlink.settimeout(600)
    kind = struct.unpack("H", asked(netlink, CONTROL, 3, 2, b"TASKSTATS\0")[1])[0]
    for _ in range(2):
        answer = asked(netlink, kind, 1, 1, struct.pack("I", os.getpid()))
        statistics = attributes(answer[4])[3]
        yield struct.unpack_from("Q", statistics, 144)[0] / 1e6


@face("siginfo", "ratio")
def si_times() -> Iterator[float]:
    """The CPU time of a child by the siginfo of SIGCHLD, and by the child's own clock."""
    for seconds in (0.1, 2.0):
        with Signals(signal.SIGCHLD) as signals:
            child, own = burn(seconds)
            while True:
                status = signals.read()
                if struct.unpack_from("12xI", status)[0] == child:
                    break
        os.waitpid(child, 0)
        # struct signalfd_siginfo: ssi_utime and ssi_stime.
        yield sum(struct.unpack_from("56xQQ", status)) / TICK / own


class Signals:
    """A descriptor of signals, which are blocked meanwhile."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> Signals:
        signal.pthread_sigmask(signal.SIG_BLOCK, [self._number])
        mask = struct.pack("Q", 1 << (self._number - 1)) + bytes(120)
        self._fd = libc.signalfd(-1, mask, 0)
        return self

    def read(self) -> bytes:
        return os.read(self._fd, 128)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [self._number])


def burn(seconds: float) -> tuple[int, float]:
    """A child that computes so long by its CPU clock. Returns its number and its CPU time."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        while time.process_time() < seconds:
            pass
        os.write(writer, struct.pack("d", time.process_time()))
        os._exit(0)
    return child, struct.unpack("d", os.read(reader, 8))[0]


@face("core", "ratio")
def core_dump() -> Iterator[float]:
    """The CPU time of a child by the core that it leaves, and by its own clock."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    assert pattern == "core\n", f"cores go elsewhere: {pattern}"
    for seconds in (0.1, 2.0):
        with tempfile.TemporaryDirectory() as folder:
            yield dumped(seconds, folder)


def dumped(seconds: float, folder: str) -> float:
    script = (
        "import os, resource, time\n"
        "limit = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))\n"
        f"while time.process_time() < {seconds}: pass\n"
        "print(time.process_time(), flush=True)\n"
        "os.abort()\n"
    )
    command = ["python3", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    core = next(Path(folder).glob("core*"))
    with core.open("rb") as file:
        note = prstatus(file.read(1 << 20))
    # struct elf_prstatus: the CPU times follow pid, ppid, pgrp and sid.
    user, user_micros, system, system_micros = struct.unpack_from("48x4q", note)
    used = user + system + (user_micros + system_micros) / 1e6
    return used / float(done.stdout)


def prstatus(core: bytes) -> bytes:
    """The first note of kind NT_PRSTATUS."""
    start, size, count = struct.unpack_from("32xQ14xHH", core)
    for number in range(count):
        kind, _, at, _, _, length = struct.unpack_from("IIQQQQ", core, start + number * size)
        if kind == 4 and length:
            name, _, note = struct.unpack_from("III", core, at)
            assert note == 1
            return core[at + 12 + ((name + 3) & ~3) :]
    raise LookupError("no notes")


# ------------------------------------------------------------------------ btrfs


def of_btrfs() -> Iterator[list[int]]:
    program = str(Path(__file__).with_name("subvolumes.py"))
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        for line in lines_by("unshare", "--mount", sys.executable, program, folder):
            assert line, "the program ends with an error"
            yield [int(word) for word in line.split()]


class Shared:
    """Readings of one program that several faces use: each face takes all, in the same order."""

    def __init__(self, readings: Iterator[list[int]]) -> None:
        self._readings, self._taken = readings, []

    def look(self, column: int) -> Iterator[float]:
        for number in range(2):
            if number == len(self._taken):
                self._taken.append(next(self._readings))
            yield self._taken[number][column]


SUBVOLUMES = Shared(of_btrfs())
BTRFS = ("GET_SUBVOL_INFO", "SET_RECEIVED_SUBVOL", "DEV_REPLACE")
for column, name in enumerate(BTRFS):
    face(f"BTRFS_IOC_{name}", "date")(lambda column=column: SUBVOLUMES.look(column))


# ------------------------------------------------------------------------ audit


@face("audit", "date")
def audit() -> Iterator[float]:
    """The stamp of a message for the audit daemon, as those who only listen read it."""
    user_avc, read_log = 1107, 1
    listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
    listener.bind((0, 1 << (read_log - 1)))
    listener.settimeout(600)
    sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
    for number in range(2):
        text = f"lorentz: a test reads the stamp of this line {os.getpid()} {number}\0".encode()
        sender.send(struct.pack("IHHII", 16 + len(text), user_avc, 5, 1, 0) + text)
        answer = struct.unpack_from("16xi", sender.recv(4096))[0]
        assert answer == 0, os.strerror(-answer)
        while text[:-1] not in (message := listener.recv(1 << 16)):
            pass
        yield float(message.split(b"audit(")[1].split(b":")[0])


# ------------------------------------------------------------------------ control groups


@face("cgroup_freezer", "span")
def frozen() -> Iterator[float]:
    """The time for which a control group has been frozen, us."""
    places = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
    root = next(place for place in places if (place / "cgroup.controllers").exists())
    group = root / f"lorentz-faces-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.freeze").write_text("1")
        for _ in range(2):
            text = (group / "cgroup.stat.local").read_text()
            yield int(text.split("frozen_usec ")[1].split()[0]) / 1e6
    finally:
        group.rmdir()
