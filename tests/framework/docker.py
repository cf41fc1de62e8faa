"""docker, with `lorentz-runtime` as one of its runtimes.

Debian's package starts a daemon when installed. So it is only unpacked, and the tests start a
daemon of their own from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import lorentz, needs, processes
from .build import REPO
from .containers import TIMEOUT, rootfs, runtime

IMAGE = "busybox:1"
PACKAGE = "docker.io"
#: Directories that every daemon makes, with any options; the deeper one first.
PLUGINS = (Path("/run/docker/plugins"), Path("/run/docker"))
#: Time limit for the daemon's start, s.
START = 40


def unpacked() -> Path:
    """Unpacks Debian's package, once for all sessions. Returns the directory."""
    folder = REPO / "build" / "tests" / "docker"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "usr" / "sbin" / "dockerd").exists():
        if not list(folder.glob("*.deb")):
            done = subprocess.run(
                [needs.tool("apt-get"), "download", PACKAGE],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(f"apt-get download {PACKAGE}: {done.stderr.strip()}")
        (package,) = folder.glob("*.deb")
        command = [needs.tool("dpkg-deb"), "-x", str(package), str(folder)]
        subprocess.run(command, check=True, timeout=TIMEOUT)
    return folder


def groups() -> set[Path]:
    """The control groups that docker makes for containers."""
    return {path for path in Path("/sys/fs/cgroup").glob("*/docker") if path.is_dir()}


class Docker:
    """A daemon and its client."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.groups_before = folder, groups()
        self.plugins = [place for place in PLUGINS if not place.exists()]
        programs = unpacked()
        self.client = programs / "usr" / "bin" / "docker"
        self.socket = folder / "socket"
        wrapper = folder / "runtime"
        state = lorentz.session.state_dir()
        wrapper.write_text(f'#!/bin/sh\nLORENTZ_STATE_DIR={state} exec {runtime()} "$@"\n')
        wrapper.chmod(0o755)
        config = folder / "daemon.json"
        known = {"lorentz": {"path": str(wrapper)}}
        key = str(folder / "key.json")
        config.write_text(json.dumps({"runtimes": known, "deprecated-key-path": key}))
        self.tag = processes.new_tag()
        needs.tool("containerd")
        inside = f"{programs}/usr/bin:{programs}/usr/sbin"
        self.environment = {
            **os.environ,
            "PATH": f"{inside}:{os.environ['PATH']}:/usr/sbin",
            "DOCKER_CONFIG": str(folder / "client"),
            processes.TAG: self.tag,
        }
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    str(programs / "usr" / "sbin" / "dockerd"),
                    *("--config-file", str(config), "--host", f"unix://{self.socket}"),
                    *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                    *("--pidfile", str(folder / "pid"), "--bridge=none", "--iptables=false"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
            )

    def __enter__(self) -> Docker:
        try:
            self.wait_until_up()
            files = subprocess.run(
                ["tar", "-C", str(rootfs()), "-c", "."], capture_output=True, check=True
            ).stdout
            self.call("import", "-", IMAGE, stdin=files)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_up(self) -> None:
        end = time.monotonic() + START
        while self.call("version", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                last = (self.folder / "log").read_text().splitlines()[-1:]
                pytest.skip(f"dockerd does not start here: {' '.join(last)}")
            time.sleep(0.1)

    def call(
        self, *words: str, stdin: bytes = b"", check: bool = True
    ) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(self.client), "--host", f"unix://{self.socket}", *words],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=TIMEOUT,
            check=False,
        )
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert not check or done.returncode == 0, f"docker {words}: {done.stderr}"
        return done

    def run(self, *words: str, options: tuple[str, ...] = (), check: bool = True, **variables: str):
        asked = [
            word
            for key, value in variables.items()
            for word in ("--env", f"LORENTZ_{key.upper()}={value}")
        ]
        usual = ("--runtime", "lorentz", "--network", "none", *asked, *options)
        return self.call("run", *usual, IMAGE, *words, check=check)

    def mounts(self) -> list[str]:
        places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        return [place for place in places if place.startswith(str(self.folder))]

    def close(self) -> None:
        """Ends the daemon by its process id; its containerd ends with it."""
        self.process.terminate()
        try:
            self.process.wait(timeout=TIMEOUT)
        finally:
            processes.kill_tagged(self.tag)
            for place in reversed(self.mounts()):
                subprocess.run(["umount", "-l", place], check=False, timeout=TIMEOUT)
            for left in (*(groups() - self.groups_before), *self.plugins):
                with contextlib.suppress(OSError):
                    left.rmdir()


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator[Docker]:
    """A daemon with all its files in `folder`, which leaves nothing."""
    with Docker(folder) as made:
        yield made
    assert not made.mounts()
    assert groups() == made.groups_before
    assert not [place for place in made.plugins if place.exists()]
    shutil.rmtree(folder)
