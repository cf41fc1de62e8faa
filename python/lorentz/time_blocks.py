"""Blocks of code at another time: `travel`, `frozen`, `rate`, `own_clock`.

Each is a context manager, and a decorator of functions, coroutine functions and generators:

    with lorentz.travel("2038-01-19"):
        ...

    @lorentz.frozen("2024-02-29")
    def test_leap_day(): ...

The first block brings the process onto a clock of its own, once, at rate 1, with the processes
that it has started. A process that `lorentz run` has started is on one already. A block then
changes that clock: for all threads, for C extensions, for the programs that the process starts, and
for their waits and timers.

At its end a block gives the time back:

- The wall clock shows as much more than at the beginning as the block has taken of real time (at
  the rate of the code around it), whatever was done to it in between.
- CLOCK_MONOTONIC never goes back. Where the block has run slower than the code around it, or
  frozen, it leaps forward to where it would have been; waits that are due by then end. Where the
  block has run faster, has leapt or skipped idle time, it stays ahead by that much, for good.

Blocks nest. If one thread ends a block that another has entered before its own, the clock goes on
as the block says that was entered last; the time is given back when that one ends. A forked child
shares the clock; it does not give the time back at the end of a block that its parent has entered.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import TypeVar

from lorentz.process_clock import (
    Destination,
    ProcessClock,
    SkipIdle,
    native_clock,
    rate_of,
    ratio,
    skip_word,
)
from lorentz.times import Ratio

Function = TypeVar("Function", bound=Callable)


@dataclass(frozen=True)
class _Course:
    """How the clocks went on before a block. Times are in ns."""

    real: int
    monotonic: int
    wall: int
    leapt: int
    rate: Fraction
    skip_idle: str
    switch_interval: float

    @classmethod
    def of(cls, clocks: dict) -> _Course:
        """The course of the clocks of this reading."""
        return cls(
            real=clocks["host_monotonic_ns"],
            monotonic=clocks["monotonic_ns"],
            wall=clocks["wall_ns"],
            leapt=clocks["leapt_ns"],
            rate=rate_of(clocks),
            skip_idle=clocks["skip_idle"],
            switch_interval=sys.getswitchinterval(),
        )

    def passed(self, clocks: dict) -> int:
        """Returns the time that would have passed on this course by the moment of a reading, ns.
        Leaps over idle time count where they would have been made on this course, too."""
        passed = int((clocks["host_monotonic_ns"] - self.real) * self.rate)
        if self.skip_idle != "off":
            passed += clocks["leapt_ns"] - self.leapt
        return passed

    def resume(self, clock: ProcessClock) -> None:
        """Gives the time back: the clocks show what they would show on this course."""
        native = clock._native
        clocks = native.reading()
        skips = clocks["skip_idle"]
        if skips not in ("off", self.skip_idle):
            native.set_skip_idle("off")
            skips = "off"
        if self.rate not in (rate_of(clocks), 0):
            native.dilate(self.rate.numerator, self.rate.denominator)
            sys.setswitchinterval(self.switch_interval)
            clocks = native.reading()
        # The rate is the course's by now: the distances are the same at each moment.
        passed = self.passed(clocks)
        behind = self.monotonic + passed - clocks["monotonic_ns"]
        # A nanosecond is lost by rounding.
        leap = behind if behind > 1 else 0
        if leap:
            native.leap(leap)
        step = self.wall + passed - clocks["wall_ns"] - leap
        if abs(step) > 1:
            native.step(step)
        if skips != self.skip_idle:
            native.set_skip_idle(self.skip_idle)


class _Entered:
    """A block that was entered and has not ended."""

    def __init__(self, course: _Course) -> None:
        self.course = course
        self.pid = os.getpid()


#: Guards the list of blocks that were entered, in the order of entering, and changes by blocks.
_lock = threading.RLock()
_entered: list[_Entered] = []


def _after_fork() -> None:
    """Frees the lock in a child: the thread that had it exists in the parent alone."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class Block:
    """A block of code at another time: a context manager, and a decorator.

    It may be used again, also inside itself, and by several threads.
    """

    def __init__(self, change: Callable[[ProcessClock], None], text: str) -> None:
        """change: changes the clock when the block begins. text: how the block was written."""
        self._change = change
        self._text = text
        self._running: list[_Entered] = []

    def __enter__(self) -> ProcessClock:
        clock = ProcessClock(native_clock())
        with _lock:
            entered = _Entered(_Course.of(clock._native.reading()))
            try:
                self._change(clock)
            except BaseException:
                entered.course.resume(clock)
                raise
            _entered.append(entered)
            self._running.append(entered)
        return clock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            entered = self._running.pop()
            place = _entered.index(entered)
            del _entered[place]
            if entered.pid != os.getpid():
                return
            if place < len(_entered):
                # A block that was entered later goes on. It gives back what this one would have.
                _entered[place].course = entered.course
            else:
                entered.course.resume(ProcessClock(native_clock()))

    def __call__(self, function: Function) -> Function:
        """Decorates a function: each call is a block."""
        if isinstance(function, type):
            raise TypeError(
                f"{self._text} of class {function.__name__}: expected a function; "
                "pytest.mark.lorentz takes classes"
            )
        if inspect.isasyncgenfunction(function):
            raise TypeError(f"{self._text}: {function.__name__} is an asynchronous generator")
        if inspect.iscoroutinefunction(function):
            return self._of_coroutine(function)
        if inspect.isgeneratorfunction(function):
            return self._of_generator(function)

        @functools.wraps(function)
        def call(*arguments: object, **keywords: object) -> object:
            with self._anew():
                return function(*arguments, **keywords)

        return call

    def _of_coroutine(self, function: Function) -> Function:
        @functools.wraps(function)
        async def call(*arguments: object, **keywords: object) -> object:
            with self._anew():
                return await function(*arguments, **keywords)

        return call

    def _of_generator(self, function: Function) -> Function:
        @functools.wraps(function)
        def call(*arguments: object, **keywords: object) -> Generator:
            with self._anew():
                return (yield from function(*arguments, **keywords))

        return call

    def _anew(self) -> Block:
        return Block(self._change, self._text)

    def __repr__(self) -> str:
        return f"<lorentz.{self._text}>"


