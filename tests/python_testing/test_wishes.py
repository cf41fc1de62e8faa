"""Wishes of users of freezegun, time-machine and libfaketime: docs/python-testing.md lists them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from framework import suites

HEAD = """
import asyncio, json, os, socket, subprocess, sys, threading, time
import lorentz
def say(*values): print(json.dumps(values if len(values) > 1 else values[0]), flush=True)
"""

#: Real seconds that the server outside takes for an answer.
ANSWERS_AFTER = 0.3


@pytest.fixture
def server() -> Iterator[str]:
    """A server that is not on the program's clock: it answers each connection after a while."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    time.sleep(ANSWERS_AFTER)
                    connection.sendall(b"answer")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield str(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "ask",
    [
        """
with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
    say(connection.recv(100).decode())
""",
        """
async def ask():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = await asyncio.wait_for(reader.read(100), 5)
    writer.close()
    return answer.decode()
say(asyncio.run(ask()))
""",
    ],
    ids=["socket", "asyncio"],
)
@pytest.mark.parametrize("block", ["frozen()", "travel('2038-01-19', skip_idle=True)"])
def test_a_timeout_does_not_fire_while_an_answer_is_under_way(server, block, ask):
    """Drivers of databases hang, or time out at once, on clocks that stand (vitest#8302,
    prisma#26609, tokio#8232). Here real answers come in real time, and then the sleeps end."""
    body = "".join(f"    {line}\n" for line in ask.strip().splitlines())
    answer, passed, slept = suites.python(
        f"""{HEAD}
port = int(sys.argv[1])
with lorentz.{block}:
    begun = time.monotonic_ns()
{body}
    passed = time.monotonic_ns() - begun
    say(passed)
    time.sleep(86400)
    say(time.monotonic_ns() - begun - passed)
""",
        server,
    )
    assert answer == "answer"
    assert passed < 5 * 10**9
    assert slept >= 86400 * 10**9


def test_no_module_is_searched_or_imported():
    """freezegun looks at each attribute of each module: 12 s among 12,000 (home-assistant#179935).
    Lazy packages then import all that they have (fiftyone#8259)."""
    (looked,) = suites.python(f"""{HEAD}
import types
looked = []
class Lazy(types.ModuleType):
    def __getattribute__(self, name):
        looked.append(name)
        return super().__getattribute__(name)
    def __dir__(self):
        looked.append("dir")
        return ["time"]
sys.modules["lazy"] = Lazy("lazy")
for block in lorentz.travel("2038-01-19"), lorentz.frozen(), lorentz.rate(2):
    with block: pass
say(looked)
""")
    assert looked == []


def test_names_that_were_imported_before_see_the_time():
    """Functions in default arguments, closures and C structures: nothing is replaced."""
    assert suites.python(f"""{HEAD}
from datetime import datetime, date
from time import time as early
stored = {{"now": datetime.now}}
def default(now=early): return time.gmtime(now()).tm_year
with lorentz.travel("2038-01-19"):
    say(stored["now"]().year, date.today().year, default(), type(datetime.now()) is datetime)
""") == [[2038, 2038, 2038, True]]


def test_performance_counters_and_monotonic_time_follow_a_rate():
    """time-machine leaves both alone (#407)."""
    (same,) = suites.python(f"""{HEAD}
with lorentz.rate(1000) as clock:
    begun = time.perf_counter_ns(), time.monotonic_ns(), clock.time().host_monotonic_ns
    time.sleep(10)
    host = clock.time().host_monotonic_ns - begun[2]
    moved = time.perf_counter_ns() - begun[0], time.monotonic_ns() - begun[1]
    say([at >= 10 * 10**9 for at in moved] + [host < 10 * 10**9 / 10])
""")
    assert same == [True, True, True]


def test_a_monotonic_deadline_that_is_polled_ends_while_the_date_is_another():
    """Code that polls until a monotonic deadline hangs where freezegun (#290, #384) or time-machine
    (#387, #406) has stopped or stepped that clock."""
    (polled,) = suites.python(f"""{HEAD}
with lorentz.travel("2038-01-19"):
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline: pass
    say(True)
""")
    assert polled


def test_several_processes_travel_together():
    """A worker pool: processes that were forked before, and others after (libfaketime#455)."""
    (years,) = suites.python(f"""{HEAD}
import multiprocessing
def year(_): return time.gmtime().tm_year
context = multiprocessing.get_context("fork")
with context.Pool(2) as early:
    early.map(year, range(4))
    with lorentz.travel("2038-01-19"), context.Pool(2) as late:
        say(sorted(set(early.map(year, range(8)) + late.map(year, range(8)))))
""")
    assert years == [2038]
