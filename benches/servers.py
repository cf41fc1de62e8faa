"""Requests per second of real servers; the load generator is always native."""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import levels
from levels import Level
from suites import TIMEOUT, Bench, Samples, in_turns, output_of


def redis(bench: Bench) -> Samples:
    """redis-benchmark against Debian's redis-server."""
    for program in ("redis-server", "redis-benchmark"):
        if shutil.which(program) is None:
            bench.left_out["redis"] = f"{program} is not there"
            return {}
    requests = "20000" if bench.quick else "60000"

    def once(level: Level) -> dict[str, float]:
        with _redis_server(level) as port:
            command = ["redis-benchmark", "-p", port, "-t", "set,get", "-n", requests, "--csv"]
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, check=True
            )
            rows = csv.DictReader(io.StringIO(run.stdout))
            return {row["test"].lower(): float(row["rps"]) for row in rows}

    return in_turns(bench, 25, levels.at_rate_one(), once)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _redis_answer(port: str, *words: str) -> str:
    run = subprocess.run(
        ["redis-cli", "-p", port, *words], capture_output=True, text=True, timeout=TIMEOUT
    )
    return run.stdout if run.returncode == 0 else ""


@contextmanager
def _redis_server(level: Level) -> Iterator[str]:
    port = str(_free_port())
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(
            level.command("redis-server", *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ready = False
        try:
            deadline = time.monotonic() + 20
            while not ready and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                ready = _redis_answer(port, "ping") == "PONG\n"
            if not ready:
                raise RuntimeError("redis-server does not start there")
            yield port
            _redis_answer(port, "shutdown", "nosave")
            process.wait(timeout=20)
        finally:
            with suppress(ProcessLookupError):  # a wrapper may have left the server alive
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for litter in Path("/dev/shm").glob(f"*faketime*_{process.pid}"):
                litter.unlink()  # what libfaketime leaves when its wrapper is killed


def http(bench: Bench) -> Samples:
    """A static Go HTTP server with 16 keep-alive clients."""
    program = bench.programs / "httpd"
    if not program.exists():
        bench.left_out["Go HTTP server"] = "no Go toolchain to build it with"
        return {}
    seconds = "1" if bench.quick else "2"

    def once(level: Level) -> dict[str, float]:
        server = subprocess.Popen(
            level.command(program, "serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            words = server.stdout.readline().split()
            if len(words) != 2:
                raise RuntimeError("the Go server does not start there")
            return output_of([str(program), "load", words[1], "16", seconds])
        finally:
            try:
                server.communicate(timeout=20)  # closes its stdin, which ends it
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    # libfaketime has no effect on a static program: no level of its own here.
    choices = [level for level in levels.at_rate_one() if level.name != levels.LIBFAKETIME]
    return in_turns(bench, 25, choices, once)
