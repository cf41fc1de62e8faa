"""Skipping idle time: a day takes a moment, and no deadline comes too soon."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from framework import build, lorentz, real
from framework.needs import tool
from framework.oracle import HostNoise
from framework.running import Inside, Native

DAY = 86_400
#: Time limit of a skipped day on the busiest machine, real seconds.
BLINK = 20

BY_COUNT = pytest.param(False, id="counted")
BY_LOOKING = pytest.param(True, id="looked")


def skipping(*command: str | Path, mode: str = "--skip-idle", **options) -> Inside:
    return Inside(*command, options=[mode, *options.pop("flags", [])], **options)


def python(text: str) -> list[str]:
    return [real.python(), "-c", text]


def seconds_inside(text: str, *flags: str, **options) -> float:
    """Virtual seconds that a Python program takes between `start` and its end."""
    program = (
        "import time, json\nstart = time.monotonic()\n"
        + text
        + "\nprint(json.dumps({'ev': 'took', 'took': time.monotonic() - start}), flush=True)\n"
    )
    began = time.monotonic()
    with skipping(*python(program), flags=flags, **options) as inside:
        took = inside.line(ev="took", timeout=BLINK)["took"]
        inside.succeed(timeout=BLINK)
    assert time.monotonic() - began < BLINK
    return took


@pytest.mark.parametrize("unprivileged", [BY_COUNT, BY_LOOKING])
def test_a_day_is_over_at_once(unprivileged):
    """As root with the kernel's counters, and without rights by reading /proc."""
    began = time.monotonic()
    with skipping("sleep", str(DAY), unprivileged=unprivileged) as inside:
        inside.succeed(timeout=BLINK)
    assert time.monotonic() - began < BLINK


WAITS = {
    "sleep": "time.sleep(86400)",
    "select": "import select; select.select([], [], [], 86400)",
    "poll": "import select; select.poll().poll(86400 * 1000)",
    "epoll": "import select; select.epoll().poll(86400)",
    "condition": "import threading; threading.Event().wait(86400)",
    "join": "import threading\n"
    "t = threading.Thread(target=time.sleep, args=[86400]); t.start(); t.join(90000)",
    "queue": "import queue\ntry: queue.Queue().get(timeout=86400)\nexcept queue.Empty: pass",
    "sigtimedwait": "import signal; signal.sigtimedwait([signal.SIGUSR1], 86400)",
    "alarm": "import signal; signal.signal(14, lambda *a: None)\n"
    "signal.alarm(86400); signal.pause()",
    "setitimer": "import signal; signal.signal(14, lambda *a: None)\n"
    "signal.setitimer(signal.ITIMER_REAL, 86400); signal.pause()",
    "asyncio": "import asyncio; asyncio.run(asyncio.sleep(86400))",
    "subprocess": "import subprocess; subprocess.run(['sleep', '86400'])",
    "socket timeout": "import socket\n"
    "s = socket.create_server(('127.0.0.1', 0)); s.settimeout(86400)\n"
    "try: s.accept()\nexcept TimeoutError: pass",
}


@pytest.mark.parametrize("wait", WAITS)
def test_every_kind_of_wait_is_skipped(wait):
    took = seconds_inside(WAITS[wait])
    assert DAY <= took < DAY + BLINK


def test_a_program_that_looks_again_and_again_sees_its_deadline_first():
    """subprocess waits by short sleeps: thousands of leaps, none to the child's longer sleep."""
    text = (
        "import subprocess\ntry: subprocess.run(['sleep', '10000'], timeout=200)\n"
        "except subprocess.TimeoutExpired: pass"
    )
    assert 200 <= seconds_inside(text) < 200 + BLINK


@pytest.mark.parametrize("flavour", ["dynamic", "static", "musl"])
def test_timer_descriptors_and_timers_are_skipped(flavour):
    """A periodic timer descriptor, and a POSIX timer: no expiry is lost, none doubled."""
    began = time.monotonic()
    with skipping(build.c("skip/timers", flavour)) as inside:
        event = inside.line(ev="timers", timeout=BLINK)
        inside.succeed()
    assert time.monotonic() - began < BLINK
    assert event["fd"] == 100
    assert event["posix"] == 50
    assert 3600 * 100 <= event["seconds"] < 3600 * 100 + 3600


def test_sleepers_wake_in_order():
    """Sleep sort, by bash: deadlines a second and a millisecond apart."""
    script = "for i in 5 3 1 4 2; do (sleep $i; echo $i) & done; wait; " + (
        "for i in 5 3 1 4 2; do (sleep 0.00$i; echo $i) & done; wait"
    )
    with skipping("bash", "-c", script) as inside:
        inside.succeed(timeout=BLINK)
        assert inside.stdout.split()[:5] == list("12345")


