"""Call sites that are rewritten because a program makes trapped calls there often.

Natively, rewritten and with `--no-rewrite` a program sees the same.
"""

from __future__ import annotations

import re

import pytest
from framework import build, lorentz, real
from framework.build import C_FLAVOURS
from framework.experiments import until
from framework.running import Inside, Native, Running

#: A site is rewritten after sixteen calls; these are many more.
ROUNDS = 1000
WAYS = ["rewritten", "trapped"]


def begin(way: str, *command: object) -> Running:
    """Starts a program natively, or inside with call sites that are rewritten or not."""
    if way == "native":
        return Native([str(word) for word in command])
    flags = ["--no-rewrite"] if way == "trapped" else []
    return Inside(*map(str, command), options=["--offset", "1d", *flags])


@pytest.mark.parametrize("way", ["native", *WAYS])
def test_a_call_leaves_every_register_but_three_as_it_was(way):
    """Natively too: this shows that the program looks at the right things."""
    with begin(way, build.c("rewriting/registers"), ROUNDS) as program:
        program.succeed()
    sites = {line["name"]: line for line in program.lines(ev="site")}
    assert {name: line["where"] for name, line in sites.items() if line["wrong"]} == {}
    assert {line["rewritten"] for line in sites.values()} == {int(way == "rewritten")}
    assert program.line(ev="signals")["count"] > 10


@pytest.mark.parametrize("flavour", C_FLAVOURS)
@pytest.mark.parametrize("way", WAYS)
def test_sixteen_threads_see_what_they_see_natively(way, flavour):
    """Signals, jumps out of waits, vfork, fork and dlopen while sites are rewritten."""
    with begin(way, build.c("rewriting/threads", flavour), 3) as program:
        program.succeed(timeout=60)
    threads = program.lines(ev="calls")
    assert len(threads) == 16
    assert [(line["thread"], line["what"]) for line in threads if line["wrong"]] == []
    assert min(line["count"] for line in threads) > 100


@pytest.mark.parametrize("way", ["native", *WAYS])
def test_a_thread_can_be_unwound_from_any_instruction(way):
    with begin(way, build.c("rewriting/unwind"), 2000) as program:
        program.succeed(timeout=60)
    unwound = program.line(ev="unwound")
    assert unwound["cleaned"] == unwound["threads"] == 2000


@pytest.mark.parametrize("way", ["native", *WAYS])
def test_a_filter_of_the_programs_own_sees_calls_from_hot_sites(way):
    with begin(way, build.c("rewriting/sandbox")) as program:
        program.succeed()
    seen = program.line(ev="open")
    assert (seen["before"], seen["after"]) == (0, 13)


@pytest.mark.parametrize("way", WAYS)
def test_time_says_how_many_sites_are_rewritten(way):
    text = "import os, time\nwhile True:\n    os.stat('/')\n    time.sleep(0.001)\n"
    flags = ["--no-rewrite"] if way == "trapped" else []
    with Inside(real.python(), "-c", text, options=["--offset", "1d", *flags]) as program:
        program.wait_until_shown()
        (pid,) = program.programs()

        def sites() -> int:
            (found,) = lorentz.json_of("time", program.name)["rewritten"]
            assert found["pid"] == pid
            return found["sites"]

        if way == "rewritten":
            until(sites, "a call site is rewritten")
        found = sites()
        text = lorentz.ok("time", str(pid))
        told = re.search(rf"call sites  (\d+) rewritten, process {pid}", text)
        assert told, text
        # A second site may be rewritten meanwhile.
        assert found <= int(told[1]) <= sites()
        assert (found > 0) == (way == "rewritten")
