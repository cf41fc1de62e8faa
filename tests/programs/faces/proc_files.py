"""Reads the files of /proc that show time, by their names and by other ways; prints JSON lines, as
lt.h does."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
libc = ctypes.CDLL(None, use_errno=True)


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"ev": event, **fields}), flush=True)


def text(path: str) -> str:
    return Path(path).read_text()


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def columns(stat: str) -> list[int]:
    """All processors' ticks: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(word) for word in stat.splitlines()[0].split()[1:9]]


def uptime() -> float:
    return float(text("/proc/uptime").split()[0])


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def stat(seconds: str) -> None:
    """Measures a span by the columns of /proc/stat, by the uptime within it and around it, and by
    its own CPU time within it."""
    processors = sum(line[:3] == "cpu" for line in text("/proc/stat").splitlines()) - 1
    fd = os.open("/proc/stat", os.O_RDONLY)
    first = uptime()
    before = columns(os.read(fd, 1 << 16).decode())
    second, own = uptime(), own_cpu()
    spin(float(seconds))
    own, third = own_cpu() - own, uptime()
    os.lseek(fd, 0, os.SEEK_SET)
    after = columns(os.read(fd, 1 << 16).decode())
    last = uptime()
    passed = [new - old for old, new in zip(before, after, strict=True)]
    pread = columns(os.pread(fd, 1 << 16, 0).decode())
    emit(
        "stat",
        elapsed=sum(passed) / TICK / processors,
        busy=(sum(passed) - passed[3] - passed[4]) / TICK,
        least=third - second,
        most=last - first,
        own=own,
        pread_is_later=sum(pread) >= sum(after),
        opened=columns(text("/proc/stat")) >= before,
    )


def sched_names() -> dict[str, object]:
    pid = os.getpid()
    folder = os.open("/proc/self", os.O_RDONLY)
    os.chdir("/proc/self/task")
    return {
        "self": "/proc/self/schedstat",
        "thread-self": "/proc/thread-self/schedstat",
        "number": f"/proc/{pid}/schedstat",
        "task": f"/proc/{pid}/task/{pid}/schedstat",
        "detour": "//proc/./self/../self/schedstat",
        "relative": f"{pid}/schedstat",
        "descriptor": lambda: os.open("schedstat", os.O_RDONLY, dir_fd=folder),
    }