def test_three_sleepers_a_millisecond_apart_wake_at_their_own_time_in_order():
    """Each leap ends at the deadline itself: no thread sees a moment before it. A machine that
    delays a thread by a millisecond of its clock, which is a tenth of a second here, changes the
    order, as natively; not most of the time."""
    program = build.c("skip/order")
    in_order = 0
    for _ in range(9):
        with (
            HostNoise() as noise,
            skipping(program, "3", "1000000", rate="1/100") as inside,
        ):
            inside.succeed(timeout=BLINK)
            lines = inside.lines(ev="woke")
        in_order += [line["who"] for line in lines] == [0, 1, 2]
        assert min(line["late_ns"] for line in lines) >= 0
        assert max(line["late_ns"] for line in lines) < (1 + noise.slack) * 1e9 / 100
    assert in_order >= 5


def test_sleepers_an_hour_apart_wake_at_their_own_hours():
    program = build.c("skip/order")
    for _ in range(5):
        with skipping(program, "20", "3600000000000") as inside:
            inside.succeed(timeout=BLINK)
            lines = inside.lines(ev="woke")
        assert [line["who"] for line in lines] == list(range(20))
        assert min(line["late_ns"] for line in lines) >= 0
        assert max(line["late_ns"] for line in lines) < BLINK * 1e9


def test_the_work_is_done_before_the_next_leap():
    """The woken process computes for a while in real time; the next deadline comes after that."""
    text = (
        "import threading\nlog = []\n"
        "def work(i):\n"
        "    time.sleep(i * 1000); end = time.process_time() + 0.05\n"
        "    while time.process_time() < end: pass\n"
        "    log.append(time.monotonic() - start)\n"
        "threads = [threading.Thread(target=work, args=[i]) for i in range(1, 6)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert log == sorted(log)\n"
        "for i, at in enumerate(log): assert 1000 * (i + 1) <= at < 1000 * (i + 1) + 100, log\n"
    )
    assert 5000 <= seconds_inside(text) < 5100


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


def orders_of_rounds(runs: int, rounds: int) -> set[str]:
    """Returns the orders of wake-ups in `runs` runs of two processes that sleep and exchange
    messages."""
    orders = set()
    for _ in range(runs):
        with skipping(build.c("skip/rounds"), str(rounds)) as inside:
            event = inside.line(ev="rounds", timeout=80)
            inside.succeed(timeout=BLINK)
        assert (event["steps"], event["wrong"]) == (2 * rounds, 0)
        orders.add(event["order"])
    return orders


@pytest.mark.parametrize(("runs", "rounds"), [(3, 1_000), (60, 40)])
def test_two_processes_wake_in_the_same_order_in_every_run(runs, rounds):
    """In long runs, and in many beginnings: the second process is born as time begins to leap."""
    assert len(orders_of_rounds(runs, rounds)) == 1


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_processes_wake_in_the_same_order_in_a_hundred_long_runs():
    assert len(orders_of_rounds(100, 10_000)) == 1


def test_a_child_that_has_just_been_forked_is_not_overlooked():
    """Each child's hour begins where it was forked, however soon its parent sleeps."""
    text = (
        "import os\n"
        "for i in range(50):\n"
        "    if os.fork() == 0: time.sleep(3600); os._exit(0)\n"
        "    os.wait()\n"
    )
    assert 50 * 3600 <= seconds_inside(text) < 50 * 3600 + BLINK


WAYS = ["fork", "clone", "vfork", "posix_spawn", "orphan", "thread", "clone_vm"]


@pytest.mark.parametrize("flavour", ["dynamic", "static", "musl"])
def test_a_thread_that_leaps_by_itself_knows_what_it_has_begun(flavour):
    """A sole thread leaps without a skipper. Each child or thread that it begins reads the clock,
    and time does not leap meanwhile, as it would over the thousand seconds of the parent's sleep.
    """
    with skipping(build.c("skip/clones", flavour)) as inside:
        spun = inside.wait_for(3 * len(WAYS), ev="spun", timeout=60)
        inside.line(ev="done")
        inside.succeed(timeout=BLINK)
    assert sorted(line["way"] for line in spun) == sorted(3 * WAYS)
    assert max(line["widest_ns"] for line in spun) < 100e9, "time has leapt"


