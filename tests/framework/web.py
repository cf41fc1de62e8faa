"""A server of `lorentz web`, and clients that say exactly what a test wants: raw requests, streams
of events, WebSockets.

with Server(folder) as server:
    browser = server.browser()
    state = browser.get("/api/v1/state").json()
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import queue
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from framework import lorentz, processes

#: Time limit of everything that a client waits for, s.
TIMEOUT = 60


@dataclasses.dataclass
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line that says why a request was refused."""
        text = self.json()["error"]
        assert "\n" not in text, text
        return text


class Server:
    """A server, as long as the block runs. `flags` are those of `lorentz web`; the shells of its
    terminals are `shell`, with the settings in `home`."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        session: lorentz.Session = lorentz.session,
        shell: str = "/bin/bash",
        home: Path | None = None,
    ):
        self.folder = folder
        self.tag = processes.new_tag()
        command = [*session.command(), "web", str(folder), *flags]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **session.environment(),
                # Shells in terminals read no settings of the user who runs the tests.
                "HOME": str(home or session.folder),
                "SHELL": shell,
                processes.TAG: self.tag,
            },
        )
        self.log: queue.Queue[dict] = queue.Queue()
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        line = self.process.stdout.readline()
        self.line = line.strip()
        self.token = line.strip().rpartition("#")[2]
        found = re.match(r"https?://(\[.*?\]|[^:/]+):(\d+)/#", self.line)
        self.port = int(found[2]) if found else 0
        self.host = f"127.0.0.1:{self.port}"

    def _read_log(self) -> None:
        for line in self.process.stderr:
            if line.startswith("{"):
                self.log.put(json.loads(line))
            else:
                self.errors.append(line)

    def __enter__(self) -> Server:
        if not self.token:
            self.__exit__()
        assert self.token, self.errors
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT)
        finally:
            processes.kill_tagged(self.tag)
            self._reader.join(TIMEOUT)
            self.process.stdout.close()
            self.process.stderr.close()

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def logged(self, what: str) -> dict:
        """Waits for a line of the log about `what`."""
        while True:
            line = self.log.get(timeout=TIMEOUT)
            if line["what"] == what:
                return line

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Sends a request with just these headers, and Host unless they have it."""
        headers = {"Host": self.host, "Content-Length": str(len(body)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        return self.say("\r\n".join(lines).encode() + b"\r\n\r\n" + body, method)

    def say(self, request: bytes, method: str = "GET") -> Answer:
        """Sends these bytes, and reads an answer."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_answer(connection, method)

    def browser(self) -> Browser:
        """A client with a session."""
        return Browser(self)


def read_answer(connection: socket.socket, method: str = "GET") -> Answer:
    """Reads the answer to a request of this method."""
    answer = http.client.HTTPResponse(connection, method=method)
    answer.begin()
    return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


class Browser:
    """A client that does what the page does: it has a session, and sends what browsers send."""

    def __init__(self, server: Server) -> None:
        self.server = server
        body = json.dumps({"token": server.token}).encode()
        begun = server.ask("POST", "/api/v1/session", self._own("application/json"), body)
        assert begun.status == 200, begun
        self.set_cookie = begun.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]
        self.change_token = begun.json()["change_token"]

    def _own(self, kind: str = "") -> dict[str, str]:
        own = {"Origin": self.server.origin, "Sec-Fetch-Site": "same-origin"}
        return {**own, "Content-Type": kind} if kind else own

    def headers(self, **more: str) -> dict[str, str]:
        """Headers of a request that changes something."""
        own = {**self._own("application/json"), "Cookie": self.cookie}
        return {**own, "X-Lorentz-Token": self.change_token, **more}

    def get(self, path: str) -> Answer:
        headers = {"Cookie": self.cookie, "Sec-Fetch-Site": "same-origin"}
        return self.server.ask("GET", path, headers)

    def post(self, path: str, value: object) -> Answer:
        return self.server.ask("POST", path, self.headers(), json.dumps(value).encode())

    def do(self, verb: str, **fields: object) -> dict:
        """Carries out an action, which must be accepted."""
        done = self.post("/api/v1/do", {"do": verb, **fields})
        assert done.status == 200, done
        return done.json()

    def put(self, path: str, text: str, **condition: str) -> Answer:
        headers = self.headers(**{"Content-Type": "text/plain"})
        headers |= {key.replace("_", "-"): value for key, value in condition.items()}
        return self.server.ask("PUT", f"/api/v1/files/{path}", headers, text.encode())

    def events(self, last: str = "") -> Events:
        return Events(self, last)

    def websocket(self, path: str, **headers: str) -> WebSocket:
        return WebSocket(self.server, path, {"Cookie": self.cookie, **headers})


@dataclasses.dataclass
class Event:
    """A server-sent event."""

    kind: str
    id: str
    data: dict


class Events:
    """The stream of changes, open as long as the block runs."""

    def __init__(self, browser: Browser, last: str = "") -> None:
        headers = {"Host": browser.server.host, "Cookie": browser.cookie}
        if last:
            headers["Last-Event-ID"] = last
        lines = ["GET /api/v1/live HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        self.connection = browser.server.connect()
        self.connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.answer = http.client.HTTPResponse(self.connection)
        self.answer.begin()
        self.status = self.answer.status

    def __enter__(self) -> Events:
        assert self.status == 200, self.answer.read()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        while line := self.answer.readline():
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key:
                fields[key] = value
            else:
                data = json.loads(fields["data"])
                yield Event(fields["event"], fields.get("id", ""), data)
                fields = {}

    def until(self, good: object) -> Event:
        """Waits for an event for which `good` holds."""
        for event in self:
            if good(event):
                return event
        raise AssertionError("the stream has ended")


class WebSocket:
    """A WebSocket, by RFC 6455, as far as tests need it."""

    TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

    def __init__(self, server: Server, path: str, headers: dict[str, str]) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        all_headers = {
            "Host": server.host,
            "Origin": server.origin,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            **headers,
        }
        lines = [f"{k}: {v}" for k, v in all_headers.items() if v]
        request = "\r\n".join([f"GET {path} HTTP/1.1", *lines]).encode() + b"\r\n\r\n"
        self.connection = server.connect()
        self.connection.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.connection.recv(1)
            assert byte, head
            head += byte
        self.status = int(head.split()[1])
        self.head = head.decode()

    def __enter__(self) -> WebSocket:
        assert self.status == 101, self.head
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def send(self, data: str | bytes) -> None:
        kind = self.TEXT if isinstance(data, str) else self.BINARY
        self._send(kind, data.encode() if isinstance(data, str) else data)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            length = bytes([0x80 | 127]) + struct.pack(">Q", size)
        # A mask of zeros is a mask.
        self.connection.sendall(bytes([0x80 | kind]) + length + bytes(4) + data)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self) -> str | bytes | None:
        """The next message; None when the server has closed the connection."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                first, second = self._exactly(2)
                size = second & 0x7F
                if size == 126:
                    (size,) = struct.unpack(">H", self._exactly(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", self._exactly(8))
                data = self._exactly(size)
                match first & 0x0F:
                    case self.TEXT:
                        return data.decode()
                    case self.BINARY:
                        return data
                    case self.PING:
                        self._send(self.PONG, data)
                    case self.CLOSE:
                        return None
        return None

    def until(self, words: str) -> str:
        """Reads what a terminal shows until `words` are there."""
        shown = ""
        while words not in shown:
            message = self.receive()
            assert message is not None, shown
            shown += message.decode(errors="replace") if isinstance(message, bytes) else message
        return shown
