"""`lorentz attach` of the shell that a person types it into."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

import pytest
from framework import lorentz

TIMEOUT = 20
#: The line after the command.
ENDED = re.compile(r"^status (\d+)", re.MULTILINE)


def typed(flags: str, answer: str) -> tuple[int, str]:
    """Types `lorentz attach $$` into a shell, and an answer. Returns the command's exit status, and
    what stood on the terminal."""
    terminal, end = pty.openpty()
    command = lorentz.session.binary
    script = f'{command} attach $$ --name own-shell{os.getpid()} {flags}; echo "status $?"'
    environment = lorentz.session.environment()
    shell = subprocess.Popen(
        ["sh", "-c", script], stdin=end, stdout=end, stderr=end, env=environment
    )
    os.close(end)
    os.write(terminal, answer.encode())
    seen = ""
    deadline = time.monotonic() + TIMEOUT
    try:
        while not ENDED.search(seen):
            left = deadline - time.monotonic()
            assert left > 0, seen
            if select.select([terminal], [], [], left)[0]:
                seen += os.read(terminal, 4096).decode()
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
        lorentz.call("rm", "--force", f"own-shell{os.getpid()}")
    return int(ENDED.search(seen)[1]), seen


def test_no_is_the_answer_that_attaches_nothing():
    status, seen = typed("", "\n")
    assert status == 2
    assert "Attach it? [y/N]" in seen
    assert "not attached; --yes attaches without a question" in seen


@pytest.mark.parametrize(("flags", "answer"), [("", "y\n"), ("--yes", "")])
def test_yes_attaches(flags: str, answer: str):
    status, seen = typed(flags, answer)
    assert status == 0
    assert ("Attach it?" in seen) == (not flags)
    assert "in virtual time" in seen
