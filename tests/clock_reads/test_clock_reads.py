"""Reading the clocks: every id, by libc, by the vDSO found by hand, and as a raw syscall."""

from __future__ import annotations

import functools
import json
import math
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from framework import build, lorentz, needs, oracle
from framework.build import C_FLAVOURS
from framework.oracle import HostNoise
from framework.running import Inside, Native

REALTIME, MONOTONIC, PROCESS_CPU, THREAD_CPU, RAW, REAL_COARSE, MONO_COARSE, BOOT = range(8)
TAI = 11
WALL = (REALTIME, REAL_COARSE, TAI)
ELAPSED = (MONOTONIC, RAW, MONO_COARSE, BOOT)
#: A tick of the coarse clocks, for any kernel's HZ.
TICK = 0.0101

Y2038 = "2038-01-19T03:14:00Z"
AT_2038 = oracle.epoch("2038-01-19") + 3 * 3600 + 14 * 60


SECOND = 10**9


@dataclass(frozen=True)
class Host:
    """The host's clocks at one moment, in ns."""

    real: int
    mono: int
    boot: int

    @classmethod
    def now(cls) -> Host:
        clocks = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
        return cls(*map(time.clock_gettime_ns, clocks))

    def until(self, after: Host, field: str, rate: str | None) -> oracle.Span:
        """Readings possible for a clock that left the host's between the two moments and ran at
        `rate` since."""
        before, length = getattr(self, field), getattr(after, field) - getattr(self, field)
        return oracle.Span(before, before + math.ceil(length * max(1, oracle.ratio(rate or "1"))))


@functools.cache
def clocks(
    flavour: str, rate: str | None, at: str | None = None
) -> tuple[dict, dict, float, float]:
    """Returns the output of `clocks read`: by id; the wall clock by its other names; the time of
    the start; the allowed lateness, real seconds."""
    program = [build.c("clocks/clocks", flavour), "read"]
    running = Native(program) if rate is None else Inside(*program, rate=rate, at=at)
    with HostNoise() as noise, running:
        running.succeed()
        by_id = {line["id"]: line.data for line in running.lines(ev="clock")}
        return by_id, running.line(ev="wall").data, running.started_at, noise.slack


@pytest.mark.parametrize("rate", ["1", "10", "1/10", "1000"])
@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_every_way_to_read_a_clock_agrees(flavour, rate):
    """raw <= libc <= vDSO <= raw again, for every clock that the kernel has; the same for
    gettimeofday and time, which are coarser."""
    by_id, wall, *_ = clocks(flavour, rate)
    native, *_ = clocks(flavour, None)
    for number, clock in by_id.items():
        assert (clock["raw"] == -1) == (native[number]["raw"] == -1), number
        assert clock["raw"] <= clock["libc"] <= clock["vdso"] <= clock["raw2"], number
        assert clock["res"] == native[number]["res"], number
    us, s = 1000, 1_000_000_000
    assert wall["raw"] - us <= wall["tod"] <= wall["tod_raw"] <= wall["raw2"]
    # The kernel tells these by its ticks.
    for name in ("time", "time_raw"):
        assert by_id[REAL_COARSE]["raw2"] // s <= wall[name] <= wall["raw2"] // s


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
def test_coarse_clocks_lag_by_a_tick_at_most(rate):
    by_id, wall, _, slack = clocks("dynamic", rate)
    # The program reads all of them one after another, the wall clock first and last.
    passed = wall["raw"] - by_id[REALTIME]["raw"]
    for coarse, fine in ((REAL_COARSE, REALTIME), (MONO_COARSE, MONOTONIC)):
        lag = by_id[fine]["raw"] - by_id[coarse]["raw"]
        # The kernel may be late with a tick.
        assert -passed <= lag <= (TICK + slack) * oracle.ratio(rate) * 1e9


@pytest.mark.parametrize("rate", ["10", "1/10"])
@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_every_clock_gains_what_the_rate_says(flavour, rate):
    """All clocks gain the same, and the host's clock gains that divided by the rate."""
    number = oracle.ratio(rate)
    program = [build.c("clocks/clocks", flavour), "advance"]
    with HostNoise() as noise, Inside(*program, rate=rate, stdin=True) as inside:
        begun = inside.line(ev="ready").at
        time.sleep(0.5)
        least = (time.monotonic() - begun) * number * SECOND
        inside.close_stdin()
        inside.succeed()
        most = (inside.ended_at - inside.started_at) * number * SECOND
    gains = {line["id"]: line["gain"] for line in inside.lines(ev="advance")}
    within = inside.line(ev="within")
    assert least * (1 - 1e-6) <= within["least"] <= within["most"] <= most * (1 + 1e-6)
    for clock in (*WALL, *ELAPSED):
        # The kernel may be late with a tick.
        coarse = clock in (REAL_COARSE, MONO_COARSE)
        grain = (TICK + noise.slack) * number * SECOND if coarse else 0
        assert within["least"] - grain <= gains[clock] <= within["most"] + grain, clock
    for clock in (PROCESS_CPU, THREAD_CPU):
        assert gains[clock] < 0.2 * within["least"], clock


