"""`lorentz top`: a person at a terminal looks, and changes clocks by keys."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pyte
import pytest
from framework import build, lorentz
from framework.experiments import until
from framework.running import Inside

TIMEOUT = 10


class Top:
    """`lorentz top` on a terminal of 24 lines."""

    def __init__(self, columns: int = 120) -> None:
        self.terminal, end = pty.openpty()
        subprocess.run(["stty", "rows", "24", "cols", str(columns)], stdin=end, check=True)
        command = [*lorentz.session.command(), "top", "--interval", "50ms"]
        environment = {**lorentz.session.environment(), "TERM": "xterm"}
        self.process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True
        )
        os.close(end)
        self.screen = pyte.Screen(columns, 24)
        self.stream = pyte.ByteStream(self.screen)

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def wait_for(self, *texts: str) -> None:
        """Waits until all texts are on the screen."""
        deadline = time.monotonic() + TIMEOUT
        while not all(text in "\n".join(self.screen.display) for text in texts):
            left = deadline - time.monotonic()
            assert left > 0, f"{texts} are not shown: {self.screen.display}"
            if select.select([self.terminal], [], [], left)[0]:
                self.stream.feed(os.read(self.terminal, 65536))

    def shows(self, text: str) -> bool:
        """Whether the text is on the screen, after all that has been drawn so far."""
        while select.select([self.terminal], [], [], 0)[0]:
            self.stream.feed(os.read(self.terminal, 65536))
        return text in "\n".join(self.screen.display)

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def container() -> Iterator[Inside]:
    program = build.c("waits/sleep"), str(10**15), "nanosleep"
    with Inside(*program, rate="10", at="2038-01-19") as inside:
        inside.line(ev="ready")
        yield inside


@pytest.fixture
def top(container: Inside) -> Iterator[Top]:
    top = Top()
    try:
        top.wait_for("NAME", "TIME INSIDE", container.name, "running", "2038-01-19T", "q quit")
        yield top
    finally:
        top.end()


def test_keys_change_the_selected_clock_and_show_the_command_line(container: Inside, top: Top):
    top.press("f")
    top.wait_for(f"lorentz freeze {container.name}", "frozen")
    assert container.time()["state"] == "frozen"
    top.press("f")
    top.wait_for(f"lorentz unfreeze {container.name}", "running")
    top.press("+")
    top.wait_for(f"lorentz dilate {container.name} --rate 20")
    assert container.time()["rate"] == "20"
    top.press("l")
    top.wait_for("leap by")
    before = container.time()["monotonic_ns"]
    top.press("2d\r")
    top.wait_for(f"lorentz leap {container.name} --by 2d")
    assert container.time()["monotonic_ns"] >= before + 2 * 86_400 * 10**9
    top.press("w")
    top.wait_for("nanosleep", "Esc back")
    top.press("\x1b")
    top.wait_for("q quit  up/down")
    # Its only wait is over at once then, and it ends.
    top.press("s")
    top.wait_for(f"lorentz skip {container.name} on")


def test_a_line_that_a_change_prints_does_not_stay_on_the_screen(container: Inside, top: Top):
    lorentz.ok("dilate", container.name, "--rate", "2", "--at", "2099-01-01")
    top.press("+")
    top.wait_for(f"lorentz dilate {container.name} --rate 20", "TIME INSIDE")
    # The picture is whole again after the next look.
    top.press("j")
    until(lambda: not top.shows("is dropped"), "a whole picture")
    assert top.shows("TIME INSIDE") and top.shows("q quit")


def test_a_wrong_duration_is_told_and_nothing_is_changed(container: Inside, top: Top):
    top.press("l")
    top.wait_for("leap by")
    top.press("soon\r")
    top.wait_for("--by soon: expected a duration")
    assert container.time()["rate"] == "10"


@pytest.mark.parametrize("key", ["q", "\x1b", "\x03"])
def test_it_ends_by_a_key_and_leaves_the_terminal_as_it_was(top: Top, key: str):
    top.press(key)
    until(lambda: top.process.poll() is not None, "the end of lorentz top")
    assert top.process.returncode == 0
    # Out of the other screen, and the cursor is back.
    drawn = b""
    while select.select([top.terminal], [], [], 0)[0]:
        try:
            drawn += os.read(top.terminal, 65536)
        except OSError:  # nobody has the other end any more
            break
    assert b"\x1b[?1049l" in drawn and b"\x1b[?25h" in drawn


def test_a_narrow_terminal_shows_all_but_the_commands(container: Inside):
    top = Top(columns=80)
    try:
        top.wait_for(container.name, "running", "2038-01-19T", "SKIPPED", "w why")
        assert "COMMAND" not in "\n".join(top.screen.display)
    finally:
        top.end()


def test_containers_come_and_go(container: Inside, top: Top):
    with Inside("cat", rate="1", stdin=True, name=f"{container.name}-two") as second:
        top.wait_for(second.name)
        top.wait_for("lorentz: 2 containers")
    top.wait_for("lorentz: 1 container ")
    assert top.process.poll() is None


def test_without_a_terminal_it_is_refused():
    line = lorentz.refusal(lorentz.call("top"), "standard output")
    assert "'lorentz ps'" in line
