"""Run inside: rows of ticks, with some work in each. Halfway a child runs, and ends while time does
not leap."""

import json
import subprocess
import sys
import time

ROWS, TICKS = 10, 20


def work() -> None:
    """Works longer than the skipper polls by itself."""
    sum(range(20_000))


def rows(name: str) -> None:
    for _ in range(ROWS):
        for _ in range(TICKS):
            time.sleep(1)
            work()
        print(json.dumps({"ev": name}), flush=True)


with subprocess.Popen(["sleep", "1d"]) as beside:
    rows("before")
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    rows("after")
    beside.kill()
