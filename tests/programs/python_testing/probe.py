"""One look at what sees another time: `probe.py TOOL PROBE`, prints one JSON value.

TOOL is lorentz, freezegun, time-machine, or libfaketime, which has changed this whole process. A
probe of DATES prints whether a block's date is seen, one of BEHAVIOUR whether a clock or a wait did
as it should. A line before says which it is: the latter may never end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WHEN = datetime.datetime(2038, 1, 19, tzinfo=datetime.timezone.utc)
CLOCK_GETTIME = 228


def block(tool: str, stands: bool = False):
    """A block at WHEN, in which time goes on or stands."""
    if tool == "lorentz":
        import lorentz

        return lorentz.frozen(WHEN) if stands else lorentz.travel(WHEN)
    if tool == "freezegun":
        import freezegun

        return freezegun.freeze_time(WHEN, tick=not stands)
    if tool == "time-machine":
        import time_machine

        return time_machine.travel(WHEN, tick=not stands)
    return contextlib.nullcontext()


def year_of(seconds: float) -> int:
    return 1970 + int(seconds // 31_556_952)


def python_clocks() -> int:
    return datetime.datetime.now().year


def c_extension() -> int:
    return year_of(ctypes.CDLL(None).time(None))


def raw_call() -> int:
    stamp = (ctypes.c_long * 2)()
    ctypes.CDLL(None).syscall(CLOCK_GETTIME, 0, stamp)
    return year_of(stamp[0])


def sqlite() -> int:
    return int(sqlite3.connect(":memory:").execute("select strftime('%Y')").fetchone()[0])


def of_date(*command: str) -> int:
    return int(subprocess.run([*command, "date", "+%Y"], capture_output=True, text=True).stdout)


def thread() -> int:
    seen = []
    one = threading.Thread(target=lambda: seen.append(year_of(time.time())))
    one.start()
    one.join()
    return seen[0]


def file_time() -> int:
    with tempfile.NamedTemporaryFile() as file:
        return year_of(Path(file.name).stat().st_mtime)


def postgres() -> int:
    """A server that the block starts; only user nobody may run one."""
    programs = Path(os.environ["POSTGRES"])
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    prefix = as_nobody if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp())
    try:
        if prefix:
            os.chown(folder, 65534, 65534)
        init = [*prefix, programs / "initdb", "-D", folder / "data", "-U", "nobody", "-N"]
        subprocess.run(init, check=True, capture_output=True)
        command = [*prefix, programs / "postgres", "-D", folder / "data", "-k", folder, "-h", ""]
        nothing = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **nothing) as server:
            ask = ["psql", "-h", folder, "-U", "nobody", "-d", "postgres", "-Atc"]
            query = "select extract(year from now())"
            for _ in range(200):
                answer = subprocess.run([*prefix, *ask, query], capture_output=True, text=True)
                if answer.returncode == 0:
                    break
                time.sleep(0.1)
            # Its fast shutdown: no session keeps it.
            server.send_signal(signal.SIGINT)
        return int(answer.stdout)
    finally:
        shutil.rmtree(folder)


DATES = {
    "python": python_clocks,
    "c-extension": c_extension,
    "raw-call": raw_call,
    "sqlite": sqlite,
    "thread": thread,
    "subprocess": of_date,
    "static": lambda: of_date("busybox"),
    "file": file_time,
    "postgres": postgres,
}


def monotonic_goes_on(tool: str) -> bool:
    with block(tool):
        begun = time.monotonic()
        while (gone := time.monotonic() - begun) == 0:
            pass
        return 0 < gone < 3600


def monotonic_stands(tool: str) -> bool:
    with block(tool, stands=True):
        return len({(time.monotonic_ns(), time.time_ns()) for _ in range(1000)}) == 1


def asyncio_ends(tool: str) -> bool:
    """asyncio.sleep on a clock that stands: does it end?"""

    async def main() -> bool:
        await asyncio.sleep(0.05)
        return True

    with block(tool, stands=True):
        return asyncio.run(main())


def wait_at_once(tool: str) -> bool:
    """An hour's sleep on a clock that stands, after which it is an hour later."""
    with block(tool, stands=True):
        begun = time.time_ns()
        time.sleep(3600)
        return time.time_ns() - begun >= 3600 * 10**9


def until_it_waits(event: threading.Event, waiter: threading.Thread) -> None:
    """Returns when a thread sleeps in `event.wait`. Once it is among those that wait, it gives the
    interpreter away by sleeping only."""
    sys.setswitchinterval(1000)
    while not event._cond._waiters:
        Path("/").stat()
    stat = Path(f"/proc/self/task/{waiter.native_id}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        pass


def timeout_follows(tool: str) -> bool:
    """A wait in progress for an hour, whose clock is moved by an hour."""
    event, ended = threading.Event(), []
    with block(tool) as clock:
        waiter = threading.Thread(target=lambda: ended.append(event.wait(3600)), daemon=True)
        waiter.start()
        until_it_waits(event, waiter)
        move = {"lorentz": "leap", "freezegun": "tick", "time-machine": "shift"}[tool]
        getattr(clock, move)(3600)
        waiter.join(2)
        return ended == [False]


def rate(tool: str) -> bool:
    """100 s of sleep at rate 1000. libfaketime has set the rate of the whole process."""
    if tool == "lorentz":
        import lorentz

        with lorentz.rate(1000):
            time.sleep(100)
    elif tool == "libfaketime":
        time.sleep(100)
    else:
        return False
    return True


BEHAVIOUR = {
    "monotonic-goes-on": monotonic_goes_on,
    "monotonic-stands": monotonic_stands,
    "asyncio": asyncio_ends,
    "wait": wait_at_once,
    "wait-follows": timeout_follows,
    "rate": rate,
}


def main() -> None:
    tool, probe = sys.argv[1:]
    # Modules that a block imports are there by now.
    block(tool)
    if probe in DATES:
        print("begins", flush=True)
        with block(tool):
            print(json.dumps(DATES[probe]() == WHEN.year), flush=True)
    else:
        print("may hang", flush=True)
        print(json.dumps(BEHAVIOUR[probe](tool)), flush=True)
    # Threads that wait on are no matter any more.
    os._exit(0)


if __name__ == "__main__":
    main()
