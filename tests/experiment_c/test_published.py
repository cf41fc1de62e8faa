"""Programs in the shape of TimeKeeper's published ones: its header names, its types, its calls.

They are ours. gcc compiles them with -Wall -Wextra -Werror.
"""

from __future__ import annotations

import subprocess
import time

import pytest
from framework import build, lorentz
from framework.linked import environment, pid_inside, spin, stands, works
from framework.oracle import HostNoise
from framework.running import Inside

MICROS = 10**6


def tool(*words: object, library: str = "timekeeper", program: str = "published_tools") -> str:
    """Runs one utility to its end, which must succeed. Returns its output."""
    done = subprocess.run(
        [build.linked(f"experiment/{program}", library), *map(str, words)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout.strip()


def needed(program: str, library: str) -> str:
    """Return readelf's listing of a program's dynamic section."""
    words = ["readelf", "-d", build.linked(f"experiment/{program}", library)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def wall_ns(pid: int) -> int:
    """A process's wall clock, as the library reads it from outside."""
    seconds, _, micros = tool("gettime", pid).partition(".")
    return int(seconds) * 10**9 + int(micros) * 1000


def rate(pid: int) -> str:
    return lorentz.json_of("time", str(pid))["rate"]


def test_a_dilation_of_type_double_or_float_is_exact():
    with spin() as program:
        for dilation, expected in [("0.1", "10"), ("2.5", "0.4"), ("1", "1")]:
            tool("dilate", program.pid, dilation)
            assert rate(program.pid) == expected
    assert [tool("fix", 0, number) for number in ("0.5", "2", "1", "-1")] == [
        "-2000",
        "2000",
        "0",
        "-1",
    ]


def test_leap_moves_a_frozen_process_by_microseconds():
    with spin() as program:
        tool("freeze", program.pid)
        assert stands(program.pid)
        before = wall_ns(program.pid)
        tool("leap", program.pid, 5 * MICROS)
        after = wall_ns(program.pid)
        assert after - before == 5 * 10**9
        tool("unfreeze", program.pid)
        assert works(program.pid)


def test_a_container_is_found_by_its_name():
    with Inside("sleep", "1000", rate="2") as program:
        pid = pid_inside(program)
        assert tool("name", program.name) == str(pid)
        assert tool("name", "no-such-container") == "-1"


def test_waits_by_the_dialated_calls_are_virtual():
    select = build.linked("experiment/published_select", "timekeeper")
    with HostNoise() as noise, Inside(select, "1000", rate="4", env=environment()) as program:
        program.succeed()
        waits = program.lines(ev="wait")
    assert [one["result"] for one in waits] == [0, 0]
    for one in waits:
        assert 1_000_000 <= one["virtual"] < 3_000_000 + 4 * noise.slack * MICROS
        # Each reading is a whole number of microseconds.
        least, most = 4 * (one["inner"] - 1) - 1, 4 * (one["outer"] + 1) + 1
        assert least <= one["virtual"] <= most, "four times as fast"


def test_the_utilities_run_an_experiment_with_the_asked_timeslice():
    with spin() as slow, spin() as fast:
        tool("dilate", slow.pid, "2")
        for program in (slow, fast):
            tool("addToExp", program.pid, -1)
        # 2 ms of the process with TDF 2 are 1 ms of virtual time.
        tool("timeslice", 2_000_000)
        status = lorentz.json_of("experiment", "status", "timekeeper")
        assert status["timeslice_ns"] == 1_000_000
        assert sorted(one["tdf"] for one in status["containers"]) == [1, 2]
        tool("synchronizeAndFreeze", 0)
        tool("startExp", 0)
        deadline = time.monotonic() + 20
        while lorentz.json_of("experiment", "status", "timekeeper")["virtual_ns"] < 50_000_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        tool("stopExp", 0)
        assert works(slow.pid) and works(fast.pid)


def send(*commands: str) -> list[str]:
    """Sends commands as to the module. Returns "done" or the error, for each."""
    return tool(*commands, program="published_commands").splitlines()


def test_commands_to_the_module_act_as_its_functions():
    with spin() as program:
        for dilation, expected in [("0.1", "10"), ("2.5", "0.4"), ("1", "1")]:
            tool("dilate", program.pid, dilation, program="published_commands")
            assert rate(program.pid) == expected
        assert send(f"B,{program.pid},2000,", f"C,{program.pid},19") == ["done"] * 2
        assert rate(program.pid) == "0.5" and stands(program.pid)
        before = wall_ns(program.pid)
        assert send(f"E,{program.pid},5000000\n") == ["done"]
        assert wall_ns(program.pid) - before == 5 * 10**9
        assert send(f"D,{program.pid},18") == ["done"]
        assert works(program.pid)


def test_commands_to_the_module_move_an_experiment():
    with spin() as one, spin() as other:
        join = [f"G,{program.pid},1" for program in (one, other)]
        # Each `send` is a process of its own, as where a shell writes to the module.
        assert send(*join) == ["done"] * 2
        assert send("H") == ["done"]
        begin = wall_ns(one.pid)
        assert send(f"J,{one.pid},2500,1", "K,1,4711,1", "L,1", "M,1", "K,1,4711,0") == ["done"] * 5
        assert wall_ns(one.pid) - begin == 2_500_000 and wall_ns(other.pid) == begin
        assert send("N") == ["done"]
        assert works(one.pid) and works(other.pid)


def test_what_is_no_command_is_refused():
    refused = send("O,17", "U,17,eth0", "Z", "E,17", "E,x,1", "H")
    assert refused == ["Invalid argument"] * 5 + ["Operation not permitted"]


@pytest.mark.parametrize("verb", ["dilate", "dilate_all"])
def test_a_caller_linked_for_float_finds_its_library(verb):
    with spin() as program, Inside("sleep", "1000", at="2040-01-01") as late:

        def call(*words: object) -> str:
            return tool(*words, library="timekeeper.so.0", program="float_caller")

        call(verb, program.pid, "0.1")
        assert rate(program.pid) == "10"
        call("leap", program.pid, pid_inside(late))
        assert wall_ns(program.pid) > 2_208_988_800 * 10**9
    assert "[libtimekeeper.so.0]" in needed("float_caller", "timekeeper.so.0")


def test_a_program_compiled_now_needs_the_new_interface():
    assert "[libtimekeeper.so.1]" in needed("timekeeper_calls", "timekeeper")
