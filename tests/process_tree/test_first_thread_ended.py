"""Programs whose first thread ends while others run (`pthread_exit` in `main`)."""

from __future__ import annotations

import time
from pathlib import Path

from framework import build, checkpoints, lorentz, needs
from framework.oracle import HostNoise
from framework.running import Inside, Native


def program() -> Path:
    return build.c("process/first_thread_ended")


def await_end_of_the_first(pid: int) -> None:
    """Waits until the kernel shows the first thread as ended."""
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_changes_of_the_clock_reach_its_waits():
    with HostNoise() as noise, Inside(program(), "1000", rate="1") as inside:
        inside.line(ev="ready")
        (pid,) = inside.programs()
        await_end_of_the_first(pid)
        assert inside.shown()["pids"] == [pid]
        inside.freeze()
        stands = [inside.time()["monotonic_ns"] for _ in range(2)]
        assert stands[0] == stands[1]
        inside.unfreeze()
        inside.dilate("1000")
        done = inside.line(ev="done")
        inside.succeed()
    assert 1000 <= done["elapsed"] < 1000 + 1000 * noise.slack


def test_time_does_not_leap_while_one_of_its_threads_waits_for_another_program():
    options = ["--skip-idle"]
    with Inside(program(), "1000", "read", options=options, stdin=True) as inside:
        inside.line(ev="ready")
        (pid,) = inside.programs()
        await_end_of_the_first(pid)
        begun = inside.time()["monotonic_ns"]
        time.sleep(1)
        assert inside.time()["monotonic_ns"] - begun < 100e9
        inside.process.stdin.write(b"x")
        inside.process.stdin.flush()
        inside.line(ev="read")
        # Nobody else wakes it now.
        assert inside.line(ev="done")["elapsed"] >= 1000


def test_attach_and_checkpoint_say_why_not(tmp_path):
    with Native([program(), "1000"]) as native:
        native.line(ev="ready")
        await_end_of_the_first(native.pid)
        refused = lorentz.call("attach", str(native.pid))
        assert refused.returncode == 2 and refused.stderr == (
            f"lorentz: PID {native.pid}: its first thread has ended, and others run; "
            "'lorentz run' starts such a program in virtual time\n"
        )
    needs.root()
    checkpoints.criu()
    with Inside(program(), "1000") as inside:
        inside.line(ev="ready")
        await_end_of_the_first(inside.programs()[0])
        refused = lorentz.call("checkpoint", inside.name, "-o", str(tmp_path / "saved"))
        assert refused.returncode != 0 and refused.stderr.count("\n") == 1
        assert "first thread of a program has ended" in refused.stderr
        assert not list(tmp_path.iterdir())
        assert inside.shown()["state"] == "running"
