"""Kubernetes' own API server for custom resources, with etcd behind it.

It asks the core API who a caller is and what the caller may do. There is no core API here: a small
server answers that everybody may do everything, and that nothing else is there.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from framework import lorentz, needs
from framework.build import REPO
from framework.cluster import Etcd, Store, free_ports
from framework.running import Running

#: As scripts/kube-api builds it.
BUILT = sorted(
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")).glob(
        "lorentz/kube-api-*/apiextensions-apiserver"
    )
)
#: The API server needs some 7 s to begin, on a quiet machine.
START_TIMEOUT = 60


def api_server() -> Path:
    """The path of the API server; skips where nobody has built it."""
    if not BUILT:
        pytest.skip("Kubernetes' API server is not here (scripts/kube-api builds it in 8 minutes)")
    return BUILT[-1]


class _Core(BaseHTTPRequestHandler):
    """Answers in place of the core API."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, body: Mapping) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        user = {"username": "tester", "groups": ["system:masters", "system:authenticated"]}
        asked["status"] = {"allowed": True, "authenticated": True, "user": user}
        self.answer(asked)

    def do_GET(self) -> None:
        if "watch=" in self.path:
            # Nothing ever changes.
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            time.sleep(30)
            self.wfile.write(b"0\r\n\r\n")
            return
        metadata = {"resourceVersion": "1"}
        self.answer({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []})


def group(name: str, version: str) -> dict:
    """An API group of one version, as the list of all groups has it."""
    one = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [one], "preferredVersion": one}


class _Front(_Core):
    """The core API's part of what kubectl asks; the rest goes on to the API server at `port`."""

    port: int

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        unchecked = ssl._create_unverified_context()
        onward = http.client.HTTPSConnection("127.0.0.1", self.port, context=unchecked)
        headers = {key: value for key, value in self.headers.items() if key != "Host"}
        headers["Authorization"] = "Bearer any"
        onward.request(self.command, self.path, body or None, headers)
        answer = onward.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"] or "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            # A watch goes on until kubectl has seen enough.
            while part := answer.read1():
                self.wfile.write(part)
                self.wfile.flush()
        onward.close()
        self.close_connection = True

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/apis":
            groups = [group("apiextensions.k8s.io", "v1"), group("lorentz.dev", "v1alpha1")]
            self.answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        elif path == "/api":
            self.answer({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/api/v1":
            self.answer({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})
        else:
            self.handle_one()

    do_POST = do_PUT = do_PATCH = do_DELETE = handle_one


class KubeApi(Store):
    """The API server and all that it needs, as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = api_server()
        self.etcd = Etcd(folder)
        (self.port,) = free_ports(1)
        self.kubeconfig = folder / "kubeconfig"
        self.core = ThreadingHTTPServer(("127.0.0.1", 0), _Core)
        self.core.daemon_threads = True
        front = type("Front", (_Front,), {"port": self.port})
        self.front = ThreadingHTTPServer(("127.0.0.1", 0), front)
        self.front.daemon_threads = True
        self._write_config(folder / "core", f"http://127.0.0.1:{self.core.server_port}")
        self._write_config(folder / "front", f"http://127.0.0.1:{self.front.server_port}")
        self._write_config(self.kubeconfig, f"https://127.0.0.1:{self.port}")

    def _write_config(self, path: Path, server: str) -> None:
        cluster = {"server": server, "insecure-skip-tls-verify": server.startswith("https")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "tester", "user": {"token": "any"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "tester"}}],
            "current-context": "here",
        }
        path.write_text(json.dumps(config))

    def server(self) -> Running:
        """The API server's process, to be begun."""
        core = str(self.folder / "core")
        command = [
            str(self.program),
            *("--etcd-servers", f"http://{self.etcd.address}"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--cert-dir", str(self.folder / "certificates")),
            *("--kubeconfig", core),
            *("--authentication-kubeconfig", core, "--authorization-kubeconfig", core),
            "--authentication-skip-lookup",
            "--enable-priority-and-fairness=false",
        ]
        env = {**os.environ, "KUBE_FEATURE_WatchListClient": "false"}
        return Running(command, env=env, label="API server")

    def __enter__(self) -> KubeApi:
        for server in (self.core, self.front):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.etcd.__enter__()
        self.process = self.server()
        self.process.__enter__()
        self.wait_until_ready()
        manifest = self.folder / "crds.yaml"
        manifest.write_text(lorentz.ok("cluster", "manifest", "--crds"))
        self.kubectl("apply", "--validate=false", "-f", str(manifest))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
        return self

    def __exit__(self, *problem: object) -> None:
        self.process.__exit__(*problem)
        self.etcd.__exit__(*problem)
        for server in (self.core, self.front):
            server.shutdown()
            server.server_close()

    def wait_until_ready(self) -> None:
        unchecked = ssl._create_unverified_context()
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                with urllib.request.urlopen(
                    f"https://127.0.0.1:{self.port}/readyz", context=unchecked, timeout=5
                ):
                    return
            except OSError as error:
                assert time.monotonic() < deadline, f"{error}\n{self.process.stderr[-2000:]}"
                time.sleep(0.1)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--kubernetes",)

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *words: str) -> str:
        """Calls kubectl. The agent's program is there as the plugin `lorentz`."""
        plugins = self.folder / "plugins"
        if not plugins.exists():
            plugins.mkdir()
            (plugins / "kubectl-lorentz").symlink_to(REPO / "target" / "release" / "lorentz-agent")
        path = f"{plugins}:{os.environ['PATH']}"
        done = subprocess.run(
            [needs.tool("kubectl"), *words],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "KUBECONFIG": str(self.folder / "front"), "PATH": path},
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"kubectl {words}: {done.stderr}"
        return done.stdout
