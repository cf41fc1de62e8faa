"""A terminal for programs in the foreground: `run --rootfs` and `exec`, with typed input."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from framework import lorentz, processes
from framework.containers import Bundle, rootfs, wait
from framework.running import Inside

PROMPT = "typed> "
SIZE = (33, 101)
#: Time limit for a program's answer, s.
TIMEOUT = 20


class Typed:
    """A program at a pseudo terminal, with its other end."""

    def __init__(self, *words: str) -> None:
        self.text = ""
        self.tag = processes.new_tag()
        self.master, self.slave = pty.openpty()
        self.resize(SIZE)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [*lorentz.session.command(), *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**lorentz.session.environment(), processes.TAG: self.tag},
        )

    def __enter__(self) -> Typed:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                processes.kill_tagged(self.tag)
                self.process.wait(timeout=TIMEOUT)
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)

    def resize(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str) -> str:
        """Returns the output up to `text`, which must come in time."""
        end = time.monotonic() + TIMEOUT
        while text not in self.text:
            left = end - time.monotonic()
            assert left > 0 and self.process.poll() is None, f"no {text!r} in {self.text!r}"
            if select.select([self.master], [], [], min(left, 0.2))[0]:
                self.text += os.read(self.master, 4096).decode()
        shown, _, self.text = self.text.partition(text)
        return shown

    def answer(self, command: str) -> list[str]:
        """Returns the output of a command at a shell's prompt, as lines."""
        self.type(f"{command}\n")
        self.read_until("\n")
        return self.read_until(PROMPT).splitlines()

    def end(self) -> int:
        """Returns its exit status. The terminal must be as before."""
        status = self.process.wait(timeout=TIMEOUT)
        assert termios.tcgetattr(self.slave) == self.before
        return status


def shell(*options: str) -> Typed:
    words = ("run", "--rootfs", str(rootfs()), "--env", f"PS1={PROMPT}", "--env", "TERM=dumb")
    typed = Typed(*words, *options, "--", "sh")
    typed.read_until(PROMPT)
    return typed


def test_a_shell_has_a_terminal_of_the_same_size():
    with shell("--rate", "2", "--at", "2038-01-19") as typed:
        assert typed.answer("tty") == ["/dev/pts/0"]
        assert typed.answer("stty size") == ["33 101"]
        assert typed.answer("date +%Y") == ["2038"]
        typed.resize((20, 60))
        end = time.monotonic() + TIMEOUT
        while typed.answer("stty size") != ["20 60"]:
            assert time.monotonic() < end
        typed.type("exit 7\n")
        assert typed.end() == 7


def sleeps(name: str) -> bool:
    """Whether a program of a container is `sleep`: then it has the shell's terminal."""
    for pid in lorentz.shown(name)["pids"]:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\0":
                return True
    return False


def test_keys_reach_the_program_and_not_what_is_around_it():
    """Line editing, an interrupt, a stop and its end by a job: as at any terminal."""
    name = f"keys-{os.getpid()}"
    with shell("--name", name) as typed:
        assert typed.answer("echo wrong\x7f\x7f\x7f\x7f\x7fright")[-1] == "right"
        typed.type("sleep 1000\n")
        typed.read_until("sleep 1000")
        wait(lambda: sleeps(name), "no sleep in the foreground")
        typed.type("\x03")
        typed.read_until(PROMPT)
        assert typed.answer("echo $?") == ["130"]
        typed.type("sleep 1000\n")
        typed.read_until("sleep 1000")
        wait(lambda: sleeps(name), "no sleep in the foreground")
        typed.type("\x1a")
        assert "Stopped" in typed.read_until(PROMPT)
        assert "sleep 1000" in "".join(typed.answer("jobs"))
        typed.answer("kill -9 %1")
        typed.answer("wait")
        assert typed.process.poll() is None
        # The end of input.
        typed.type("\x04")
        assert typed.end() == 0


def test_much_is_shown_whole():
    with Typed(
        "run", "--rootfs", str(rootfs()), "--", "sh", "-c", "busybox seq 20000; echo over"
    ) as typed:
        lines = typed.read_until("over").split()
        assert lines == [str(number) for number in range(1, 20001)]
        assert typed.end() == 0


def test_other_users_have_it_too():
    with shell("--user", "7:8", "--user-namespace") as typed:
        assert typed.answer("id -u") == ["7"]
        assert typed.answer("echo x > /dev/tty") == ["x"]
        typed.type("exit\n")
        assert typed.end() == 0


def test_the_terminal_is_as_before_when_it_is_told_to_end():
    """A signal ends it, which the program gets; or a kill of the program does."""
    script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done"
    for number, status in ((signal.SIGTERM, 9), (signal.SIGHUP, 128 + signal.SIGKILL)):
        with Typed("run", "--rootfs", str(rootfs()), "--name", "t", "--", "sh", "-c", script) as t:
            t.read_until("up")
            if number == signal.SIGTERM:
                t.process.send_signal(number)
            else:
                os.kill(lorentz.shown("t")["pids"][0], signal.SIGKILL)
            assert t.end() == status
        lorentz.wait_until_gone("t")


def test_a_shell_ends_with_its_terminal():
    with shell("--name", "hung") as typed:
        os.close(typed.master)
        os.close(typed.slave)
        typed.master = typed.slave = -1
        typed.process.wait(timeout=TIMEOUT)
    lorentz.wait_until_gone("hung")


def test_where_a_stream_goes_elsewhere_there_is_no_terminal():
    with Typed(
        *("run", "--rootfs", str(rootfs()), "--", "sh", "-c"), "tty; echo a >&2; echo over"
    ) as typed:
        assert "/dev/pts/0" in typed.read_until("over")
    assert lorentz.ok("run", "--rootfs", str(rootfs()), "--", "sh", "-c", "echo a") == "a\n"
    done = lorentz.call("run", "--rootfs", str(rootfs()), "--", "sh", "-c", "echo a; echo b >&2")
    assert (done.stdout, done.stderr) == ("a\n", "b\n")


def test_exec_has_one_too():
    script = 'echo \'{"ev":"up"}\'; sleep 1000'
    options = ("--rootfs", str(rootfs()), "--env", f"PS1={PROMPT}")
    with Inside("sh", "-c", script, options=options, rate="2") as inside:
        inside.line(ev="up")
        with Typed("exec", inside.name, "sh") as typed:
            typed.read_until(PROMPT)
            assert typed.answer("stty size") == ["33 101"]
            assert typed.answer("tty")[0].startswith("/dev/pts/")
            typed.type("exit 3\n")
            assert typed.end() == 3


def test_a_bundle_that_asks_for_one_gets_it_without_a_terminal_outside():
    """Its input is a pipe, whose end is the end of input."""
    with Bundle(["sh", "-c", "busybox tty; cat; echo over"]) as bundle:
        bundle.config["process"]["terminal"] = True
        bundle.config["mounts"].append(
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666", "mode=0620"],
            }
        )
        bundle.write()
        done = lorentz.call("run", "--bundle", str(bundle.folder))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["/dev/pts/0", "over"]
