#!/usr/bin/env python3
"""A small web service with a clock of its own to keep: it ticks once a second.

Prints its address and process id, then serves `TICKS DATE`. Knows nothing of Lorentz.
"""

from __future__ import annotations

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ticks = 0


def tick() -> None:
    """Count the seconds."""
    global ticks
    while True:
        time.sleep(1)
        ticks += 1


class Answer(BaseHTTPRequestHandler):
    """Tells the ticks so far and the date."""

    def do_GET(self) -> None:
        """Answer one request."""
        body = f"{ticks} {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet about requests."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    print(f"http://127.0.0.1:{server.server_port} {os.getpid()}", flush=True)
    threading.Thread(target=tick, daemon=True).start()
    server.serve_forever()
