"""Containers of the OCI runtime that are checkpointed and restored."""

from __future__ import annotations

import contextlib
import itertools
import json
import operator
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest
from framework import checkpoints, lorentz, processes
from framework.containers import Bundle, runtime, wait
from framework.oracle import HostNoise

LOOP = "while :; do date +%s; usleep 100000; done"
#: Into a file system of the container's own.
TO_LOG = f"exec >/tmp/log; {LOOP}"
TMP = {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


class Logging(Bundle):
    """A container that prints the time into a file of its own."""

    def __init__(self, script: str = TO_LOG, **annotations: str) -> None:
        super().__init__(["sh", "-c", script], **annotations)
        self.config["mounts"] = [*self.config["mounts"], TMP]

    def log(self) -> list[int]:
        return [int(line) for line in self.exec("cat", "/tmp/log").split()]


def checkpoint(bundle: Bundle, *options: str) -> Path:
    """Saves the container in the bundle's folder `saved`."""
    bundle.ok("checkpoint", "--image-path", "saved", *options, bundle.id)
    return bundle.folder / "saved"


def restore(bundle: Bundle, *options: str) -> None:
    options = ("--detach", "--image-path", "saved", *options)
    bundle.ok("restore", "--bundle", str(bundle.folder), *options, bundle.id)


def status_of(bundle: Bundle, *fields: str) -> list[str]:
    """Lines of the first process's /proc/PID/status."""
    lines = Path(f"/proc/{bundle.pid()}/status").read_text().splitlines()
    return [line for line in lines if line.startswith(fields)]


def test_a_container_goes_on_where_it_stood():
    """Its clock, its programs, their capabilities and its control group; exec works as before."""
    with Logging(at="2038-01-19", rate="10") as bundle:
        bundle.start()
        wait(lambda: len(bundle.log()) > 3, "no output")
        rights = status_of(bundle, "Cap", "NoNewPrivs", "Seccomp")
        assert "CapEff:\t00000000200004a0" in rights
        checkpoint(bundle)
        assert "does not exist" in bundle.refused("state", bundle.id)
        lorentz.wait_until_gone(bundle.id)
        time.sleep(2)
        restore(bundle, "--pid-file", "pid")
        assert bundle.status() == "running"
        assert int((bundle.folder / "pid").read_text()) == bundle.pid()
        before = len(bundle.log())
        wait(lambda: len(bundle.log()) > before + 3, "it does not go on")
        steps = [after - at for at, after in itertools.pairwise(bundle.log())]
        assert min(steps) >= 0 and max(steps) < 10, "time has passed in between"
        assert [line for line in status_of(bundle, "Cap", "NoNewPrivs") if line in rights] == [
            line for line in rights if not line.startswith("Seccomp")
        ]
        assert bundle.exec("date", "+%Y") == "2038\n"
        lorentz.ok("leap", bundle.id, "--by", "400d")
        assert bundle.exec("date", "+%Y") == "2039\n"
        bundle.ok("pause", bundle.id)
        assert bundle.frozen()
        bundle.ok("resume", bundle.id)
        bundle.ok("kill", bundle.id, "KILL")
        bundle.wait_until("stopped")
        bundle.ok("delete", bundle.id)


def test_many_cycles_leave_the_container_as_it_was():
    """No filter, descriptor or mapping is added."""
    with Logging(at="2038-01-19", rate="10") as bundle:
        bundle.start()
        wait(lambda: len(bundle.log()) > 3, "no output")
        figures = []
        for _ in range(8):
            checkpoint(bundle)
            restore(bundle)
            wait(lambda: bundle.log(), "it does not go on")
            folder = Path(f"/proc/{bundle.pid()}")
            filters = status_of(bundle, "Seccomp_filters")
            maps = len((folder / "maps").read_text().splitlines())
            figures.append((filters, maps, len(list((folder / "fd").iterdir()))))
        assert figures == figures[:1] * 8


def test_a_wait_ends_at_its_virtual_deadline():
    away, rate = 2, 20
    script = "exec >/tmp/log; date +%s; sleep 100; date +%s; sleep 1000000"
    with Logging(script, at="@2000000000", rate=str(rate)) as bundle:
        bundle.start()
        time.sleep(1)
        checkpoint(bundle)
        time.sleep(away)
        restore(bundle)
        wait(lambda: len(bundle.log()) == 2, "the wait does not end")
        first, last = bundle.log()
        assert first >= 2000000000
        assert 0 <= last - first - 100 < away * rate / 2


def test_two_lives_of_one_moment():
    """The other life has another id, and starts at another date."""
    with Logging(at="2038-01-19") as bundle:
        bundle.start()
        wait(lambda: len(bundle.log()) > 3, "no output")
        checkpoint(bundle, "--leave-running", "--compress")
        assert bundle.status() == "running"
        with Logging(at="2038-01-19") as other:
            shutil.copytree(bundle.folder / "saved", other.folder / "saved")
            restore(other)
            lorentz.ok("leap", other.id, "--by", "400d")
            assert other.exec("date", "+%Y") == "2039\n"
            assert bundle.exec("date", "+%Y") == "2038\n"
            assert other.pid() != bundle.pid()


@pytest.mark.parametrize("part", ["criu", "runtime"])
def test_a_restore_that_is_killed_leaves_nothing_behind_a_delete(part):
    """CRIU, or the runtime, killed at once or in the midst of it."""
    with Logging(at="2038-01-19") as bundle:
        bundle.start()
        checkpoint(bundle)
        for delay in (0.02, 0.05, 0.1, 0.2):
            words = ["restore", "--detach", "--image-path", "saved", bundle.id]
            with (bundle.folder / "log").open("w") as log:
                started = subprocess.Popen(
                    [str(runtime()), *words],
                    cwd=bundle.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**lorentz.session.environment(), processes.TAG: bundle.tag},
                )
                time.sleep(delay)
                if part == "runtime":
                    started.kill()
                else:
                    for pid in children_of(started.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                started.wait(timeout=20)
            bundle.ok("delete", "--force", bundle.id)
            lorentz.wait_until_gone(bundle.id)
        restore(bundle)
        assert bundle.exec("date", "+%Y") == "2038\n"


def children_of(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if "criu" in Path(f"/proc/{word}/comm").read_text():
                    found.append(int(word))
    return found


def test_annotations_of_the_restore_change_rate_and_wall_clock():
    """The wall clock shows the host's absence; the other clocks go on where they stood."""
    with Bundle(["sleep", "100000000"], at="2038-01-19", rate="10") as bundle:
        bundle.start()
        at_rest = bundle.time()
        checkpoint(bundle)
        time.sleep(3)
        bundle.config["annotations"] |= {
            "lorentz.restore-wall": "host",
            "lorentz.restore-rate": "0.001",
        }
        bundle.write()
        restore(bundle)
        after = bundle.time()
        assert after["rate"] == "0.001"
        wall = (datetime.fromisoformat(now["wall"]).timestamp() for now in (after, at_rest))
        monotonic = (now["monotonic_ns"] / 1e9 for now in (after, at_rest))
        assert operator.sub(*wall) - operator.sub(*monotonic) > 3
        bundle.ok("delete", "--force", bundle.id)
        for key, value in (("wall", "now"), ("rate", "fast")):
            bundle.config["annotations"] = {f"lorentz.restore-{key}": value}
            bundle.write()
            line = bundle.refused("restore", "--image-path", "saved", bundle.id)
            assert f"lorentz.restore-{key}={value}: expected" in line


def test_refusals_are_one_line():
    with Bundle(["sleep", "1000"], rate="2") as bundle:
        assert "does not exist" in bundle.refused("checkpoint", bundle.id)
        assert "no checkpoint" in bundle.refused("restore", "--image-path", "none", bundle.id)
        bundle.create()
        assert "it is created and not running" in bundle.refused("checkpoint", bundle.id)
        bundle.ok("start", bundle.id)
        for flag in ("--pre-dump", "--lazy-pages"):
            line = bundle.refused("checkpoint", flag, bundle.id)
            assert line.startswith(f"{flag}: not supported"), line
        done = lorentz.call("checkpoint", bundle.id, "-o", "elsewhere")
        lorentz.refusal(done, "made by an OCI runtime")
        saved = checkpoint(bundle, "--leave-running")
        assert "already exists" in bundle.refused("restore", "--image-path", "saved", bundle.id)
        lorentz.refusal(lorentz.call("restore", str(saved)), "a container of an OCI runtime")
        (saved / "pages-1.img").write_bytes(b"")
        bundle.ok("delete", "--force", bundle.id)
        line = bundle.refused("restore", "--image-path", "saved", bundle.id)
        assert "damaged: pages-1.img" in line


def test_podman_checkpoints_and_restores(podman, monkeypatch):
    """In place, and by an archive under another name."""
    path = f"{checkpoints.INSTALLED.parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    with podman.background("sh", "-c", LOOP, at="2038-01-19", rate="10") as name:
        wait(lambda: podman.call("logs", name).stdout.count("\n") > 3, "no log")
        podman.call("container", "checkpoint", name)
        stood = int(podman.call("logs", name).stdout.split()[-1])
        lines = podman.call("logs", name).stdout.count("\n")
        time.sleep(1.5)
        with HostNoise() as noise:
            podman.call("container", "restore", name)
            wait(
                lambda: podman.call("logs", name).stdout.count("\n") > lines + 3,
                "it stands still",
            )
        first = int(podman.call("logs", name).stdout.split()[lines])
        assert first <= stood + 5 + 10 * noise.worst
        assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        archive = podman.folder / "archive.tar"
        podman.call("container", "checkpoint", "--leave-running", "--export", str(archive), name)
        other = f"{name}-other"
        podman.call("container", "restore", "--import", str(archive), "--name", other)
        try:
            full = podman.call("inspect", "--format", "{{.Id}}", other).stdout.strip()
            assert lorentz.json_of("time", full)["rate"] == "10"
            lorentz.ok("leap", full, "--by", "400d")
            assert podman.call("exec", other, "date", "+%Y").stdout == "2039\n"
            assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        finally:
            podman.call("rm", "--force", "--time", "0", other, check=False)


def test_the_description_says_what_it_is_of():
    with Bundle(["sleep", "1000"], at="2038-01-19") as bundle:
        bundle.start()
        saved = checkpoint(bundle)
        text = json.loads((saved / "lorentz.json").read_text())["checkpoint"]
        assert text["name"] == bundle.id and text["root"] == 1
        assert text["wall"].startswith("2038-01-19")
        assert (saved / "inventory.img").exists()