@pytest.mark.parametrize("flavour", C_FLAVOURS)
@pytest.mark.parametrize("at", [Y2038, "1985-10-26", "@4000000000"])
def test_the_wall_clock_starts_where_it_is_told(flavour, at):
    by_id, _, started, _ = clocks(flavour, "1", at)
    expect = {
        Y2038: AT_2038,
        "1985-10-26": oracle.epoch("1985-10-26"),
        "@4000000000": 4_000_000_000,
    }[at]
    assert 0 <= by_id[REALTIME]["raw"] / 1e9 - expect < time.monotonic() - started
    assert by_id[REAL_COARSE]["raw"] / 1e9 - expect < time.monotonic() - started


@pytest.mark.parametrize("options", [["--offset", "+10d"], ["--offset=-1h30m"]])
def test_the_wall_clock_starts_at_an_offset(options):
    offset = {"+10d": 864000, "--offset=-1h30m": -5400}[options[-1]]
    before = Host.now()
    with Inside(build.c("clocks/clocks"), "now", options=options) as inside:
        line = inside.line(ev="now")
    assert before.real + offset * SECOND <= line["real"] <= Host.now().real + offset * SECOND


@pytest.mark.parametrize(("flag", "field"), [("--monotonic", "mono"), ("--boottime", "boot")])
@pytest.mark.parametrize("rate", [None, "1", "10"])
def test_monotonic_and_boottime_start_at_an_offset(flag, field, rate):
    """With a time namespace or without: what is asked for is what is read, raw and by vDSO."""
    options = [flag, "3d"]
    program = [build.c("clocks/clocks"), "now"]
    before = Host.now()
    with Inside(*program, options=options, rate=rate) as inside:
        line = inside.line(ev="now")
    after = Host.now()
    offset = 3 * 86400 * SECOND
    assert line[field] - offset in before.until(after, field, rate)
    assert line["real"] in before.until(after, "real", rate)


@pytest.mark.parametrize("offsets", [[], ["--boottime", "200000s"], ["--monotonic", "5s"]])
def test_offsets_are_those_asked_for_to_the_nanosecond(offsets):
    """And no other clock moves: the kernel says how its own clocks are apart."""
    needs.root()
    text = Path("/proc/timer_list").read_text()
    kernel = {}
    for number, clock in enumerate(("mono", "real", "boot")):
        base = text.split(f" clock {number}:")[1]
        kernel[clock] = int(base.split(".offset:")[1].split()[0])
    asked = dict(zip(offsets[::2], offsets[1::2], strict=True))
    mono, boot = (
        int(asked.get(flag, "0s")[:-1]) * SECOND for flag in ("--monotonic", "--boottime")
    )
    with Inside("sleep", "1000", rate="1", options=offsets) as inside:
        inside.wait_until_shown()
        shown = inside.time()
    assert shown["boottime_ns"] - shown["monotonic_ns"] == kernel["boot"] + boot - mono
    seconds, _, fraction = shown["wall"].removesuffix("Z").partition(".")
    wall = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp()) * SECOND
    wall += int(fraction.ljust(9, "0"))
    assert wall - shown["monotonic_ns"] == kernel["real"] - mono


def test_the_cpu_clocks_of_many_threads_do_not_go_back_at_a_change():
    """Nearly as many threads as Lorentz keeps apart (79), with ids that begin at the same ones."""
    with Inside(build.c("clocks/cpu_of_many"), "70", rate="10", stdin=True) as inside:
        inside.line(ev="ready")
        inside.dilate("1")
        inside.process.stdin.write(b"\n")
        inside.process.stdin.flush()
        found = inside.line(ev="read")
        inside.succeed()
    assert (found["threads"], found["back"]) == (70, 0)


