"""Conditions of each request to `lorentz web`, with raw requests: names, origins, sessions,
types."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, needs, processes
from framework.web import Server, read_answer

pytestmark = pytest.mark.patient

#: Names that are not this server's: what a browser sends after a rebinding, and near misses.
OTHER_NAMES = ("evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.1:{port}")
PATHS = ("/", "/api/v1/state", "/api/v1/live", "/metrics", "/assets/none.js")


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_another_name_is_refused_before_all_else(server, browser, name):
    host = name.format(port=server.port)
    for path in PATHS:
        refused = server.ask("GET", path, {"Host": host, "Cookie": browser.cookie})
        assert refused.status == 421, (path, refused)
    # Where the Origin agrees with the wrong name, too.
    own = {"Host": host, "Origin": f"http://{host}"}
    refused = server.ask("POST", "/api/v1/do", {**browser.headers(), **own}, b"{}")
    assert refused.status == 421


def test_a_request_has_one_name(server):
    for head in (
        f"GET / HTTP/1.1\r\nHost: {server.host}\r\nHost: evil.example\r\n\r\n",
        f"GET http://evil.example/ HTTP/1.1\r\nHost: {server.host}\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ):
        assert server.say(head.encode()).status in (400, 421), head


def test_its_own_names_are_accepted(server):
    for host in (server.host, f"localhost:{server.port}", f"[::1]:{server.port}"):
        assert server.ask("GET", "/", {"Host": host}).status == 200, host


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "null", "file://"],
)
def test_another_origin_is_refused(server, browser, origin):
    headers = {**browser.headers(), "Origin": origin.format(port=server.port)}
    for method, path in (("GET", "/api/v1/state"), ("POST", "/api/v1/do"), ("GET", "/")):
        refused = server.ask(method, path, headers, b'{"do": "freeze", "name": "x", "dry": true}')
        assert refused.status == 403 and "Origin" in refused.error, (path, refused)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_is_refused(server, browser, site):
    for path in ("/", "/api/v1/state"):
        headers = {"Cookie": browser.cookie, "Sec-Fetch-Site": site}
        refused = server.ask("GET", path, headers)
        assert refused.status == 403 and "Sec-Fetch-Site" in refused.error


def test_nothing_of_the_interface_goes_without_a_session(server, browser):
    for path in (
        "/api/v1/state",
        "/api/v1/live",
        "/api/v1/files",
        "/api/v1/none",
        "/api/v1/session",
    ):
        assert server.ask("GET", path).status == 401, path
        wrong = {"Cookie": f"{browser.cookie.partition('=')[0]}={'0' * 64}"}
        assert server.ask("GET", path, wrong).status == 401, path
    other = {"Cookie": browser.cookie.replace(str(server.port), "1")}
    assert server.ask("GET", "/api/v1/state", other).status == 401, "a cookie of another port"
    assert browser.get("/api/v1/state").status == 200


def test_a_session_begins_with_the_token_alone(server):
    def begin(token: str) -> int:
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"token": token}).encode()
        return server.ask("POST", "/api/v1/session", headers, body).status

    for wrong in ("", server.token[:-1], server.token + "0", "0" * 64):
        assert begin(wrong) == 401, wrong
    assert server.logged("session refused")["peer"].startswith("127.0.0.1:")
    assert begin(server.token) == 200
    assert len(server.token) == 64


def test_the_cookie_is_for_this_server_alone(browser, server):
    words = {word.strip().lower() for word in browser.set_cookie.split(";")[1:]}
    assert words == {"path=/", "httponly", "samesite=strict"}
    assert browser.cookie.startswith(f"lorentz-{server.port}=")
    assert browser.get("/api/v1/session").json() == {"change_token": browser.change_token}


def test_a_change_needs_the_token_of_its_session(server, browser):
    body = b'{"do": "freeze", "name": "x", "dry": true}'
    for token in ("", "0" * 64, server.browser().change_token):
        headers = browser.headers(**{"X-Lorentz-Token": token})
        refused = server.ask("POST", "/api/v1/do", headers, body)
        assert refused.status == 403 and "X-Lorentz-Token" in refused.error
    assert server.ask("POST", "/api/v1/do", browser.headers(), body).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_what_a_form_can_send_is_no_change(server, browser, kind):
    body = b'{"do": "freeze", "name": "x", "dry": true}'
    headers = browser.headers(**{"Content-Type": kind})
    assert server.ask("POST", "/api/v1/do", headers, body).status == 415


def test_no_other_site_may_read_or_ask_first(server, browser):
    """There is no CORS: not for a question before a request, and not in answers."""
    ask_first = {"Origin": server.origin, "Access-Control-Request-Method": "POST"}
    assert server.ask("OPTIONS", "/api/v1/do", ask_first).status == 405
    for method in ("DELETE", "PATCH", "TRACE"):
        assert server.ask(method, "/api/v1/state", browser.headers()).status == 405
    for answer in (
        browser.get("/api/v1/state"),
        server.ask("GET", "/"),
        server.ask("OPTIONS", "/"),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_each_answer_keeps_the_page_to_itself(server, browser):
    refused = server.ask("GET", "/", {"Host": "evil.example"})
    for answer in (server.ask("GET", "/"), browser.get("/api/v1/state"), refused):
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert browser.get("/api/v1/state").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/api/v1/terminal?container=x", "/api/v1/capture?network=x&end=a:b"]
)
def test_a_websocket_needs_origin_and_session(server, browser, path):
    for headers, status in (
        ({"Origin": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Cookie": ""}, 401),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({}, 404),
    ):
        assert browser.websocket(path, **headers).status == status, headers


def test_a_long_body_is_refused(server, browser):
    refused = server.ask("POST", "/api/v1/check", browser.headers(), b" " * ((1 << 20) + 1))
    assert refused.status == 413
    assert browser.post("/api/v1/check", {"text": "#" * 500_000}).status == 200


def test_headers_that_do_not_end_are_refused(server):
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        # Until the server closes the connection, with an answer or without; else a recv fails.
        while connection.recv(4096):
            pass


def test_streams_are_bounded(server, browser):
    streams = [browser.events() for _ in range(33)]
    try:
        statuses = [stream.status for stream in streams]
        assert statuses == [200] * 32 + [429]
    finally:
        for stream in streams:
            stream.__exit__()
    # Their places are free again, once the server has seen that they are gone.
    while (again := browser.events()).status == 429:
        again.__exit__()
    again.__exit__()


def test_a_read_only_server_changes_nothing(folder):
    with Server(folder, "--read-only") as server:
        browser = server.browser()
        assert browser.get("/api/v1/about").json()["read_only"] is True
        refused = browser.post("/api/v1/do", {"do": "freeze", "name": "x"})
        assert refused.status == 403 and "--read-only" in refused.error
        assert browser.put("new.yaml", "x", If_None_Match="*").status == 403
        assert not (folder / "new.yaml").exists()
        assert browser.websocket("/api/v1/terminal?container=x").status == 403
        assert browser.do("freeze", name="x", dry=True)["command"] == "lorentz freeze x"
        assert browser.post("/api/v1/check", {"text": ""}).status == 200
        assert browser.get("/api/v1/state").status == 200


def test_other_addresses_need_tls_or_a_word(folder):
    refused = lorentz.call("web", str(folder), "--listen", "0.0.0.0:0")
    assert refused.returncode == 2 and "--insecure" in refused.stderr
    with Server(folder, "--listen", "0.0.0.0:0", "--insecure") as server:
        assert server.ask("GET", "/api/v1/state").status == 401
        assert server.ask("GET", "/", {"Host": f"0.0.0.0:{server.port}"}).status == 421
        assert server.browser().get("/api/v1/state").status == 200


def certificate(folder: Path, name: str) -> tuple[str, str]:
    """Makes a certificate for 127.0.0.1 and its key. Returns their paths."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [needs.tool("openssl"), "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    return str(certificate), str(key)


