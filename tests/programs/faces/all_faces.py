"""Reads every face of time twice, a nap apart, and prints JSON lines, as lt.h does.

    all_faces.py NAP     seconds between the two looks; half of them are spent computing

A face is one of six kinds. A `date` is the wall clock now, s. A `span` is the seconds between the
looks, with any zero; `cpu` is the same for CPU time. By the clock the looks are between `least` and
`most` seconds apart. A `ratio` is the face's gain divided by that of the clock, a `wait` the length
of a wait divided by the length asked for. A `standing` one does not change. A face that this
machine cannot read gives the reason.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import limit_faces  # noqa: F401 - its faces are in the list
import machine_faces  # noqa: F401
import network_faces  # noqa: F401
import timeout_faces  # noqa: F401
from looks import FACES, LONG, TICK, call, each, face, filled, words

# ------------------------------------------------------------------------ clocks

CLOCKS = {
    "CLOCK_REALTIME": 0,
    "CLOCK_MONOTONIC": 1,
    "CLOCK_PROCESS_CPUTIME_ID": 2,
    "CLOCK_THREAD_CPUTIME_ID": 3,
    "CLOCK_MONOTONIC_RAW": 4,
    "CLOCK_REALTIME_COARSE": 5,
    "CLOCK_MONOTONIC_COARSE": 6,
    "CLOCK_BOOTTIME": 7,
    "CLOCK_REALTIME_ALARM": 8,
    "CLOCK_BOOTTIME_ALARM": 9,
    "CLOCK_SGI_CYCLE": 10,
    "CLOCK_TAI": 11,
}
for clock, identity in CLOCKS.items():
    each(clock, "cpu" if "CPUTIME" in clock else "span", lambda i=identity: time.clock_gettime(i))
    if "REALTIME" in clock or clock == "CLOCK_TAI":
        each(clock, "date", lambda i=identity: time.clock_gettime(i))

# ------------------------------------------------------------------------ system calls

each("clock_gettime", "span", lambda: filled("clock_gettime", "q", 1)[0])
each("gettimeofday", "date", lambda: struct.unpack("q", gettimeofday())[0])
each("time", "date", lambda: call("time", None))
each("adjtimex", "date", lambda: filled("adjtimex", "72xq")[0])
each("clock_adjtime", "date", lambda: filled("clock_adjtime", "72xq", 0)[0])
each("sysinfo", "span", lambda: filled("sysinfo", "q")[0])
each("times", "span", lambda: call("times", None) / TICK)
each("getrusage", "cpu", lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))


def gettimeofday() -> bytes:
    buffer = ctypes.create_string_buffer(16)
    call("gettimeofday", buffer, None)
    return buffer.raw[:8]


@face("waitid", "ratio")
def waitid() -> Iterator[float]:
    """A child's CPU time by its resource usage and by its own clock."""
    for seconds in (0.1, 1.0):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            begun = time.process_time()
            while time.process_time() < begun + seconds:
                pass
            os.write(writer, struct.pack("d", time.process_time()))
            os._exit(0)
        own = struct.unpack("d", os.read(reader, 8))[0]
        usage = ctypes.create_string_buffer(144)
        info = ctypes.create_string_buffer(128)
        call("waitid", 1, child, info, 4, usage)
        user, user_micros, system, system_micros = struct.unpack_from("4q", usage)
        yield (user + system + (user_micros + system_micros) / 1e6) / own


def rewound(text: bytes) -> float:
    lines = [line for line in text.splitlines() if line[:3] == b"cpu"]
    return sum(map(int, lines[0].split()[1:9])) / TICK / (len(lines) - 1)


@face("pread64", "span")
def pread64() -> Iterator[float]:
    """The columns of /proc/stat by one descriptor."""
    fd = os.open("/proc/stat", os.O_RDONLY)
    for _ in range(2):
        yield rewound(os.pread(fd, 1 << 16, 0))


@face("lseek", "span")
def lseek() -> Iterator[float]:
    fd = os.open("/proc/stat", os.O_RDONLY)
    for _ in range(2):
        os.lseek(fd, 0, os.SEEK_SET)
        yield rewound(os.read(fd, 1 << 16))


