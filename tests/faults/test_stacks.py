"""Stacks: alternate ones given back while in use, small ones, and memory of any alignment."""

from __future__ import annotations

import os

import pytest
from framework import build
from framework.running import Inside, Native, Running

TOGETHER = [(24, 300), (64, 300), (200, 30)]


@pytest.mark.parametrize(("threads", "times"), TOGETHER)
@pytest.mark.parametrize("rate", ["1", "10"])
def test_threads_that_end_together(threads, times, rate):
    """Each thread gives back an alternate stack of its own while it runs on the shim's."""
    program = build.cargo("faults/together", "together")
    with Inside(program, str(threads), str(times), rate=rate) as inside:
        inside.line(timeout=60, ev="done")
        inside.succeed()


def children(run: Running) -> list[dict]:
    """Returns the result of each child."""
    with run:
        run.succeed()
        return [line.data for line in run.lines(ev="child")]


@pytest.mark.parametrize("options", [(), ("--skip-idle",)], ids=["plain", "clones counted"])
def test_children_on_small_stacks(options):
    """A trapped call needs more stack than there is: the child lives, and nothing below the stack
    is written."""
    program = build.c("faults/small_stack")
    native = children(Native([program]))
    assert {(child["status"], child["intact"]) for child in native} == {(0, 1)}
    assert children(Inside(program, options=options, rate="1")) == native


def test_memory_of_any_alignment():
    program = build.c("faults/misaligned")
    with Inside(program, rate="10") as inside:
        inside.succeed()
        lines = inside.lines(ev="done")
    assert len(lines) == 48
    assert all((line["ret"], line["sane"]) == (0, 1) for line in lines)


@pytest.mark.parametrize(
    ("size", "taken"), [(16, 4), (16, 6), (20, 10), (24, 12), (31, 15), (32, 16), (64, 48)]
)
def test_a_change_during_a_wait_in_a_handler_on_an_alternate_stack(size, taken):
    """KiB, and how many of them the handler takes. Three frames of signals lie on the stack then:
    the program's, that of the trapped wait, and that of the change. On a processor with large
    registers the program needs more by itself: for its frame, and where the linker saves them."""
    larger = 2 * max(0, os.sysconf("SC_MINSIGSTKSZ") - 2048)
    size, taken = size * 1024 + larger, taken * 1024
    command = (build.c("faults/alternate_stack"), str(size), str(taken))
    with Native([*command, "0.05"]) as native:
        native.succeed()
    with Inside(*command, "1000", rate="1") as inside:
        inside.line(ev="waits")
        for rate in ("2", "1/2", "3"):
            inside.dilate(rate)
        inside.leap("1000s")
        inside.line(ev="done")
        inside.succeed()
