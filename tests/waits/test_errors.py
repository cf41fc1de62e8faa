"""Calls that return at once: bad pointers, bad values, zero timeouts. The kernel is the oracle."""

from __future__ import annotations

import functools

import pytest
from framework import build
from framework.build import C_FLAVOURS
from framework.running import Inside, Native

#: Whether a program may set the wall clock is the container's policy, not the kernel's word.
POLICY = ("clock_settime", "settimeofday")


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
        if inside.get(name) != native[name] and not name.startswith(POLICY)
    }
    assert not differing


@pytest.mark.parametrize("rate", ["1", "10"])
def test_a_bad_date_is_refused_as_bad_or_as_forbidden(rate):
    """Setting the clock with nonsense: EINVAL or EFAULT as the kernel says, or EPERM."""
    native, inside = errors("dynamic", None), errors("dynamic", rate)
    names = [name for name in native if name.startswith(POLICY)]
    assert len(names) == 6
    assert {name for name in names if inside[name] not in (native[name], (-1, 1))} == set()
