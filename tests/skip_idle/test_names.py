"""A name is looked up at a server outside: the resolver's timeouts do not fire early."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
import time

import pytest
from framework import build, lorentz
from framework.needs import root, tool
from framework.running import Native

#: Real seconds that the server takes to answer; a resolver asks again after five.
SLOW = 0.6
AT = "127.0.0.77"


class SlowServer:
    """Answers every question for an address with 192.0.2.1, a moment later."""

    def __init__(self) -> None:
        self.questions = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((AT, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> SlowServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.settimeout(0)
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join(timeout=5)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                question, sender = self._socket.recvfrom(512)
            except OSError:
                return
            if len(question) < 12:
                return
            self.questions += 1
            time.sleep(SLOW)
            number = question[:2]
            header = number + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0)
            answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([192, 0, 2, 1])
            # Without the resolver's own record at the end.
            name = question[12:].partition(b"\0\0\x29")[0]
            with contextlib.suppress(OSError):
                self._socket.sendto(header + name + answer, sender)


@pytest.mark.parametrize("flavour", ["dynamic", "musl"])
def test_a_slow_name_server_is_waited_for(tmp_path, flavour):
    """With one question: the answer takes as long by the clock inside as by the host's."""
    root()
    unshare = tool("unshare")
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {AT}\n")
    program = build.c("skip/lookup", flavour)
    command = [*lorentz.session.command(), "run", "--skip-idle", "--", program, "slow.example"]
    words = " ".join(f"'{word}'" for word in command)
    mounted = f"mount --bind '{resolver}' /etc/resolv.conf && exec {words}"
    with SlowServer() as server:
        probe = [unshare, "--mount", "sh", "-c", f"mount --bind '{resolver}' /etc/resolv.conf"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=10, check=False)
        if done.returncode != 0:
            pytest.skip(f"not possible here: {done.stderr}")
        with Native(
            [unshare, "--mount", "sh", "-c", mounted], env=lorentz.session.environment()
        ) as lookup:
            found = lookup.line(ev="found")
            lookup.succeed()
        assert (found["error"], found["address"]) == (0, "192.0.2.1")
        assert server.questions == 1
    assert SLOW * 0.9 < found["took"] < 4.5
