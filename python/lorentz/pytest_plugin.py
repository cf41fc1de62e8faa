"""The pytest plugin: tests at other times.

    @pytest.mark.lorentz(at="2038-01-19", rate=60, skip_idle=True)
    def test_renewal(clock):
        clock.leap("30d")

- The mark puts a test, with its fixtures of function scope, into a block of `lorentz.travel`,
  `lorentz.frozen` or `lorentz.rate`.
- The fixture `clock` is the `ProcessClock` of the process. Its changes end with the test.
- `--lorentz-at`, `--lorentz-rate` and `--lorentz-skip-idle` run the whole session on a clock of its
  own from the start: pytest executes itself anew under `lorentz run`. With pytest-xdist each worker
  runs under a `lorentz run` of its own, and the controller in real time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack

import pytest

from lorentz import _native, time_blocks
from lorentz.process_clock import ProcessClock, SkipIdle
from lorentz.time_blocks import Block

#: Keywords of the mark.
KEYWORDS = ("at", "rate", "skip_idle", "frozen")

#: Names an environment variable that says that `lorentz run` has started this pytest for the flags.
_STARTED = "LORENTZ_PYTEST_STARTED"

#: Flags of the session, by their names among the options of a clock.
_FLAGS = {"at": "lorentz_at", "rate": "lorentz_rate", "skip-idle": "lorentz_skip_idle"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flags."""
    group = parser.getgroup("lorentz", "virtual time")
    group.addoption(
        "--lorentz-at", metavar="TIME", help="run the session at this time: 2038-01-19T03:14:00Z"
    )
    group.addoption(
        "--lorentz-rate", metavar="R", help="run the session at this rate: 60, 1/10; 1 is real time"
    )
    group.addoption(
        "--lorentz-skip-idle",
        choices=("on", "force"),
        help="skip time in which all tasks of the session only wait",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line(
        "markers",
        "lorentz(at, rate, skip_idle, frozen): run the test at another time (lorentz.travel)",
    )


# --------------------------------------------------------------------------------- the session


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Executes pytest anew under `lorentz run`, where a flag asks for it: before anything is
    captured or imported."""
    asked = _asked(early_config.known_args_namespace)
    if asked and not _is_worker() and not _is_distributed(early_config):
        _execute_on_clock(early_config, asked)
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list) -> None:
    """Has each worker of pytest-xdist run on a clock of its own."""
    asked = _asked(config.option)
    for spec in specs if asked else ():
        if spec.popen:
            python = spec.python or sys.executable
            spec.python = " ".join([*_run(asked), python])


def pytest_report_header(config: pytest.Config) -> str | None:
    """Names the session's clock."""
    asked = _asked(config.option)
    return f"lorentz: {' '.join(_flags(asked))}" if asked else None


def _asked(options: object) -> list[tuple[str, str]]:
    """The options of the session's clock that were asked for, with their values."""
    values = ((name, getattr(options, attribute, None)) for name, attribute in _FLAGS.items())
    return [(name, value) for name, value in values if value is not None]


def _flags(asked: list[tuple[str, str]]) -> list[str]:
    """The flags of `lorentz run`. Raises UsageError for a value that it does not accept."""
    try:
        return _native.clock_flags(asked)
    except _native.WrongInputError as error:
        raise pytest.UsageError(f"--lorentz-{error}") from None


def _run(asked: list[tuple[str, str]]) -> list[str]:
    """The command that runs a program on such a clock. One option at least is given, so that a rate
    of 1 makes a clock that can change."""
    flags = _flags(asked)
    if not any(flag.startswith("--rate") for flag in flags):
        flags.append("--rate=1")
    return [_native.command(), "run", *flags, "--"]


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _is_distributed(config: pytest.Config) -> bool:
    """Whether pytest-xdist starts workers: it has -n above 0, or --tx."""
    options = config.known_args_namespace
    return bool(getattr(options, "numprocesses", None) or getattr(options, "tx", None))


def _execute_on_clock(config: pytest.Config, asked: list[tuple[str, str]]) -> None:
    """Replaces this process by `lorentz run` with the same command line. Returns if this process is
    that program already."""
    names = ", ".join(f"--lorentz-{name}" for name, _ in asked)
    if os.environ.pop(_STARTED, None):
        return
    command = _run(asked)
    inside = _native.OwnClock.find()
    if inside:
        raise pytest.UsageError(
            f"{names}: pytest is on the clock of {inside.name} already; expected one in real time"
        )
    arguments = [str(one) for one in config.invocation_params.args]
    if arguments != sys.orig_argv[len(sys.orig_argv) - len(arguments) :]:
        raise pytest.UsageError(f"{names}: expected pytest to be run by its command line")
    os.environ[_STARTED] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], [*command, sys.executable, *sys.orig_argv[1:]])


# ----------------------------------------------------------------------------------- the tests


@pytest.fixture(autouse=True)
def _lorentz_mark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Puts a test with the mark into its block."""
    mark = request.node.get_closest_marker("lorentz")
    if mark is None:
        yield
        return
    with ExitStack() as stack:
        _enter(stack, _block_of(mark))
        yield


@pytest.fixture
def clock(_lorentz_mark: None) -> Iterator[ProcessClock]:
    """The clock of this process and all that it starts: travel, step, leap, dilate, freeze. Its
    changes end with the test."""
    with ExitStack() as stack:
        yield _enter(stack, time_blocks.own_clock())


def _enter(stack: ExitStack, block: Block) -> ProcessClock:
    """Enters a block. A test whose process cannot come onto a clock fails with one line."""
    try:
        return stack.enter_context(block)
    except _native.LorentzError as error:
        pytest.fail(f"lorentz: {error}", pytrace=False)


def _block_of(mark: pytest.Mark) -> Block:
    """The block that a mark asks for. A wrong mark fails the test with one line."""
    given = dict(mark.kwargs)
    if len(mark.args) == 1 and "at" not in given:
        given["at"] = mark.args[0]
    elif mark.args:
        _fail(f"{len(mark.args)} arguments; expected one time, or keywords {', '.join(KEYWORDS)}")
    unknown = [keyword for keyword in given if keyword not in KEYWORDS]
    if unknown:
        _fail(f"{unknown[0]}: no keyword; expected {', '.join(KEYWORDS)}")
    try:
        return _block(**given)
    except (_native.LorentzError, TypeError) as error:
        _fail(str(error))


def _block(
    at: object = None,
    rate: object = None,
    skip_idle: SkipIdle | None = None,
    frozen: bool = False,
) -> Block:
    if frozen and skip_idle is None:
        skip_idle = True
    if skip_idle is True and _is_worker():
        # A thread of a worker waits for the controller all the time, which is not on the clock.
        skip_idle = "force"
    if frozen and rate is not None:
        raise TypeError("frozen, rate: expected one of them")
    if frozen:
        return time_blocks.frozen(at, skip_idle=skip_idle)
    if at is not None:
        return time_blocks.travel(at, rate=rate, skip_idle=skip_idle)
    if rate is not None or skip_idle is not None:
        return time_blocks.rate(1 if rate is None else rate, skip_idle=skip_idle)
    raise TypeError(f"no keyword; expected one of {', '.join(KEYWORDS)}")


def _fail(problem: str) -> None:
    pytest.fail(f"pytest.mark.lorentz: {problem}", pytrace=False)