@pytest.mark.parametrize("rate", [(), ("--rate", "1")], ids=["kernel", "shim"])
def test_offsets_add_to_those_of_the_hosts_namespace(rate):
    """As those of a nested namespace: by a time namespace of the kernel, and by the shim."""
    needs.root()
    inside = lorentz.session.command()
    run = [*inside, "run", *rate, "--monotonic", "100s", "--"]
    enter = [needs.tool("unshare"), "--time", "--monotonic", "5000", "--fork"]
    before = time.monotonic()
    done = subprocess.run(
        [*enter, *run, build.c("clocks/clocks"), "now"],
        env=lorentz.session.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    after = time.monotonic()
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[0])["mono"] / SECOND
    assert before + 5100 <= shown <= after + 5100


@pytest.mark.parametrize("years", ["146y", "147y", "289y"])
def test_offsets_beyond_a_time_namespace(years):
    """The kernel's end at 146 years, ours at 290."""
    with Inside(build.c("clocks/clocks"), "now", options=["--monotonic", years]) as inside:
        line = inside.line(ev="now")
    assert line["mono"] > int(years[:-1]) * 365 * 86_400 * SECOND


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
def test_clocks_are_continuous_at_the_start(rate):
    """Without --at and offsets the clocks start at the host's time, and run at the rate from there.

    The container started after `before` and the program read its clocks before `after`. So at rate
    1 each reading lies between the host's readings, to the nanosecond.
    """
    before = Host.now()
    with Inside(build.c("clocks/clocks"), "now", rate=rate) as inside:
        line = inside.line(ev="now")
    after = Host.now()
    for field in ("real", "mono", "boot"):
        assert line[field] in before.until(after, field, rate), field


def test_a_leap_moves_all_clocks_and_a_step_the_wall_clock_alone():
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(10 * 10**6)]
    with Inside(*watch, rate="1") as inside:
        first = inside.line(ev="now")
        inside.leap("1h")
        leapt = first_after(inside)
        inside.step("-2h")
        stepped = first_after(inside)
    # All readings lie within the run.
    passed = round((time.monotonic() - inside.started_at) * 1e9)
    hour = 3600 * 10**9
    for field in ("real", "mono", "boot", "tai"):
        assert hour <= leapt[field] - first[field] <= hour + passed, field
    for field in ("real", "real_raw", "tai"):
        assert -2 * hour <= stepped[field] - leapt[field] <= -2 * hour + passed, field
    for field in ("mono", "boot"):
        assert 0 <= stepped[field] - leapt[field] <= passed, field


def first_after(inside: Inside):
    """Returns the first reading begun after now, by the container's own clock."""
    now = inside.time()["monotonic_ns"]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        later = [line for line in inside.lines(ev="now") if line["mono"] > now]
        if len(later) >= 2:
            return later[1]  # the first may have been begun before
        time.sleep(0.01)
    raise AssertionError("the watch has stopped")


@pytest.mark.parametrize(
    ("rate", "options"), [("2", []), ("0.5", []), ("60x", []), ("1/3", []), (None, ["--tdf", "4"])]
)
def test_rates_as_people_write_them(rate, options):
    number = {"2": 2, "0.5": 0.5, "60x": 60, "1/3": 1 / 3, None: 0.25}[rate]
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(round(number * 2 * 10**7))]
    with HostNoise() as noise, Inside(*watch, rate=rate, options=options) as inside:
        first = inside.line(ev="now")
        time.sleep(1)
        last = inside.lines(ev="now")[-1]
    real = last.at - first.at
    virtual = (last["mono"] - first["mono"]) / 1e9
    assert virtual / number == pytest.approx(real, abs=0.02 + 2 * noise.slack)


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_the_vdso_is_all_there(flavour):
    """A program that finds the vDSO by AT_SYSINFO_EHDR finds the same symbols as natively."""
    program = [build.c("clocks/clocks", flavour), "vdso"]
    with Native(program) as native:
        expect = native.line(ev="vdso").data
    with Inside(*program, rate="10") as inside:
        assert inside.line(ev="vdso").data == expect


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_a_bad_pointer_to_the_vdso_ends_as_natively(flavour):
    program = [build.c("clocks/clocks", flavour), "badptr"]
    with Native(program) as native:
        expect = native.line(ev="badptr").data
    with Inside(*program, rate="10") as inside:
        assert inside.line(ev="badptr").data == expect


def test_time_tells_what_the_program_reads():
    """lorentz time NAME: the container's clocks, its rate and its state."""
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(10**9)]
    with Inside(*watch, rate="10", at=Y2038) as inside:
        inside.line(ev="now")
        shown = inside.time()
        last = inside.lines(ev="now")[-1]
        text = lorentz.ok("time", inside.name)
    assert shown["name"] == inside.name
    assert oracle.ratio(str(shown["rate"])) == 10
    assert "2038-01-19" in str(shown) and "2038-01-19" in text
    assert last["real"] / 1e9 - AT_2038 < 600