def travel(
    to: Destination, *, rate: Ratio | None = None, skip_idle: SkipIdle | None = None
) -> Block:
    """A block whose wall clock begins at `to`, later or earlier, and goes on from there.

    CLOCK_MONOTONIC does not change by that: `time.monotonic()`, timeouts and `asyncio` go on. rate:
    virtual seconds per real second in the block, of all clocks. skip_idle: whether time leaps over
    what all tasks on the clock only wait for; None leaves it as it is.
    """
    exact_rate = None if rate is None else ratio(rate)
    word = None if skip_idle is None else skip_word(skip_idle)

    def change(clock: ProcessClock) -> None:
        if exact_rate is not None:
            clock.set_rate(exact_rate)
        clock.travel(to)
        if word is not None:
            clock.skip_idle(word)

    return Block(change, f"travel({to!r})")


def frozen(at: Destination | None = None, *, skip_idle: SkipIdle = True) -> Block:
    """A block in which all clocks stand while programs run.

    at: the time that the wall clock shows; None: that at the beginning. Every clock stands,
    CLOCK_MONOTONIC and CPU time among them. The process runs, unlike one that `lorentz freeze` has
    stopped, which could not end the block: the clock's rate is 1 ns in 6.5 days.

    With `skip_idle` time moves by waiting alone: when every task on the clock waits, time leaps to
    the next deadline. `time.sleep(3600)` ends at once, an hour later. Where a task waits for
    something that the outside may bring, there is no leap before that has come ("force": there is).
    Without `skip_idle`, a wait ends when the block does, so a wait of the thread that would end it
    never ends. A loop that reads the clock until it shows a later time never ends either.
    """
    word = skip_word(skip_idle)

    def change(clock: ProcessClock) -> None:
        clock.freeze(skip_idle=word)
        if at is not None:
            clock.travel(at)

    return Block(change, f"frozen({'' if at is None else repr(at)})")


def rate(rate: Ratio, *, skip_idle: SkipIdle | None = None) -> Block:
    """A block in which all clocks run at `rate` virtual seconds per real second: a number, or text.
    Waits take as long by these clocks, so the fraction of real time."""
    exact = ratio(rate)
    word = None if skip_idle is None else skip_word(skip_idle)

    def change(clock: ProcessClock) -> None:
        clock.set_rate(exact)
        if word is not None:
            clock.skip_idle(word)

    return Block(change, f"rate({rate!r})")


def own_clock() -> Block:
    """A block that changes nothing. Changes by the clock that it returns end with it."""
    return Block(lambda _clock: None, "own_clock()")