def test_a_server_with_a_certificate_speaks_tls_alone(folder, tmp_path):
    first, key = certificate(tmp_path, "first")
    flags = ("--listen", "0.0.0.0:0", "--tls-cert", first, "--tls-key", key)
    with Server(folder, *flags) as server:
        assert server.line.startswith("https://")
        trusted = ssl.create_default_context(cafile=first)
        with trusted.wrap_socket(server.connect(), server_hostname="127.0.0.1") as connection:
            body = json.dumps({"token": server.token})
            origin = f"https://{server.host}"
            head = ["POST /api/v1/session HTTP/1.1", f"Host: {server.host}", f"Origin: {origin}"]
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
            connection.sendall("\r\n".join([*head, "", body]).encode())
            begun = read_answer(connection, "POST")
        assert begun.status == 200 and "; Secure" in begun.headers["set-cookie"]
        with server.connect() as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
            assert not connection.recv(5).startswith(b"HTTP")
    _, other = certificate(tmp_path, "other")
    for wrong in (("--tls-cert", first), ("--tls-cert", first, "--tls-key", other)):
        refused = lorentz.call("web", str(folder), *wrong)
        assert refused.returncode == 2 and "--tls-key" in refused.stderr


def test_a_further_name_is_accepted(folder):
    with Server(folder, "--name", "lab.example") as server:
        for host in (f"lab.example:{server.port}", server.host):
            assert server.ask("GET", "/", {"Host": host}).status == 200
        assert server.ask("GET", "/", {"Host": "lab.example"}).status == 421


