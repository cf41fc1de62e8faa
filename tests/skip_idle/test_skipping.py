"""Skipping idle time: a day takes a moment, and no deadline comes too soon."""

from __future__ import annotations

import os
import signal
import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest
from framework import build, lorentz, real
from framework.needs import tool
from framework.oracle import HostNoise
from framework.running import Inside, Native
from framework.skipping import BLINK, BY_COUNT, BY_LOOKING, python, seconds_inside, skipping

DAY = 86_400


@pytest.mark.parametrize("unprivileged", [BY_COUNT, BY_LOOKING])
def test_a_day_is_over_at_once(unprivileged):
    """As root with the kernel's counters, and without rights by reading /proc."""
    began = time.monotonic()
    with skipping("sleep", str(DAY), unprivileged=unprivileged) as inside:
        inside.succeed(timeout=BLINK)
    assert time.monotonic() - began < BLINK


@pytest.mark.parametrize("unprivileged", [BY_COUNT, BY_LOOKING])
def test_a_day_is_over_at_once_after_long_work(unprivileged):
    work = "while time.monotonic() < start + 2: pass\n"
    took = seconds_inside(f"{work}time.sleep({DAY})", unprivileged=unprivileged)
    assert DAY + 2 <= took < DAY + 2 + BLINK


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
