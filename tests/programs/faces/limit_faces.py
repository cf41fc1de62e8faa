"""Faces that show the host's time: those of docs/limits.md that a program can read."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from looks import TICK, call, each, face, words


def lines_of(script: str) -> Iterator[str]:
    """Yields two lines of a shell script in a network namespace of its own. It prints one for each
    line that it reads."""
    yield from lines_by("unshare", "--net", "sh", "-c", script)


def lines_by(*command: str) -> Iterator[str]:
    """Yields two lines of a command that prints one for each line that it reads."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        for _ in range(2):
            shell.stdin.write("\n")
            shell.stdin.flush()
            yield shell.stdout.readline()
        shell.stdin.close()


@face("TCP_INFO", "span")
def tcp_info() -> Iterator[float]:
    """tcpi_last_data_sent, ms ago."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.send(b"x")
    for _ in range(2):
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        yield struct.unpack_from("I", info, 44)[0] / 1e3


@face("NDA_CACHEINFO", "span")
def neighbour() -> Iterator[float]:
    """The age of a neighbour's entry, s, in a network namespace of its own."""
    script = """
        ip link add d0 type veth peer name d1 && ip address add 192.0.2.1/24 dev d0 &&
        ip link set d0 up &&
        ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:01 nud stale dev d0 || exit
        while read _; do ip -s neighbour show dev d0; done
    """
    # "192.0.2.2 lladdr ... used 2/62/2 STALE": seconds since it was updated come last.
    for line in lines_of(script):
        yield float(re.search(r"used \d+/\d+/(\d+)", line)[1])


@face("SIOCGSTAMP", "date")
def siocgstamp() -> Iterator[float]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(2):
        # The first request makes the kernel stamp later packets.
        for _ in range(2):
            sender.sendto(b"x", receiver.getsockname())
            receiver.recv(1)
            try:
                stamp = fcntl.ioctl(receiver, 0x8906, bytes(16))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
        yield struct.unpack("qq", stamp)[0]


# ------------------------------------------------------------------------ files


def openat2() -> float:
    """/proc/uptime."""
    fd = call("openat2", -100, b"/proc/uptime", ctypes.create_string_buffer(24), 24)
    with os.fdopen(fd, "rb") as file:
        return float(file.read().split()[0])


each("openat2", "span", openat2)


@face("preadv", "standing")
def preadv() -> Iterator[float]:
    """A file of /proc that was read before."""
    fd = os.open("/proc/uptime", os.O_RDONLY)
    for _ in range(2):
        buffer = bytearray(64)
        length = os.preadv(fd, [buffer], 0)
        yield float(bytes(buffer[:length]).split()[0])


@face("runtime_active_time", "span")
def runtime_active_time() -> Iterator[float]:
    """Of a device that is in use, ms."""
    states = Path("/sys/devices").rglob("power/runtime_status")
    state = next(state for state in states if state.read_text() == "active\n")
    file = state.with_name("runtime_active_time")
    for _ in range(2):
        yield int(file.read_text()) / 1e3


@face("tracefs", "span")
def tracefs() -> Iterator[float]:
    """The clock of the ring of one processor, where tracefs is mounted in a mount namespace."""
    script = """
        mount -t tracefs none /sys/kernel/tracing || exit
        while read _; do grep "now ts" /sys/kernel/tracing/per_cpu/cpu0/stats; done
    """
    for line in lines_by("unshare", "--mount", "sh", "-c", script):
        yield float(line.split(":")[1])


@face("syslog", "span")
def kernel_log() -> Iterator[float]:
    """The stamp of a message that was just written, always by one processor: it is of the
    processor's own clock, and in a virtual machine that has stood still these differ."""
    fd = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    processors = os.sched_getaffinity(0)
    for _ in range(2):
        os.lseek(fd, 0, os.SEEK_END)
        os.sched_setaffinity(0, {min(processors)})
        os.write(fd, b"<7>lorentz: a test reads the stamp of this line\n")
        os.sched_setaffinity(0, processors)
        select.select([fd], [], [])
        yield int(os.read(fd, 8192).split(b",")[2]) / 1e6


def rtc() -> float:
    """The real-time clock, as a date."""
    with Path("/dev/rtc0").open("rb") as clock:
        second, minute, hour, day, month, year, *_ = struct.unpack(
            "9i", fcntl.ioctl(clock, 0x80247009, bytes(36))
        )
    return time.mktime((year + 1900, month + 1, day, hour, minute, second, 0, 0, 0))


each("RTC_RD_TIME", "date", rtc)
each("since_epoch", "date", lambda: int(words("/sys/class/rtc/rtc0/since_epoch")[0]))


@face("PTP_SYS_OFFSET", "span")
def ptp() -> Iterator[float]:
    fd = os.open("/dev/ptp0", os.O_RDONLY)
    for _ in range(2):
        yield time.clock_gettime((~fd << 3) | 3)


# ------------------------------------------------------------------------ of the network


