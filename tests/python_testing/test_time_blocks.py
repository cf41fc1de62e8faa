"""`lorentz.travel`, `frozen`, `rate` and `own_clock`: programs that change their own time.

Each program prints JSON lines. Times are in ns unless a name says otherwise; a host's time is read
by the clock itself (`clock.time().host_...`), past the shim."""

from __future__ import annotations

import pytest
from framework import lorentz, suites

#: Beginning of each program.
HEAD = """
import asyncio, json, os, subprocess, sys, threading, time
import lorentz
def say(*values): print(json.dumps(values if len(values) > 1 else values[0]), flush=True)
def year(): return time.gmtime().tm_year
"""

#: 2038-01-19T00:00:00Z, seconds since 1970.
IN_2038 = 2_147_472_000


def run(text: str, *arguments: str, **options: object) -> list:
    """Runs a program. Returns its lines."""
    return suites.python(HEAD + text, *arguments, **options)


def test_a_block_begins_at_the_time_and_gives_it_back():
    (inside, after, on_clock) = run("""
before = time.time_ns(), time.monotonic_ns()
with lorentz.travel("2038-01-19"):
    say(time.time())
with lorentz.own_clock() as clock:
    times = clock.time()
say([times.wall_ns - times.host_wall_ns, times.monotonic_ns - times.host_monotonic_ns])
say(before[0] < time.time_ns() and before[1] < time.monotonic_ns())
""")
    assert 0 <= inside - IN_2038 < 60
    wall, monotonic = after
    # The wall clock within what the host's two clocks differ by while they are read: see Reading.
    assert abs(wall) < 10**6 and monotonic == 0
    assert on_clock


def test_blocks_at_rate_one_give_back_the_time_exactly():
    (offsets,) = run("""
offsets = []
with lorentz.own_clock() as clock:
    for day in range(1, 28):
        times = clock.time()
        monotonic = times.monotonic_ns
        offsets.append([times.wall_ns - monotonic, monotonic - times.host_monotonic_ns])
        with lorentz.travel(f"2024-02-{day:02}T12:00:00+01:00"), lorentz.travel("1999-12-31"):
            pass
say(offsets)
""")
    assert len(offsets) == 27
    assert all(offset == offsets[0] for offset in offsets), offsets


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ('"2038-01-19"', IN_2038),
        ('"2038-01-19T01:00:00+01:00"', IN_2038),
        # The machine's zone is not UTC: see the variable below.
        ('"2038-01-19 00:00"', IN_2038),
        ('"19 Jan 2038 05:30"', IN_2038),
        ('"2038-01-19 01:00 Europe/Berlin"', IN_2038),
        (f'"@{IN_2038}"', IN_2038),
        (f"{IN_2038}", IN_2038),
        (f"{IN_2038}.5", IN_2038 + 0.5),
        ("datetime.datetime(2038, 1, 19, tzinfo=datetime.timezone.utc)", IN_2038),
        ("datetime.datetime(2038, 1, 19, 5, 30)", IN_2038),
        ("datetime.date(2038, 1, 19)", IN_2038),
    ],
)
def test_times_are_given_as_text_numbers_and_dates(to, expected):
    (seen,) = run(
        f"""
import datetime
with lorentz.frozen({to}):
    say(time.time_ns())
""",
        TZ="Asia/Kolkata",
    )
    assert seen == expected * 10**9


