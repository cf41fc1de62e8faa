"""Runs the wait programs, many cases at once, and caches the result of each run."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from framework import build, oracle
from framework.build import C_FLAVOURS
from framework.catalogue import WAITS, Case
from framework.oracle import HostNoise
from framework.running import Inside, Line, Native, Running

#: Nominal seconds by rate. At the rates 10 and 1/10 a wait takes one real second. The fixed slack
#: of 30 ms is then 3 % of the wait, at either rate.
NOMINAL = {None: 0.3, "1": 0.3, "10": 10.0, "1/10": 0.1}


@dataclass(frozen=True)
class Result:
    """Result of one case: start and end on the host's clock, and its output."""

    started: Line
    ended: Line

    @property
    def real(self) -> float:
        return self.ended.at - self.started.at

    @property
    def data(self) -> dict:
        return self.ended.data


@dataclass(frozen=True)
class Results:
    """Results of a run, by the cases' names; a case that did not end is missing."""

    by_name: dict[str, Result]
    slack: float
    complaint: str

    def of(self, case: Case) -> Result:
        if case.name not in self.by_name:
            raise AssertionError(f"{case.name} did not end\n{self.complaint}")
        return self.by_name[case.name]


def command(family: str, flavour: str, nominal: float, cases: list[Case], threads: bool) -> list:
    """The command line that runs `cases` of a family at once."""
    flags = ["-t"] if threads else []
    names = [case.name for case in cases]
    return [build.c(f"waits/{family}", flavour), *flags, str(round(nominal * 1e9)), *names]


@functools.cache
def run(
    family: str,
    cases: tuple[Case, ...],
    *,
    rate: str | None,
    nominal: float,
    flavour: str = "dynamic",
    threads: bool = False,
) -> Results:
    """Runs cases of a family at once: natively without a rate. The result is cached for other
    tests."""
    line = command(family, flavour, nominal, list(cases), threads)
    program: Running = Native(line) if rate is None else Inside(*line, rate=rate)
    with HostNoise() as noise, program:
        gather(program, len(cases), patience=25)
        results = collect(program)
    return Results(results, noise.slack, f"{program.stdout[-1500:]}\n{program.stderr[-1500:]}")


def gather(program: Running, count: int, patience: float) -> None:
    """Waits until `count` cases have ended; gives up silently after `patience`."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if len(program.lines(ev="done")) >= count or program.process.poll() is not None:
            break
        time.sleep(0.01)
    time.sleep(0.05)


def collect(program: Running) -> dict[str, Result]:
    """The cases of a program that have ended."""
    started = {line["case"]: line for line in program.lines(ev="ready")}
    ended = {line["case"]: line for line in program.lines(ev="done")}
    return {name: Result(started[name], ended[name]) for name in ended if name in started}


def is_tested(case: Case, flavour: str, rate: str | None) -> bool:
    """Whether a case is run at a rate by a program that is linked so.

    A whole second at rate 1/10 takes ten real seconds. The dynamically linked program alone waits
    for so long.
    """
    return not (case.whole_seconds and rate == "1/10" and flavour != "dynamic")


def matrix(cases: list[Case], rates: Sequence[str]) -> pytest.MarkDecorator:
    """Parametrizes a test by `case`, `flavour` and `rate`, with the combinations tested."""
    every = [
        pytest.param(case, flavour, rate, id=f"{case}-{flavour}-{rate}")
        for rate in rates
        for flavour in C_FLAVOURS
        for case in cases
        if is_tested(case, flavour, rate)
    ]
    return pytest.mark.parametrize(("case", "flavour", "rate"), every)


def standard(case: Case, flavour: str, rate: str | None) -> tuple[Result, float]:
    """A case's result, from a run of its whole family, and the slack of that run."""
    assert is_tested(case, flavour, rate)
    family = [
        other for other in WAITS if other.family == case.family and is_tested(other, flavour, rate)
    ]
    results = run(case.family, tuple(family), rate=rate, nominal=NOMINAL[rate], flavour=flavour)
    return results.of(case), results.slack


def late(case: Case) -> float:
    """The part of its length by which a case may be late."""
    return oracle.LATE_COARSE if case.coarse else oracle.LATE


def check_own_time(case: Case, result: Result, rate: float, slack: float) -> None:
    """Checks the duration by the program's own clock."""
    expect = result.data["expect"]
    span = oracle.own(expect, rate, slack, late=late(case))
    took = result.data["elapsed"]
    assert took in span, f"{case}: by its own clock {took:.4f}, not in {span}"


def check_real_time(case: Case, result: Result, rate: float, slack: float) -> None:
    """Checks the duration by the host's clock, which the rate determines."""
    span = oracle.real(result.data["expect"], rate, slack, late=late(case))
    assert result.real in span, f"{case}: by the host's clock {result.real:.4f}, not in {span}"


def check_results(case: Case, flavour: str, rate: str) -> None:
    """Checks a case inside against the same natively, and against the rate."""
    native, _ = standard(case, flavour, None)
    inside, slack = standard(case, flavour, rate)
    assert oracle.same(inside.data) == oracle.same(native.data)
    check_own_time(case, inside, oracle.ratio(rate), slack)
    check_real_time(case, inside, oracle.ratio(rate), slack)


def check_remaining(name: str, rate: str) -> None:
    """Checks a case that reads the remaining time after half of it: the other half remains."""
    result, slack = standard(named(name), "dynamic", rate)
    nominal = 2 * result.data["expect"]
    left = nominal - result.data["elapsed"]
    tolerance = oracle.LATE * nominal + slack * oracle.ratio(rate)
    spans = [result.data[field] for field in ("remaining", "old") if field in result.data]
    assert spans
    for remaining in spans:
        assert remaining == pytest.approx(left, abs=tolerance)


def named(name: str) -> Case:
    return next(case for case in WAITS if case.name == name)