def kept_alive(idle: int) -> tuple[socket.socket, socket.socket]:
    """A connection on loopback: a client that asks after `idle` seconds, and its server."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    return client, server


@face("TCP_KEEPIDLE", "span")
def keepalive() -> Iterator[float]:
    """The timer of a connection in /proc/net/tcp."""
    client, _server = kept_alive(10_000)
    local = f"0100007F:{client.getsockname()[1]:04X}"
    for _ in range(2):
        lines = Path("/proc/net/tcp").read_text().splitlines()
        timer = next(line.split()[5] for line in lines if line.split()[1] == local)
        yield -int(timer.split(":")[1], 16) / TICK


def lifetime(name: str, script: str, pattern: str) -> None:
    """The rest of the life of an address or a route, s, in a network namespace of its own."""

    @face(name, "span")
    def looks() -> Iterator[float]:
        make = f"ip link add d0 type veth peer name d1 && ip link set d0 up && {script}"
        for line in lines_of(make):
            yield -int(re.search(pattern, line)[1])


lifetime(
    "IFA_CACHEINFO",
    """ip address add 192.0.2.1/24 dev d0 valid_lft 10000 preferred_lft 10000 || exit
    while read _; do ip -oneline -4 address show dev d0; done""",
    r"valid_lft (\d+)sec",
)
lifetime(
    "RTA_CACHEINFO",
    """ip -6 route add 2001:db8::/32 dev d0 expires 10000 || exit
    while read _; do ip -6 route show 2001:db8::/32; done""",
    r"expires (\d+)sec",
)


@face("PACKET_MMAP", "date")
def packet_ring() -> Iterator[float]:
    """The stamp of a packet in a ring."""
    solicit, size, packet_rx_ring = 0x0003, 4096, 5
    ring = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(solicit))
    ring.setsockopt(263, packet_rx_ring, struct.pack("4I", size, 16, 2048, 32))
    ring.bind(("lo", solicit))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with mmap.mmap(ring.fileno(), 16 * size) as frames:
        for frame in range(2):
            sender.sendto(b"x", ("127.0.0.1", 9))
            while not struct.unpack_from("Q", frames, 2048 * frame)[0]:
                time.sleep(0.01)
            # struct tpacket_hdr: status, len, snaplen, mac, net, sec.
            yield struct.unpack_from("QIIHHI", frames, 2048 * frame)[5]


# ------------------------------------------------------------------------ clocks of the kernel's


@face("perf_event_open", "span")
def perf() -> Iterator[float]:
    """The processor's clock as an event of one processor."""
    software, size = 1, 64
    attributes = struct.pack("IIQ", software, size, 0) + bytes(size - 16)
    fd = call("perf_event_open", attributes, -1, 0, -1, 0)
    for _ in range(2):
        yield struct.unpack("Q", os.read(fd, 8))[0] / 1e9


@face("bpf", "span")
def bpf() -> Iterator[float]:
    """bpf_ktime_get_ns, in units of 2^20 ns."""
    load, run, socket_filter, ktime = 5, 10, 1, 5
    code = struct.pack("<BBhi", 0x85, 0, 0, ktime) + struct.pack("<BBhi", 0x77, 0, 0, 20)
    code = ctypes.create_string_buffer(code + struct.pack("<BBhi", 0x95, 0, 0, 0))
    license_ = ctypes.create_string_buffer(b"GPL")
    places = (ctypes.addressof(code), ctypes.addressof(license_))
    program = struct.pack("IIQQ", socket_filter, 3, *places) + bytes(96)
    fd = call("bpf", load, program, len(program))
    data = ctypes.create_string_buffer(64)
    for _ in range(2):
        order = bytearray(struct.pack("IIIIQQII", fd, 0, 64, 0, ctypes.addressof(data), 0, 1, 0))
        order = ctypes.create_string_buffer(bytes(order) + bytes(40), 80)
        call("bpf", run, order, 80)
        yield struct.unpack_from("4xI", order)[0] * (1 << 20) / 1e9


@face("vdso_of_the_kernel", "span")
def vdso() -> Iterator[float]:
    """clock_gettime of the vDSO that /proc/self/auxv tells."""
    base = dict(struct.iter_unpack("QQ", Path("/proc/self/auxv").read_bytes()))[33]
    ends = re.search(rf"^{base:x}-(\w+)", Path("/proc/self/maps").read_text(), re.MULTILINE)
    image = ctypes.string_at(base, int(ends[1], 16) - base)
    read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(
        base + symbol(image, b"__vdso_clock_gettime")
    )
    buffer = ctypes.create_string_buffer(16)
    for _ in range(2):
        assert read(time.CLOCK_MONOTONIC, buffer) == 0
        seconds, nanos = struct.unpack("qq", buffer)
        yield seconds + nanos / 1e9


SHT_DYNSYM = 11


def symbol(image: bytes, name: bytes) -> int:
    """The value of a symbol of a shared object."""
    start = struct.unpack_from("Q", image, 40)[0]
    size, count = struct.unpack_from("HH", image, 58)
    for number in range(count):
        header = struct.unpack_from("IIQQQQIIQQ", image, start + number * size)
        if header[1] != SHT_DYNSYM:
            continue
        strings = struct.unpack_from("IIQQQQIIQQ", image, start + header[6] * size)[4]
        for entry in range(header[4], header[4] + header[5], 24):
            at, _, _, _, value, _ = struct.unpack_from("IBBHQQ", image, entry)
            if image[strings + at :].startswith(name + b"\0"):
                return value
    raise LookupError(name)
