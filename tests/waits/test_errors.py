"""Calls that return at once: bad pointers, bad values, zero timeouts. The kernel is the oracle."""

from __future__ import annotations

import collections
import functools
import tempfile
from pathlib import Path

import pytest
from framework import build
from framework.build import C_FLAVOURS
from framework.running import Inside, Native


@functools.cache
def errors(flavour: str, rate: str | None) -> dict[str, tuple[int, int]]:
    program = build.c("waits/errors", flavour)
    with Native([program]) if rate is None else Inside(program, rate=rate) as running:
        running.succeed()
        lines = running.lines(ev="error")
    assert len(lines) == len({line["case"] for line in lines})
    return {line["case"]: (line["ret"], line["err"]) for line in lines}


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_every_error_is_the_kernels(flavour, rate):
    native, inside = errors(flavour, None), errors(flavour, rate)
    assert len(native) > 250
    differing = {
        name: f"kernel {native[name]}, inside {inside.get(name)}"
        for name in native
        if inside.get(name) != native[name]
    }
    assert not differing


#: The rights under which the program makes all its calls.
RIGHTS = ("as-is", "nobody", "no-time")


@functools.cache
def arguments(rate: str | None) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns value and errno of each call, by its arguments and the number of earlier calls with
    them."""
    program = build.c("waits/arguments")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = [program, folder]
        with Native(command) if rate is None else Inside(*command, rate=rate) as running:
            running.succeed(timeout=120)
            lines = running.lines(ev="error")
    times: collections.Counter[str] = collections.Counter()
    found = {}
    for line in lines:
        name = line["case"]
        found[name, times[name]] = (line["ret"], line["err"])
        times[name] += 1
    return found


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
def test_every_combination_of_arguments_is_refused_as_the_kernel_does(rate):
    """More than 80,000 calls: bad clocks, pointers, times, flags, events; as root, as nobody, and
    without the right to set clocks."""
    native, inside = arguments(None), arguments(rate)
    for rights in RIGHTS:
        assert sum(name.startswith(rights) for name, _ in native) > 20_000
    differing = [
        f"{name}: kernel {native.get((name, time))}, inside {inside.get((name, time))}"
        for name, time in dict.fromkeys([*native, *inside])
        if inside.get((name, time)) != native.get((name, time))
    ]
    assert not differing, f"{len(differing)} differ:\n" + "\n".join(differing[:40])