def wait_for_leaps(inside: Inside, count: int) -> None:
    """Returns after `count` further leaps."""
    before = inside.time()["skip"]["leaps"]
    deadline = time.monotonic() + BLINK
    while inside.time()["skip"]["leaps"] < before + count:
        assert time.monotonic() < deadline, f"fewer than {count} leaps in {BLINK} s"
        time.sleep(0.02)


def test_a_thread_that_leaps_by_itself_knows_who_comes():
    """A command enters its clock: time does not leap over the rest of a sleep of a hundred seconds
    while the command works."""
    clones = str(build.c("skip/clones"))
    nap = 'import time\nprint(\'{"ev": "up"}\', flush=True)\nwhile True: time.sleep(100)'
    with skipping(*python(nap)) as inside:
        inside.line(ev="up")
        wait_for_leaps(inside, 1_000)
        skipper = inside.time()["skip"]["skipper"]
        os.kill(skipper, signal.SIGSTOP)
        wait_for_leaps(inside, 1_000)  # by itself
        os.kill(skipper, signal.SIGCONT)
        for way in ("one", "two"):
            entered = lorentz.ok("exec", inside.name, "--", clones, "spin", way)
            widest = int(entered.split('"widest_ns":')[1].split("}")[0])
            assert widest < 10e9, "time has leapt"
            wait_for_leaps(inside, 1)


def test_at_offset_and_rate_go_with_it():
    with skipping("bash", "-c", "date -u +%F; sleep 86400; date -u +%F", at="2500-01-01") as inside:
        inside.succeed(timeout=BLINK)
        assert inside.stdout.split() == ["2500-01-01", "2500-01-02"]
    assert DAY <= seconds_inside("time.sleep(86400)", "--rate", "10") < DAY + 10 * BLINK
    assert DAY <= seconds_inside("time.sleep(86400)", "--rate", "1/10") < DAY + BLINK


def test_while_something_works_time_keeps_to_its_rate():
    text = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    end = time.process_time() + 4\n"
        "    while time.process_time() < end: pass\n"
        "    os._exit(0)\n"
        "time.sleep(2); now = time.monotonic() - start; os.wait()\n"
        "assert 2 <= now < 2.5 * 10, now\n"
    )
    took = seconds_inside(text, "--rate", "4")
    assert took < 4 * BLINK


def test_a_frozen_clock_does_not_leap():
    with Inside("bash", "-c", 'echo \'{"ev": "ready"}\'; sleep 3600') as inside:
        inside.line(ev="ready")
        inside.freeze()
        inside.verb("skip", "on")
        time.sleep(0.3)
        assert inside.process.poll() is None
        inside.unfreeze()
        inside.succeed(timeout=BLINK)


def test_skipping_is_switched_on_and_off():
    program = (
        'import time, json\nwhile True: time.sleep(60); print(\'{"ev": "minute"}\', flush=True)'
    )
    ready = 'print(\'{"ev": "ready"}\', flush=True)\n'
    with Inside(*python(ready + program)) as inside:
        inside.line(ev="ready")
        time.sleep(0.3)
        assert not inside.lines(ev="minute")
        inside.verb("skip", "on")
        inside.wait_for(10, ev="minute", timeout=BLINK)
        assert inside.time()["skip"]["mode"] == "on"
        inside.verb("skip", "off")
        off = inside.time()
        time.sleep(0.5)
        end = inside.time()
        real = end["host"]["monotonic_ns"] - off["host"]["monotonic_ns"]
        # One leap may have been under way.
        assert real <= end["monotonic_ns"] - off["monotonic_ns"] <= real + 60 * 10**9
        assert end["skip"] is None


def test_skipping_that_is_switched_off_and_on_at_once_has_a_new_skipper():
    """The second command does not take one that is about to end for one that skips."""
    with Inside("cat", rate="1", stdin=True) as inside:
        inside.wait_until_shown()
        seen = set()
        for _ in range(20):
            inside.verb("skip", "on")
            skipper = inside.time()["skip"]["skipper"]
            assert skipper is not None and skipper not in seen
            seen.add(skipper)
            inside.verb("skip", "off")


def test_attach_skips():
    program = 'import time\nwhile True: time.sleep(60); print(\'{"ev": "minute"}\', flush=True)'
    with Native(python(program)) as native:
        time.sleep(0.5)
        event = lorentz.json_of("attach", str(native.pid), "--skip-idle")
        native.wait_for(10, ev="minute", timeout=BLINK)
    lorentz.wait_until_gone(event["name"])


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


def test_a_program_that_spins_on_the_clock_comes_to_an_end_for_a_price():
    text = "while time.monotonic() - start < 3600: pass"
    assert 3600 <= seconds_inside(text, "--read-cost", "1ms") < 3700


