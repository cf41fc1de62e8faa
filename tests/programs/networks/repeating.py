"""Programs of a network whose runs repeat: they print what they see, and when.

    repeating.py client ADDRESS PERIOD COUNT   sends by a timer; prints each answer
    repeating.py server                        answers each datagram after some computing
    repeating.py ticker PERIOD COUNT [TIMES]   sleeps, computes, and prints when it woke
    repeating.py spinner PERIOD COUNT          reads the clock until some time has come
    repeating.py busy COUNT                    a timeout of a system call, computing in between

Each line has the wall clock in ns.
"""

from __future__ import annotations

import hashlib
import selectors
import socket
import sys
import time

PORT = 7000


def say(*words: object) -> None:
    print(time.time_ns(), *words, flush=True)


def compute(data: bytes) -> bytes:
    """Some tenths of a millisecond of a processor."""
    for _ in range(500):
        data = hashlib.sha256(data).digest()
    return data


def client(address: str, period: str, count: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.connect((address, PORT))
        waiting = selectors.DefaultSelector()
        waiting.register(channel, selectors.EVENT_READ)
        start = time.monotonic()
        for number in range(int(count)):
            channel.send(compute(b"%d" % number) * (1 + number % 20))
            end = start + float(period) * (number + 1)
            while (left := end - time.monotonic()) > 0:
                if waiting.select(left):
                    say("answer", channel.recv(2_000)[:8].hex())


def server() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("", PORT))
        while True:
            data, (address, _) = received = channel.recvfrom(2_000)
            say("request", address, data[:8].hex(), len(data))
            channel.sendto(compute(data), received[1])


def ticker(period: str, count: str, times: str = "1") -> None:
    for number in range(int(count)):
        time.sleep(float(period))
        for _ in range(int(times)):
            compute(b"")
        say("tick", number)


def spinner(period: str, count: str) -> None:
    for number in range(int(count)):
        end = time.monotonic() + float(period)
        while time.monotonic() < end:
            pass
        say("spun", number)
        time.sleep(float(period))


def busy(count: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for number in range(int(count)):
            channel.settimeout(0.001 * (1 + number % 7))
            try:
                channel.recv(1)
            except TimeoutError:
                compute(b"%d" % number)
                say("timeout", number)


if __name__ == "__main__":
    # The first read shows the start.
    say("begins")
    globals()[sys.argv[1]](*sys.argv[2:])
    say("ends")
