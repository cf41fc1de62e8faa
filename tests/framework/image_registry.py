"""A registry of one image on loopback, for those who pull it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class _Registry(http.server.BaseHTTPRequestHandler):
    """The part of the distribution protocol by which an image is pulled. `folder` is set by a
    subclass: the image as `podman push` writes it into a directory."""

    folder: Path

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if self.path == "/v2/":
            self._answer("application/json", b"{}")
        elif "/manifests/" in self.path:
            self._answer(MANIFEST, (self.folder / "manifest.json").read_bytes())
        elif (blob := self.folder / name.removeprefix("sha256:")).is_file():
            self._answer("application/octet-stream", blob.read_bytes())
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serves the image in `folder`. Yields the registry's host and port."""
    assert json.loads((folder / "manifest.json").read_text())["mediaType"] == MANIFEST
    handler = type("Registry", (_Registry,), {"folder": folder})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
