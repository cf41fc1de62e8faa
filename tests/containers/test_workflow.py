"""The workflow of docs/containers.md: a distribution's root file system, by hand and by lorentz."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.build import REPO

pytestmark = pytest.mark.patient
#: Built once, as the test programs are.
TREE = REPO / "build" / "tests" / "debian"
LIMIT = 600
NAMESPACES = ("--cgroup", "--ipc", "--net", "--mount", "--pid", "--uts")


@pytest.fixture(scope="module")
def debian() -> Path:
    """A minimal Debian, made by debootstrap."""
    needs.root()
    done = TREE / ".made"
    if not done.exists():
        shutil.rmtree(TREE, ignore_errors=True)
        TREE.parent.mkdir(parents=True, exist_ok=True)
        command = [needs.tool("debootstrap"), "--variant=minbase", "bookworm", str(TREE)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if made.returncode != 0:
            shutil.rmtree(TREE, ignore_errors=True)
            pytest.skip(f"debootstrap: {made.stdout.splitlines()[-1:]}")
        done.touch()
    return TREE


def by_hand(root: Path, *options: str) -> float:
    """The uptime in namespaces made by unshare."""
    command = ["unshare", *NAMESPACES, *options, "--fork", f"--mount-proc={root}/proc"]
    done = subprocess.run(
        [*command, "chroot", str(root), "cat", "/proc/uptime"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return float(done.stdout.split()[0])


def by_lorentz(root: Path, *options: str) -> float:
    words = ("--", "cat", "/proc/uptime")
    return float(lorentz.ok("run", "--rootfs", str(root), *options, *words).split()[0])


@pytest.mark.timeout(LIMIT + 90)
def test_by_hand_and_as_one_command(debian):
    """The study's levels: no offsets, and those that the kernel can give."""
    host = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert abs(by_hand(debian) - host) < 30
    assert abs(by_lorentz(debian) - host) < 30
    offsets = ("--monotonic", "100000", "--boottime", "200000")
    assert abs(by_hand(debian, "--time", *offsets) - host - 200000) < 30
    assert abs(by_lorentz(debian, *offsets) - host - 200000) < 30


@pytest.mark.timeout(LIMIT + 90)
def test_the_step_beyond(debian):
    """A date and a rate, for a shell and for perl."""
    script = "date +%Y; sleep 20; perl -e 'print((localtime)[5] + 1900, qq(\\n))'"
    start = time.monotonic()
    options = ("--at", "2038-01-19", "--rate", "20")
    text = lorentz.ok("run", "--rootfs", str(debian), *options, "--", "sh", "-c", script)
    assert text.split() == ["2038", "2038"]
    assert time.monotonic() - start < 15


@pytest.mark.timeout(LIMIT + 90)
def test_a_container_made_by_hand_gets_a_clock(debian):
    unshare = ["unshare", *NAMESPACES, "--fork", f"--mount-proc={debian}/proc"]
    options = ("--at", "2038-01-19", "--rate", "20")
    words = [*unshare, "chroot", str(debian), "sh", "-c", "date +%Y; sleep 20; date +%Y"]
    assert lorentz.ok("run", *options, "--", *words).split() == ["2038", "2038"]
