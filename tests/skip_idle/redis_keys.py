"""Run inside: a redis-server whose keys expire as many seconds apart as the argument says.

Prints the order of their expiry.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    socket = str(Path(folder) / "s")
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--hz", "1"],
        stdout=subprocess.DEVNULL,
        cwd=folder,
    )

    def redis(*words: str) -> str:
        return subprocess.run(
            ["redis-cli", "-s", socket, *words], capture_output=True, text=True, check=False
        ).stdout.strip()

    try:
        while redis("ping") != "PONG":
            time.sleep(0.1)
        apart = int(sys.argv[1])
        for i in range(12, 0, -1):
            redis("set", f"key{i}", "x", "ex", str(i * apart))
        there = [f"key{i}" for i in range(1, 13)]
        order = []
        while there:
            time.sleep(apart / 5)
            gone = [key for key in there if redis("exists", key) == "0"]
            order += [int(key.removeprefix("key")) for key in gone]
            there = [key for key in there if key not in gone]
        print(json.dumps({"ev": "expired", "order": order}), flush=True)
    finally:
        server.terminate()
        server.wait()
