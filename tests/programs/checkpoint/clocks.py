"""Prints every clock each 20 ms of its time, from two threads, as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

PERIOD = 0.02
CLOCKS = {
    name: getattr(time, f"CLOCK_{name}")
    for name in (
        "REALTIME",
        "MONOTONIC",
        "MONOTONIC_RAW",
        "BOOTTIME",
        "TAI",
        "PROCESS_CPUTIME_ID",
        "THREAD_CPUTIME_ID",
    )
}
lock = threading.Lock()


def look(thread: str, file: Path) -> None:
    while True:
        now = {name: time.clock_gettime(number) for name, number in CLOCKS.items()}
        now["uptime"] = float(Path("/proc/uptime").read_text().split()[0])
        now["time()"] = time.time()
        now["times()"] = os.times().elapsed
        now["age"] = time.time() - file.stat().st_mtime
        sum(range(20000))
        with lock:
            print(json.dumps({"ev": "look", "thread": thread, **now}), flush=True)
        time.sleep(PERIOD)


def main() -> None:
    file = Path(sys.argv[1])
    file.write_text("x")
    threading.Thread(target=look, args=("second", file), daemon=True).start()
    look("first", file)


main()
