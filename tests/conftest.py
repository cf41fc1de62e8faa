"""Black-box tests of lorentz; README.md tells how they are made and run."""

from __future__ import annotations

import signal
import time

import pytest
from framework import checkpoints, lorentz

#: Width of the summary's lines where nobody watches, so that they have room for the reasons.
SUMMARY_WIDTH = 300


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    checkpoints.use_installed_criu()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not reporter.isatty:
        reporter._tw.fullwidth = SUMMARY_WIDTH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first, so that none of them runs alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def _session():
    # A background process ignores these signals; so would the programs under test.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    yield
    lorentz.session.close()


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left():
    """A file's tests leave no container, experiment or network to the next file."""
    yield
    folder = lorentz.session.state_dir()
    deadline = time.monotonic() + 5
    while left := lorentz.left(folder):
        # A monitor removes its container a moment after the program's end.
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)