def test_the_skipper_killed_programs_go_on_and_ps_says_so():
    program = 'echo \'{"ev": "ready"}\'; while :; do sleep 0.2; done'
    with skipping("bash", "-c", program) as inside:
        inside.line(ev="ready")
        skipper = inside.shown()["skip"]["skipper"]
        os.kill(skipper, signal.SIGKILL)
        deadline = time.monotonic() + BLINK
        while inside.shown()["skip"]["skipper"] is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "'lorentz skip" in lorentz.ok("ps")
        inside.verb("skip", "on")
        assert inside.shown()["skip"]["skipper"] not in (None, skipper)


def test_nothing_is_left_when_it_ends():
    with skipping("sleep", "60") as inside:
        inside.succeed(timeout=BLINK)
        deadline = time.monotonic() + BLINK
        while left := inside.processes():
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def test_files_keep_their_ages_over_leaps(tmp_path):
    """Written before a leap of an hour, an hour old after it."""
    file = tmp_path / "file"
    text = (
        "import os\n"
        f"path = {str(file)!r}\n"
        "open(path, 'w').close(); made = time.time()\n"
        "for _ in range(20): time.sleep(3600)\n"
        "age = time.time() - os.stat(path).st_mtime\n"
        "assert abs(age - 72000) < 5, age\n"
        "os.utime(path, (made + 100, made + 200)); s = os.stat(path)\n"
    )
    seconds_inside(text)


def test_a_month_of_cron():
    """A loop that sleeps until the next full hour, as schedulers do, by the wall clock."""
    text = (
        "hours = []\n"
        "for _ in range(24 * 30):\n"
        "    now = time.time(); time.sleep(3600 - now % 3600); hours.append(time.time())\n"
        "gaps = [b - a for a, b in zip(hours, hours[1:])]\n"
        "assert all(3590 < gap < 3610 for gap in gaps), gaps\n"
    )
    assert 29 * DAY < seconds_inside(text) < 31 * DAY


def order_of_expiry(apart: int, patience: float) -> list[int]:
    """Returns the order in which twelve keys of a redis-server expire, `apart` seconds apart."""
    tool("redis-server")
    script = Path(__file__).parent / "redis_keys.py"
    with skipping(real.python(), script, str(apart)) as inside:
        event = inside.line(ev="expired", timeout=patience)
        inside.finish(timeout=BLINK)
    return event["order"]


def test_redis_keys_expire_in_order():
    """A quarter of an hour apart: ten thousand leaps by the server's own ticks."""
    began = time.monotonic()
    assert order_of_expiry(900, patience=60) == list(range(1, 13))
    assert time.monotonic() - began < 60


@pytest.mark.soak
@pytest.mark.timeout(5 * 3600)
def test_redis_keys_expire_in_order_through_a_year():
    """A month apart: thirty million ticks."""
    assert order_of_expiry(365 * DAY // 12, patience=4 * 3600) == list(range(1, 13))


def test_what_ended_unseen_does_not_slow_the_leaps_after_it():
    """The kernel reports switches only while time leaps again and again. A task that ran at the
    last report and has ended since does not count as running."""
    with skipping(real.python(), Path(__file__).parent / "rows.py") as inside:
        inside.succeed(timeout=60)
        before, after = ([row.at for row in inside.lines(ev=name)] for name in ("before", "after"))
    lengths = [[later - at for at, later in pairwise(rows)] for rows in (before, after)]
    usual, since = map(statistics.median, lengths)
    assert since < 3 * usual


RUNTIMES = {
    "node": ["node", "-e", "setTimeout(() => console.log('done'), 86400 * 1000)"],
    "go": None,
    "java": None,
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtimes_that_tick_skip(runtime):
    """A minute of virtual time: the runtime's own tiny sleeps are deadlines like any other."""
    command = RUNTIMES[runtime]
    if runtime == "go":
        command = [str(build.go("skip/go")), "600"]
    elif runtime == "java":
        command = [*build.java("skip/Skip"), "60"]
    tool(str(command[0]))
    began = time.monotonic()
    with skipping(*command) as inside:
        inside.succeed(timeout=50)
        assert inside.stdout.strip() == "done"
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--skip-idle=maybe", "true"],
        ["run", "--read-cost", "1us", "true"],
        ["run", "--skip-idle", "--read-cost", "-1us", "true"],
        ["run", "--skip-idle", "--read-cost", "2s", "true"],
        ["skip", "nobody", "on"],
        ["skip", "nobody", "perhaps"],
        ["skip", "nobody"],
    ],
)
def test_wrong_input(arguments):
    done = lorentz.call(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("lorentz: ")
