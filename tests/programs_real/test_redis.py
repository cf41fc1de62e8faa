"""redis-server in virtual time: keys expire by its clock. The client lives in real time."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework.needs import tool
from framework.oracle import HostNoise, epoch
from framework.running import Inside


class Client:
    """The parts of the Redis protocol that the test needs."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(10)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._replies = self._socket.makefile("rb")

    def __call__(self, *words: str) -> str | int | None:
        parts = [f"*{len(words)}\r\n", *(f"${len(w)}\r\n{w}\r\n" for w in words)]
        self._socket.sendall("".join(parts).encode())
        line = self._replies.readline().decode().rstrip()
        kind, rest = line[0], line[1:]
        if kind == ":":
            return int(rest)
        if kind == "$":
            if rest == "-1":
                return None
            return self._replies.read(int(rest) + 2).decode()[:-2]
        assert kind == "+", line
        return rest

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


def connect(path: Path, inside: Inside) -> Client:
    """A client, once the server listens: its socket is there a moment before."""
    deadline = time.monotonic() + 15
    while True:
        try:
            return Client(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            assert time.monotonic() < deadline, inside.stdout + inside.stderr
            time.sleep(0.02)


@contextmanager
def redis(folder, **options):
    """A server of our own, on a socket of our own, with nothing on disk, in virtual time."""
    path = folder / "socket"
    command = [tool("redis-server"), "--port", "0", "--unixsocket", path, "--save", ""]
    command += ["--appendonly", "no", "--dir", folder, "--daemonize", "no"]
    with Inside(*command, **options) as inside:
        client = connect(path, inside)
        try:
            assert client("PING") == "PONG"
            yield inside, client
        finally:
            client.close()


def until_gone(client: Client, key: str, patience: float) -> float:
    """Waits until a key has expired. Returns the moment."""
    deadline = time.monotonic() + patience
    while client("EXISTS", key):
        assert time.monotonic() < deadline, "the key does not expire"
        time.sleep(0.005)
    return time.monotonic()


@pytest.mark.parametrize(("rate", "seconds"), [("10", 10), ("1000", 1000), ("1/2", 1)])
def test_a_key_expires_by_the_virtual_clock(tmp_path, rate, seconds):
    number = {"10": 10, "1000": 1000, "1/2": 0.5}[rate]
    with HostNoise() as noise, redis(tmp_path, rate=rate) as (_, client):
        start = time.monotonic()
        assert client("SET", "k", "v", "EX", str(seconds)) == "OK"
        took = until_gone(client, "k", 20) - start
    expect = seconds / number
    assert expect * 0.97 - 0.01 <= took <= expect * 1.05 + 0.1 + noise.slack


def test_keys_expire_when_time_leaps(tmp_path):
    with redis(tmp_path, rate="1", at="2035-05-05") as (inside, client):
        client("SET", "short", "v", "EX", "3600")
        client("SET", "long", "v", "EX", "7200")
        inside.leap("3601s")
        assert client("EXISTS", "short") == 0
        assert 0 < client("TTL", "long") <= 3600
        inside.leap("2h")
        assert client("EXISTS", "long") == 0


def test_redis_tells_virtual_time(tmp_path):
    with redis(tmp_path, rate="100", at="2035-05-05") as (_, client):
        time.sleep(1)
        info = client("INFO", "server")
        seconds = int(info.split("uptime_in_seconds:")[1].split()[0])
        microseconds = int(info.split("server_time_usec:")[1].split()[0])
    assert 90 <= seconds <= 2000
    assert 0 <= microseconds / 1e6 - epoch("2035-05-05") < 2000


def test_redis_stands_still_while_it_is_frozen(tmp_path):
    with redis(tmp_path, rate="10") as (inside, client):
        begun = inside.time()["monotonic_ns"]
        client("SET", "k", "v", "PX", "30000")
        inside.freeze()
        frozen = inside.time()["monotonic_ns"]
        time.sleep(0.6)
        assert inside.time()["monotonic_ns"] == frozen
        inside.unfreeze()
        left = client("PTTL", "k")
        passed = (inside.time()["monotonic_ns"] - begun) / 1e6
        # redis counts whole milliseconds.
        assert left >= 30_000 - passed - 2
        until_gone(client, "k", 20)