@pytest.mark.parametrize("distance", ['"+30d"', "datetime.timedelta(days=30)", '"-30d"'])
def test_a_distance_counts_from_now(distance):
    (moved,) = run(f"""
import datetime
with lorentz.frozen() as clock:
    before = time.time_ns()
    clock.travel({distance})
    say(time.time_ns() - before)
""")
    assert moved == (-1 if '"-' in distance else 1) * 30 * 86400 * 10**9


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('lorentz.travel("yesteryear")', ["yesteryear", "expected"]),
        ("lorentz.travel(None)", ["travel to None", "expected text such as"]),
        ("lorentz.travel(True)", ["travel to True", "expected"]),
        ('lorentz.travel("1969-12-31")', ["1969-12-31", "1970"]),
        ("lorentz.rate(0)", ["rate 0", "1/1000000"]),
        ('lorentz.rate("fast")', ["rate fast", "expected"]),
        ('lorentz.travel("2038-01-19", skip_idle="maybe")', ["skip_idle 'maybe'", "force"]),
    ],
)
def test_a_wrong_value_changes_nothing(call, words):
    line, same = run(f"""
with lorentz.own_clock() as clock:
    before = clock.time()
    try:
        with {call}: say("entered")
    except lorentz.WrongInputError as error:
        say(str(error))
    after = clock.time()
    say(before.wall_ns - before.monotonic_ns == after.wall_ns - after.monotonic_ns
        and after.tdf == 1)
""")
    assert all(word in line for word in words), line
    assert "\n" not in line and same


def test_an_exception_gives_the_time_back_and_passes():
    raised, in_2038 = run("""
try:
    with lorentz.travel("2038-01-19", rate=10):
        1 / 0
except ZeroDivisionError:
    say("raised")
with lorentz.own_clock() as clock: say(year() == 2038 or clock.time().tdf != 1)
""")
    assert raised == "raised" and not in_2038


def test_blocks_nest():
    assert run("""
with lorentz.travel("2038-01-19"):
    with lorentz.travel("2001-09-09"):
        with lorentz.frozen("1999-12-31"): say(year())
        say(year())
    say(year())
    with lorentz.rate(2) as clock: say(year(), str(clock.time().tdf))
    with lorentz.own_clock() as clock: say(str(clock.time().tdf))
""") == [1999, 2001, 2038, [2038, "1/2"], "1"]


def test_a_block_is_used_again_and_inside_itself():
    assert run("""
block = lorentz.travel("2038-01-19")
for _ in range(2):
    with block, block: say(year())
say(year() == 2038)
""") == [2038, 2038, False]


def test_blocks_of_threads_end_in_any_order():
    """Thread A enters first and ends first: B's time holds on. B gives back what A would have."""
    assert run("""
entered, left = threading.Event(), threading.Event()
def b():
    with lorentz.travel("2001-09-09"):
        entered.set()
        left.wait()
        say(year())
start = year()
with lorentz.travel("2038-01-19"):
    thread = threading.Thread(target=b)
    thread.start()
    entered.wait()
    say(year())
left.set()
thread.join()
say(year() == start)
""") == [2001, 2001, True]


def test_many_threads_enter_and_leave():
    (ends,) = run("""
start = year()
def work():
    for _ in range(40):
        with lorentz.travel("2038-01-19"):
            pass
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with lorentz.own_clock() as clock: times = clock.time()
say([year() == start, abs(times.wall_ns - times.host_wall_ns) < 10**6,
    times.monotonic_ns - times.host_monotonic_ns])
""")
    assert ends == [True, True, 0]


def test_decorators_of_functions_coroutines_and_generators():
    assert run("""
@lorentz.travel("2038-01-19")
def function(more): return year() + more
@lorentz.travel("2038-01-19")
async def coroutine():
    await asyncio.sleep(0)
    return year()
@lorentz.travel("2038-01-19")
def generator(): yield year()
start = year()
say(function(1), function.__name__)
say(asyncio.run(coroutine()))
say(list(generator()))
say(year() == start)
try: lorentz.travel("2038-01-19")(str)
except TypeError as error: say(str(error))
""")[:4] == [[2039, "function"], 2038, [2038], True]