def with_file(look: Callable[[str, int], float]) -> Callable[[], Iterator[float]]:
    """The time of a file that was written just before."""

    def looks() -> Iterator[float]:
        for _ in range(2):
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"x")
                file.flush()
                yield look(file.name, file.fileno())

    return looks


for name, look in {
    "stat": lambda path, fd: filled("stat", "88xq", path.encode())[0],
    "lstat": lambda path, fd: filled("lstat", "88xq", path.encode())[0],
    "fstat": lambda path, fd: filled("fstat", "88xq", fd)[0],
    "newfstatat": lambda path, fd: os.stat(path, dir_fd=0).st_mtime,
    "statx": lambda path, fd: statx(path),
}.items():
    face(name, "date")(with_file(look))


def statx(path: str) -> float:
    buffer = ctypes.create_string_buffer(256)
    call("statx", -100, path.encode(), 0, 0x7FF, buffer)
    return struct.unpack_from("112xq", buffer)[0]


@face("timerfd_gettime", "span")
def timerfd_gettime() -> Iterator[float]:
    fd = call("timerfd_create", 1, 0)
    call("timerfd_settime", fd, 0, struct.pack("4q", 0, 0, LONG, 0), None)
    for _ in range(2):
        yield -filled("timerfd_gettime", "16xq", fd)[0]


@face("fdinfo", "span")
def fdinfo() -> Iterator[float]:
    fd = call("timerfd_create", 1, 0)
    call("timerfd_settime", fd, 0, struct.pack("4q", 0, 0, LONG, 0), None)
    for _ in range(2):
        text = Path(f"/proc/self/fdinfo/{fd}").read_text()
        seconds, nanos = text.split("it_value: (")[1].split(")")[0].split(",")
        yield -int(seconds) - int(nanos) / 1e9


@face("timer_gettime", "span")
def timer_gettime() -> Iterator[float]:
    timer = filled("timer_create", "i", 1, struct.pack("qii48x", 0, 0, 1))[0]
    call("timer_settime", timer, 0, struct.pack("4q", 0, 0, LONG, 0), None)
    for _ in range(2):
        yield -filled("timer_gettime", "16xq", timer)[0]


@face("getitimer", "span")
def getitimer() -> Iterator[float]:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, LONG)
    for _ in range(2):
        yield -signal.getitimer(signal.ITIMER_REAL)[0]


# ------------------------------------------------------------------------ files of /proc


def cpu_columns() -> float:
    return rewound(Path("/proc/stat").read_bytes())


def own(word: int) -> int:
    """Word `word` of /proc/self/stat, as proc(5) counts them."""
    return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[word - 3])


each("uptime", "span", lambda: float(words("/proc/uptime")[0]))
each("cpu_columns", "span", cpu_columns)
each("open", "span", lambda: read_uptime(call("open", b"/proc/uptime", 0)))
each("openat", "span", lambda: read_uptime(call("openat", -100, b"/proc/uptime", 0)))
each("btime", "date", lambda: btime() + float(words("/proc/uptime")[0]))
each("start_of_a_process", "date", lambda: btime() + own(22) / TICK)
each("PROC/stat", "cpu", lambda: (own(14) + own(15)) / TICK)
each("schedstat", "cpu", lambda: int(words("/proc/thread-self/schedstat")[0]) / 1e9)
each("sched", "cpu", lambda: sched("se.sum_exec_runtime"))
each("timer_list", "span", lambda: timer_list())


def read_uptime(fd: int) -> float:
    with os.fdopen(fd, "rb") as file:
        return float(file.read().split()[0])


def btime() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime"))


def timer_list() -> float:
    return int(Path("/proc/timer_list").read_text().split("now at ")[1].split()[0]) / 1e9


def sched(key: str) -> float:
    lines = Path("/proc/thread-self/sched").read_text().splitlines()
    return next(float(line.split(":")[1]) for line in lines if line.startswith(key)) / 1e3


# ------------------------------------------------------------------------ System V objects

IPC_RMID, IPC_STAT = 0, 2


