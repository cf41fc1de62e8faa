"""Containers: durations that engines wait for, with lorentz-runtime and with the installed
runtimes.

*native* is the fastest of the other runtimes in each figure, called as podman calls them. Memory is
that of an idle container without its program. It is the proportional share (PSS) of the monitor and
of the shim inside the program, and the clock's file, over CONTAINERS containers at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from levels import LORENTZ, LORENTZ_LEVEL, NATIVE, ROOT
from suites import TIMEOUT, Bench, Samples, announce

CONTAINERS = 20
RUNTIME = str(Path(LORENTZ).with_name("lorentz-runtime"))
#: Directory in which scripts/setup installs programs that Debian has no package of.
YOUKI = ROOT / "build/bench/youki/bin"
#: Addresses of the shim and the clock in a program's memory.
OURS = range(0x70000000, 0x7028B000)
#: crun refuses hybrid hierarchies; so hide the second one.
HIDE_UNIFIED = ("unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified; exec "$@"', "--")


def runtimes() -> dict[str, tuple[str, ...]]:
    """Returns the installed runtimes, each as a command line."""
    found: dict[str, tuple[str, ...]] = {LORENTZ_LEVEL: (RUNTIME,)}
    for name in ("youki", "runc", "crun"):
        path = shutil.which(name, path=f"{YOUKI}:{os.environ['PATH']}")
        if path:
            hidden = name == "crun" and Path("/sys/fs/cgroup/unified").exists()
            found[name] = (*(HIDE_UNIFIED if hidden else ()), path)
    return found


class Place:
    """A bundle with busybox in it, and the state of containers made of it."""

    def __init__(self, folder: Path) -> None:
        self.bundle = folder / "bundle"
        self.env = {**os.environ, "LORENTZ_STATE_DIR": str(folder / "state")}
        binary = self.bundle / "rootfs/bin"
        binary.mkdir(parents=True)
        (self.bundle / "rootfs/proc").mkdir()
        (self.bundle / "rootfs/dev").mkdir()
        shutil.copy2(shutil.which("busybox"), binary / "busybox")
        for name in ("sh", "echo", "sleep", "true"):
            (binary / name).symlink_to("busybox")
        namespaces = ("pid", "ipc", "uts", "mount", "network", "cgroup")
        config = {
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs"},
            "process": {
                "args": ["sh", "-c", "echo; exec sleep 100000"],
                "env": ["PATH=/bin"],
                "cwd": "/",
                "user": {"uid": 0, "gid": 0},
                "capabilities": {"bounding": ["CAP_KILL"], "effective": [], "permitted": []},
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            ],
            "linux": {"namespaces": [{"type": kind} for kind in namespaces]},
            "annotations": {"lorentz.offset": "+1d"},
        }
        (self.bundle / "config.json").write_text(json.dumps(config))

    def call(self, runtime: tuple[str, ...], *words: str, stdout: int = subprocess.DEVNULL) -> None:
        """Runs a verb to its end. Does not wait for descriptors that the container's program keeps
        open."""
        with (self.bundle / "stderr").open("w+") as errors:
            done = subprocess.run(
                [*runtime, *words],
                cwd=self.bundle,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=errors,
                timeout=TIMEOUT,
            )
            errors.seek(0)
            if done.returncode:
                raise RuntimeError(f"{runtime[-1]} {' '.join(words)}: {errors.read()}")

    @contextmanager
    def container(self, runtime: tuple[str, ...], name: str) -> Iterator[None]:
        """A running container, removed when the block ends."""
        reader, writer = os.pipe()
        try:
            self.call(runtime, "create", name, stdout=writer)
            self.call(runtime, "start", name)
            os.close(writer)
            os.read(reader, 1)
            yield
        finally:
            os.close(reader)
            self.call(runtime, "delete", "--force", name)

    def figures(self, runtime: tuple[str, ...], name: str) -> dict[str, float]:
        """Returns three durations, ns: from `create` to the program's first output, an exec, and
        the end."""
        start = time.monotonic_ns()
        container = self.container(runtime, name)
        container.__enter__()
        begun = time.monotonic_ns()
        self.call(runtime, "exec", name, "true")
        entered = time.monotonic_ns()
        container.__exit__(None, None, None)
        return {
            "start": begun - start,
            "exec": entered - begun,
            "stop": time.monotonic_ns() - entered,
        }


def containers(bench: Bench) -> Samples:
    """Measures start, exec and end of a container, and the memory of an idle one."""
    if os.geteuid() != 0:
        raise RuntimeError("containers are made by root")
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as folder:
        place = Place(Path(folder))
        taken: dict[str, dict[str, list[float]]] = {}
        working = runtimes()
        for turn in range(bench.rounds(21)):
            for name in list(working):
                try:
                    figures = place.figures(working[name], f"bench-{os.getpid()}-{turn}")
                except (RuntimeError, subprocess.SubprocessError) as error:
                    if name == LORENTZ_LEVEL:
                        raise
                    announce(f"bench: containers: {name}: {error}")
                    bench.left_out[f"{name} in containers"] = str(error).splitlines()[0]
                    del working[name]
                    continue
                for case, value in figures.items():
                    taken.setdefault(name, {}).setdefault(case, []).append(value)
        samples: Samples = {LORENTZ_LEVEL: taken.pop(LORENTZ_LEVEL), NATIVE: {}, **taken}
        for case in ("start", "exec", "stop"):
            others = [figures[case] for name, figures in taken.items() if name in working]
            if others:
                samples[NATIVE][case] = min(others, key=median)
        samples[LORENTZ_LEVEL]["memory"] = [memory(place)]
        return samples


def memory(place: Place) -> float:
    """Returns the memory of an idle container without its program, bytes."""
    runtime = (RUNTIME,)
    names = [f"bench-{os.getpid()}-m{number}" for number in range(CONTAINERS)]
    open_ones = [place.container(runtime, name) for name in names]
    try:
        for one in open_ones:
            one.__enter__()
        time.sleep(0.5)
        shown = subprocess.run(
            [LORENTZ, "ps", "--json"], env=place.env, capture_output=True, check=True, text=True
        )
        total = 0.0
        for entry in json.loads(shown.stdout):
            total += sum(pss(monitor["pid"]) for monitor in entry["monitors"])
            total += sum(pss(pid, OURS) for pid in entry["pids"])
            clock = Path(place.env["LORENTZ_STATE_DIR"], entry["name"], "clock")
            total += clock.stat().st_blocks * 512
        return total / CONTAINERS
    finally:
        for one in open_ones:
            one.__exit__(None, None, None)


def pss(pid: int, addresses: range | None = None) -> float:
    """Returns the PSS of a process, bytes; only of `addresses`, if given."""
    total, counts = 0, addresses is None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if start := re.match(r"([0-9a-f]+)-", line):
            counts = addresses is None or int(start[1], 16) in addresses
        elif counts and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total