def test_all_that_the_process_has_and_starts_sees_the_time():
    """Threads, C extensions, raw system calls, programs started before and meanwhile, fork."""
    assert run("""
import ctypes, sqlite3
libc = ctypes.CDLL(None)
before = subprocess.Popen(["sh", "-c", "read line; date +%Y"], stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, text=True)
with lorentz.travel("2038-01-19"):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(year()))
    thread.start(); thread.join()
    say(seen)
    say(sqlite3.connect(":memory:").execute("select strftime('%Y')").fetchone()[0])
    stamp = (ctypes.c_long * 2)()
    libc.syscall(228, 0, stamp)  # clock_gettime
    say(time.gmtime(stamp[0]).tm_year)
    say(int(subprocess.run(["date", "+%Y"], capture_output=True, text=True).stdout))
    say(int(before.communicate("go\\n")[0]))
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(year()).encode()); os._exit(0)
    say(int(os.read(read, 10))); os.wait()
""") == [[2038], "2038", 2038, 2038, 2038, 2038]


def test_a_forked_child_does_not_end_its_parents_block():
    assert run("""
with lorentz.travel("2038-01-19"):
    child = os.fork()
    if child == 0:
        sys.exit(0)  # leaves the block by an exception
    os.waitpid(child, 0)
    say(year())
    child = os.fork()
    if child == 0:
        with lorentz.travel("2001-09-09"): pass
        os._exit(0)
    os.waitpid(child, 0)
    say(year())
""") == [2038, 2038]


def test_travel_leaves_monotonic_time_and_waits_alone():
    ended, late, moved = run("""
with lorentz.own_clock() as clock:
    begun = clock.time()
    event = threading.Event()
    waiter = threading.Thread(target=event.wait, args=(100,))
    waiter.start()
    with lorentz.travel("2038-01-19"):
        say(waiter.is_alive())
    event.set(); waiter.join()
    end = clock.time()
say(end.monotonic_ns - begun.monotonic_ns == end.host_monotonic_ns - begun.host_monotonic_ns)
say(end.monotonic_ns - end.host_monotonic_ns)
""")
    assert ended and late and moved == 0


def test_a_frozen_clock_stands_to_the_nanosecond():
    (reads, cpu) = run("""
with lorentz.frozen("2024-02-29"):
    reads = {(time.time_ns(), time.monotonic_ns(), time.perf_counter_ns()) for _ in range(100000)}
    say([len(reads), next(iter(reads))[0]])
    cpu = time.process_time_ns()
    sum(range(1000000))
    say(time.process_time_ns() - cpu)
""")
    assert reads == [1, 1_709_164_800 * 10**9]
    assert cpu == 0


def test_a_frozen_block_gives_back_monotonic_time_by_a_leap():
    (leapt, behind) = run("""
with lorentz.own_clock() as clock:
    with lorentz.frozen():
        stands = time.monotonic_ns()
        host = clock.time().host_monotonic_ns
        while clock.time().host_monotonic_ns < host + 50_000_000: pass
    say(time.monotonic_ns() - stands >= 50_000_000)
    times = clock.time()
    say(times.host_monotonic_ns - times.monotonic_ns)
""")
    assert leapt and behind in (0, 1)


@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(3600)",
        "threading.Event().wait(3600)",
        "asyncio.run(asyncio.sleep(3600))",
        "import queue\n    try: queue.Queue().get(timeout=3600)\n    except queue.Empty: pass",
        'subprocess.run(["sleep", "3600"])',
        "import select; select.select([], [], [], 3600)",
    ],
)
def test_a_wait_on_a_frozen_clock_ends_at_once_and_at_its_time(wait):
    """Goes on at the deadline and not later, as nothing else moves the clock. `sleep` and `asyncio`
    take a little more of virtual time by their own computation, which no clock here counts."""
    (waited, took) = run(f"""
with lorentz.frozen() as clock:
    begun, host = time.monotonic_ns(), clock.time().host_monotonic_ns
    {wait}
    say(time.monotonic_ns() - begun)
    say((clock.time().host_monotonic_ns - host) / 1e9)
""")
    # A millisecond: epoll_wait rounds its timeout up.
    assert 0 <= waited - 3600 * 10**9 <= 10**6
    assert took < 3600 / 100