def sched(seconds: str) -> None:
    """Time on a processor by /proc/.../schedstat, each beside the thread's CPU clock."""
    spin(float(seconds))
    for name, path in sched_names().items():
        before = time.thread_time()
        fd = path() if callable(path) else os.open(path, os.O_RDONLY)
        run, wait, count = map(int, os.read(fd, 100).split())
        os.close(fd)
        after = time.thread_time()
        emit("sched", name=name, run=run / 1e9, before=before, after=after, wait=wait, count=count)
    child = subprocess.Popen(
        [sys.executable, __file__, "used", seconds], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    asked = json.loads(child.stdout.readline())
    run = int(text(f"/proc/{child.pid}/schedstat").split()[0]) / 1e9
    emit("child", run=run, used=asked["cpu"], since=time.monotonic() - asked["at"])
    child.communicate()


def used(seconds: str) -> None:
    """A child that prints the time and its CPU time, and waits."""
    spin(float(seconds))
    at = time.monotonic()
    emit("used", at=at, cpu=time.process_time())
    sys.stdin.read()


def fields(path: str) -> list[str]:
    """/proc/PID/stat from its third word on."""
    return text(path).rsplit(")", 1)[1].split()


def task(seconds: str) -> None:
    """The CPU times and the start in /proc/PID/stat, and what ps makes of them."""
    libc.prctl(15, b"a) 1 2 (\n3", 0, 0, 0)  # PR_SET_NAME: a name that looks like more words
    began, wall = time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
    child = subprocess.Popen(["sleep", "1000000000"])
    made = time.clock_gettime(time.CLOCK_BOOTTIME)
    spin(float(seconds))
    before = sum(os.times()[:2])
    words = fields("/proc/self/stat")
    after = sum(os.times()[:2])
    emit(
        "task",
        stat=(int(words[11]) + int(words[12])) / TICK,
        before=before,
        after=after,
        name=text("/proc/self/stat").split("(", 1)[1].rsplit(")", 1)[0],
        number_of_words=len(words),
    )
    start = fields(f"/proc/{child.pid}/stat")[19]
    ps = ["ps", "-o", "lstart=,etimes=", "-p", str(child.pid)]
    asked = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    told = subprocess.run(ps, capture_output=True, text=True, check=True, env={"TZ": "UTC"})
    *date, age = told.stdout.split()
    emit(
        "start",
        start=int(start) / TICK,
        began=began,
        made=made,
        same=fields(f"/proc/{child.pid}/stat")[19] == start,
        lstart=time.mktime(time.strptime(" ".join(date), "%a %b %d %H:%M:%S %Y")) - time.timezone,
        wall=wall,
        age=int(age),
        asked=asked,
        answered=time.clock_gettime(time.CLOCK_BOOTTIME) - began,
    )
    child.kill()
    child.wait()


def slower(seconds: str) -> None:
    """CPU time before the rate falls and after, by faces that are rounded and by the clock."""
    spin(float(seconds))
    emit("ready", cpu=time.process_time())
    sys.stdin.readline()
    for _ in range(20):
        clock, times = time.process_time(), sum(os.times()[:2])
        used = own_cpu()
        words = fields("/proc/self/stat")
        told = (int(words[11]) + int(words[12])) / TICK
        emit("after", clock=clock, times=times, rusage=used, stat=told)


def identity() -> None:
    """The start of a child as its parent sees it, at each line of input."""
    sys.stdin.readline()
    child = subprocess.Popen(["sleep", "1000000000"], stdin=subprocess.DEVNULL)
    emit("start", ticks=int(fields(f"/proc/{child.pid}/stat")[19]))
    for _ in sys.stdin:
        emit("start", ticks=int(fields(f"/proc/{child.pid}/stat")[19]))
    child.kill()
    child.wait()


def words_of(name: str, number: int) -> list[str]:
    lines = text(f"/proc/sysvipc/{name}").splitlines()[1:]
    return next(line.split() for line in lines if int(line.split()[1]) == number)


#: For each kind: how to make it, and where its times are in /proc/sysvipc and in the structure.
IPC = {
    "shm": (lambda: libc.shmget(0, 4096, 0o600), [11, 12, 13], [56, 64, 72]),
    "msg": (lambda: libc.msgget(0, 0o600), [11, 12, 13], [48, 56, 64]),
    "sem": (lambda: libc.semget(0, 1, 0o600), [8, 9], [48, 64]),
}


def control(kind: str, number: int, command: int, buffer: object) -> None:
    """msgctl, shmctl or semctl."""
    if kind == "sem":
        result = libc.semctl(number, 0, command, buffer)
    else:
        result = getattr(libc, f"{kind}ctl")(number, command, buffer)
    assert result >= 0, kind


def ipc(seconds: str) -> None:
    """The times of System V objects, by /proc/sysvipc and by IPC_STAT, a while after they came."""
    libc.shmat.restype = ctypes.c_void_p
    coarse = 5  # CLOCK_REALTIME_COARSE: the kernel takes the times from it
    for kind, (make, places, offsets) in IPC.items():
        before = time.clock_gettime(coarse)
        number = make()
        if kind == "shm":
            libc.shmat(number, None, 0)
        after = time.time()
        time.sleep(float(seconds))
        words = words_of(kind, number)
        buffer = ctypes.create_string_buffer(256)
        control(kind, number, 2, buffer)  # IPC_STAT
        structure = [int.from_bytes(buffer.raw[at : at + 8], "little") for at in offsets]
        told = subprocess.run(["cat", f"/proc/sysvipc/{kind}"], capture_output=True, check=True)
        control(kind, number, 0, None)  # IPC_RMID
        emit(
            "ipc",
            kind=kind,
            before=before,
            after=after,
            proc=[int(words[place]) for place in places],
            stat=structure,
            cat=str(number) in told.stdout.decode(),
        )


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