def system_v(name: str, key: int, make: tuple, column: int, at: int) -> None:
    """The time of making in /proc/sysvipc, and by IPC_STAT."""

    def control(identity: int, command: int, buffer: object) -> None:
        arguments = (identity, 0, command, buffer) if name == "sem" else (identity, command, buffer)
        call(f"{name}ctl", *arguments)

    def by_proc(identity: int) -> float:
        lines = Path(f"/proc/sysvipc/{name}").read_text().splitlines()[1:]
        return next(int(line.split()[column]) for line in lines if int(line.split()[1]) == identity)

    def by_call(identity: int) -> float:
        buffer = ctypes.create_string_buffer(256)
        control(identity, IPC_STAT, buffer)
        return struct.unpack_from("q", buffer, at)[0]

    for face_name, look in ((f"sysvipc_{name}", by_proc), (f"{name}ctl", by_call)):

        @face(face_name, "date")
        def looks(look: Callable[[int], float] = look) -> Iterator[float]:
            for _ in range(2):
                identity = call(f"{name}get", key, *make)
                told = look(identity)
                control(identity, IPC_RMID, None)
                yield told


system_v("shm", 0, (4096, 0o600), 13, 72)
system_v("msg", 0, (0o600,), 13, 64)
system_v("sem", 0, (1, 0o600), 9, 64)

# ------------------------------------------------------------------------ control groups


@face("cgroup_cpu_stat", "cpu")
def cgroup_cpu_stat() -> Iterator[float]:
    line = next(line for line in words("/proc/self/cgroup") if line.startswith("0::"))
    folders = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    files = [folder / line[4:] / "cpu.stat" for folder in folders]
    file = next(file for file in files if file.exists())
    for _ in range(2):
        yield int(file.read_text().split("usage_usec ")[1].split()[0]) / 1e6


@face("cgroup_cpuacct", "cpu")
def cgroup_cpuacct() -> Iterator[float]:
    entries = (line.split(":") for line in words("/proc/self/cgroup"))
    group = next(path for _, names, path in entries if "cpuacct" in names.split(","))
    assert group != "/", "a group with other programs"
    folders = [Path("/sys/fs/cgroup") / name for name in ("cpuacct", "cpu,cpuacct")]
    files = [Path(f"{folder}{group}") / "cpuacct.usage" for folder in folders]
    file = next(file for file in files if file.exists())
    for _ in range(2):
        yield int(file.read_text()) / 1e9


# ------------------------------------------------------------------------ refused


def refused(name: str, *arguments: object) -> None:
    def look() -> float:
        if call(name, *arguments) == 0 and name == "clone3":
            os._exit(0)  # the child
        raise AssertionError("was not refused")

    each(name, "refusal", look)


refused("io_uring_setup", 8, ctypes.create_string_buffer(120))
refused("io_uring_enter", -1, 0, 0, 0, None, 0)
refused("io_uring_register", -1, 0, None, 0)
refused("clone3", ctypes.create_string_buffer(88), 88)
refused("ptrace", 0, 0, 0, 0)


def why(error: BaseException) -> dict[str, object]:
    name = errno.errorcode.get(error.errno) if isinstance(error, OSError) else None
    return {"error": name or type(error).__name__, "reason": str(error)}


def nap(seconds: float) -> None:
    end = time.monotonic() + seconds / 2
    while time.monotonic() < end:
        pass
    time.sleep(seconds / 2)


def emit(name: str, tells: str, **fields: object) -> None:
    print(json.dumps({"ev": "face", "name": name, "tells": tells, **fields}), flush=True)


def now() -> tuple[float, float]:
    """The clock, and this process's CPU time."""
    return time.clock_gettime(time.CLOCK_MONOTONIC), time.process_time()


def main() -> None:
    begun = []
    for name, tells, look in FACES:
        looks = look()
        try:
            begun.append((name, tells, looks, now(), next(looks), now()))
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being read
            emit(name, tells, **why(error))
    nap(float(sys.argv[1]))
    # The face that was read last is read first: no child of another face's runs between its looks.
    for name, tells, looks, first, before, second in reversed(begun):
        try:
            third, value, last = now(), next(looks), now()
        except Exception as error:  # noqa: BLE001
            emit(name, tells, **why(error))
        else:
            clock = 1 if tells == "cpu" else 0
            least, most = third[clock] - second[clock], last[clock] - first[clock]
            emit(name, tells, value=value, passed=value - before, least=least, most=most)


if __name__ == "__main__":
    main()
