"""Time waits for what a container awaits from outside, and not for what goes on within it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time

import pytest
from framework import lorentz
from framework.skipping import BLINK, BY_COUNT, BY_LOOKING, python, seconds_inside, skipping


@contextlib.contextmanager
def slow_server(delay: float):
    """A server outside that answers each line after `delay` real seconds."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    time.sleep(delay)
                    connection.sendall(b"answer\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


CLIENT = (
    "import socket, sys\n"
    "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)\n"
    "s.sendall(b'x')\n"
    "try: print(s.recv(100).decode().strip(), flush=True)\n"
    "except TimeoutError: print('timeout', flush=True)\n"
)


@pytest.mark.parametrize("unprivileged", [BY_COUNT, BY_LOOKING])
def test_a_timeout_on_the_outside_does_not_fire_early(unprivileged):
    """A timeout of five seconds for a server outside that answers in a third of one."""
    with (
        slow_server(0.3) as port,
        skipping(*python(CLIENT), str(port), unprivileged=unprivileged) as inside,
    ):
        inside.succeed(timeout=BLINK)
        assert inside.stdout.strip() == "answer"


def test_force_ignores_the_outside():
    with (
        slow_server(60) as port,
        skipping(*python(CLIENT), str(port), mode="--skip-idle=force") as inside,
    ):
        inside.succeed(timeout=BLINK)
        assert inside.stdout.strip() == "timeout"


def test_who_sleeps_beside_one_that_waits_for_the_outside_keeps_to_the_rate():
    text = (
        "import socket, threading, sys\n"
        "a = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "threading.Thread(target=a.recv, args=[1], daemon=True).start()\n"
        "start = time.monotonic(); time.sleep(0.5)\n"
    )
    with slow_server(60) as port:
        program = "import time\n" + text + "print('slept', flush=True)\n"
        began = time.monotonic()
        with skipping(*python(program), str(port)) as inside:
            inside.finish(timeout=BLINK)
        assert time.monotonic() - began >= 0.5


def test_ps_says_for_whom_time_waits():
    """One process waits for a connection, one works: ps gives the number and the reason in
    words."""
    ready = 'print(\'{"ev": "ready"}\', flush=True)\n'
    with slow_server(60) as port, skipping(*python(ready + CLIENT), str(port)) as inside:
        inside.line(ev="ready")
        deadline = time.monotonic() + BLINK
        while not (cause := inside.shown()["skip"]["held_by"]) or str(port) not in cause["what"]:
            assert time.monotonic() < deadline, cause
            time.sleep(0.05)
        assert cause["pid"] in inside.shown()["pids"]
        assert str(port) in lorentz.ok("ps")
    with skipping(*python(ready + "while True: pass")) as inside:
        inside.line(ev="ready")
        deadline = time.monotonic() + BLINK
        while (inside.shown()["skip"]["held_by"] or {}).get("what") != "runs":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_pipe_from_outside_holds_time():
    """`read -t 5` gets what comes after a while."""
    command = [*lorentz.session.command(), "run", "--skip-idle", "--"]
    with subprocess.Popen(
        [*command, "bash", "-c", 'read -t 5 line; echo "got $line"'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=lorentz.session.environment(),
        text=True,
    ) as process:
        time.sleep(0.4)
        output, _ = process.communicate("something\n", timeout=BLINK)
    assert output == "got something\n"


def test_a_pipe_inside_does_not_hold_time():
    with skipping("bash", "-c", "(sleep 3600; echo done) | cat") as inside:
        inside.succeed(timeout=BLINK)
        assert inside.stdout.strip() == "done"


def test_a_listening_socket_alone_does_not_hold_time():
    text = (
        "import socket, threading\ns = socket.create_server(('127.0.0.1', 0))\n"
        "threading.Thread(target=s.accept, daemon=True).start()\ntime.sleep(86400)"
    )
    program = "import time, os\n" + text + "\nos._exit(0)\n"
    began = time.monotonic()
    with skipping(*python(program)) as inside:
        inside.succeed(timeout=BLINK)
    assert time.monotonic() - began < BLINK


def test_a_client_and_a_server_on_loopback_inside():
    """Thirty-second keep-alives and retries: a quarter of an hour of them, no message lost."""
    text = (
        "import socket, threading\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "def serve():\n"
        "    while True:\n"
        "        c, _ = server.accept()\n"
        "        with c:\n"
        "            while data := c.recv(100):\n"
        "                time.sleep(3); c.sendall(data)\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
        "c = socket.create_connection(('127.0.0.1', port)); c.settimeout(10)\n"
        "for i in range(30):\n"
        "    c.sendall(b'%d' % i); assert c.recv(100) == b'%d' % i; time.sleep(27)\n"
    )
    assert 30 * 30 <= seconds_inside(text) < 30 * 30 + BLINK


def test_messages_between_two_processes_that_sleep_in_turn():
    """With a pipe in each direction: no message is lost, the order stays, and the time is the sum
    of the sleeps."""
    rounds = 300
    text = (
        "import os\n"
        "to_child, from_parent = os.pipe(); to_parent, from_child = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(from_parent)\n"
        "    while data := os.read(to_child, 8): time.sleep(1); os.write(from_child, data)\n"
        "    os._exit(0)\n"
        "os.close(to_child); os.close(from_child)\n"
        f"for i in range({rounds}):\n"
        "    os.write(from_parent, b'%8d' % i)\n"
        "    assert int(os.read(to_parent, 8)) == i; time.sleep(1)\n"
        "os.close(from_parent); os.wait()\n"
    )
    assert 2 * rounds <= seconds_inside(text) < 2 * rounds + BLINK