def test_tokens_come_from_files_of_their_owner(folder):
    token = folder / "token"
    token.write_text("a" * 40)
    token.chmod(0o644)
    refused = lorentz.call("web", str(folder), "--token-file", str(token))
    assert refused.returncode == 2 and "0600" in refused.stderr
    token.chmod(0o600)
    flags = ("--token-file", str(token), "--metrics-token-file", str(token))
    with Server(folder, *flags) as server:
        assert server.token == "a" * 40
        for header, status in (("", 401), ("Bearer wrong", 401), (f"Bearer {'a' * 40}", 200)):
            assert server.ask("GET", "/metrics", {"Authorization": header}).status == status
    with Server(folder) as server:
        assert server.ask("GET", "/metrics", {"Authorization": "Bearer "}).status == 404


def unix(path: Path, host: str) -> int:
    """The status of an answer at a unix socket; 0 if the server closes the connection at once."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        try:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return read_answer(connection).status
        except (BrokenPipeError, ConnectionResetError, OSError):
            return 0


def test_a_unix_socket_is_for_its_user(folder):
    path = folder / "web.sock"
    with Server(folder, "--socket", str(path)) as server:
        assert f"-L 8080:{path}" in server.line
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert unix(path, "localhost:8080") == 200
        assert unix(path, "evil.example:8080") == 421
        refused = lorentz.call("web", str(folder), "--socket", str(path))
        assert refused.returncode == 2 and "in use" in refused.stderr
    assert not path.exists()


def test_another_user_is_refused_at_a_unix_socket(folder):
    """Even where the permissions let the other user connect."""
    needs.root()
    path = folder / "open.sock"
    with Server(folder, "--socket", str(path)):
        path.chmod(0o666)
        for parent in (folder, *folder.parents):
            if parent == Path("/tmp"):
                break
            parent.chmod(parent.stat().st_mode | 0o011)
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.setgroups([])
                os.setgid(lorentz.NOBODY)
                os.setuid(lorentz.NOBODY)
                status = 1 if unix(path, "localhost:1") else 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert unix(path, "localhost:1") == 200


def test_it_ends_by_a_signal_and_leaves_nothing(folder):
    with Server(folder) as server, server.browser().events() as events:
        events.until(lambda event: event.kind == "state")
        server.process.terminate()
        assert server.process.wait(60) == 0
    assert processes.tagged(server.tag) == []