def test_a_rate_holds_for_clocks_and_waits():
    """A second at rate 20 takes a twentieth; CLOCK_MONOTONIC stays ahead by the rest."""
    (slept, real, ahead, wall) = run("""
with lorentz.own_clock() as clock:
    with lorentz.rate(20):
        begun, before = time.monotonic_ns(), clock.time()
        time.sleep(10)
        say(time.monotonic_ns() - begun)
        after = clock.time()
        say(after.host_monotonic_ns - before.host_monotonic_ns)
    times = clock.time()
    say(times.monotonic_ns - times.host_monotonic_ns)
    say(times.wall_ns - times.host_wall_ns)
""")
    assert slept >= 10 * 10**9
    # The block lasts a little longer than the sleep, before and after.
    assert real >= 10 * 10**9 / 20 and ahead >= real * 18
    assert abs(wall) < 10**6


def test_a_slow_block_is_made_up_for():
    (behind, wall) = run("""
with lorentz.own_clock() as clock:
    with lorentz.rate("1/10"):
        time.sleep(0.02)
    times = clock.time()
    say(times.host_monotonic_ns - times.monotonic_ns)
    say(times.wall_ns - times.host_wall_ns)
""")
    assert behind in (0, 1) and abs(wall) < 10**6


def test_skipping_in_a_block_ends_with_it():
    (day, mode) = run("""
with lorentz.travel("2038-01-19T12:00:00Z", skip_idle=True):
    time.sleep(86400)
    say(time.strftime("%F", time.gmtime()))
with lorentz.own_clock() as clock: say(clock._native.reading()["skip_idle"])
""")
    assert day == "2038-01-20" and mode == "off"


def test_the_clock_of_a_block_changes_within_it():
    (leap, step, back, rate, stands, goes) = run("""
with lorentz.frozen() as clock:
    def moved(change):
        before = time.monotonic_ns(), time.time_ns()
        change()
        return [time.monotonic_ns() - before[0], time.time_ns() - before[1]]
    say(moved(lambda: clock.leap("1h")))
    say(moved(lambda: clock.step(60)))
    say(moved(lambda: clock.step("-1m")))
with lorentz.own_clock() as clock:
    clock.dilate(rate=60)
    say(str(clock.time().tdf))
    clock.freeze()
    say(time.time_ns() == time.time_ns())
    clock.unfreeze()
    say(str(clock.time().tdf))
""")
    hour, minute = 3600 * 10**9, 60 * 10**9
    assert (leap, step, back) == ([hour, hour], [0, minute], [0, -minute])
    assert (rate, stands, goes) == ("1/60", True, "1/60")


def test_under_lorentz_run_blocks_change_its_clock():
    seen = run(
        """
say(year())
with lorentz.travel("2001-09-09") as clock: say(year(), clock.name)
say(year())
""",
        launcher=(str(lorentz.session.binary), "run", "--at", "2038-01-19", "--name", "program"),
    )
    assert seen == [2038, [2001, "program"], 2038]


def test_a_process_comes_onto_one_clock_only():
    (names, where) = run("""
names = set()
for _ in range(3):
    with lorentz.travel("2038-01-19") as clock: names.add(clock.name)
say(len(names))
say(names.pop() == json.loads(subprocess.run([os.environ["LORENTZ_COMMAND"], "time", "--json",
    str(os.getpid())], capture_output=True, text=True).stdout)["name"])
""")
    assert names == 1 and where


def test_where_the_kernel_refuses_one_line_says_what_to_do():
    """A traced process, here by strace, cannot be brought in; `strace` follows no children."""
    from framework import needs

    strace = needs.tool("strace")
    (line,) = run(
        """
try:
    with lorentz.travel("2038-01-19"): say("entered")
except lorentz.RefusedError as error: say(str(error))
""",
        launcher=(strace, "-o", "/dev/null", "-e", "trace=none"),
    )
    assert "is traced by process" in line
    assert "lorentz run" in line and "--lorentz-at" in line and "\n" not in line
