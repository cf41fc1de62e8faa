"""containerd, with `lorentz-runtime` as the binary of its runc shim."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path

import pytest
from framework import checkpoints, lorentz, needs, processes
from framework.containers import TIMEOUT, wait


class Containerd:
    """A containerd of the test's own, with the image that podman has made."""

    def __init__(self, folder: Path, podman) -> None:
        self.folder, self.image = folder, podman.image
        self.socket = folder / "socket"
        config = folder / "config.toml"
        config.write_text(
            f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.socket}"\n'
        )
        self.runtime = podman.folder / "runtime"
        self.tag = processes.new_tag()
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [needs.tool("containerd"), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, processes.TAG: self.tag},
            )
        wait(self.socket.exists, "no socket", 20)
        archive = folder / "image.tar"
        podman.call("save", "--format", "oci-archive", "--output", str(archive), self.image)
        self.ok("images", "import", str(archive))

    def ok(self, *words: str) -> str:
        done = subprocess.run(
            ["ctr", "--address", str(self.socket), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"ctr {words}: {done.stderr}"
        return done.stdout

    def run(self, name: str, *words: str, option: str, **annotations: str) -> str:
        asked = [
            word
            for key, value in annotations.items()
            for word in ("--annotation", f"lorentz.{key}={value}")
        ]
        by = ("--runc-binary", str(self.runtime))
        return self.ok("run", option, *by, *asked, self.image, name, *words)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        processes.kill_tagged(self.tag)
        for mount in reversed(Path("/proc/mounts").read_text().splitlines()):
            place = mount.split()[1]
            if place.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", place], check=False, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def containerd(tmp_path_factory, podman):
    needs.tool("ctr")
    made = Containerd(tmp_path_factory.mktemp("containerd"), podman)
    yield made
    made.close()


def test_a_container_runs_to_its_end(containerd):
    script = "date +%Y; sleep 20; date +%Y"
    text = containerd.run("c1", "sh", "-c", script, option="--rm", rate="20", at="2038-01-19")
    assert text.split() == ["2038", "2038"]


def test_a_container_in_the_background(containerd):
    """exec, pause, resume, kill; lorentz knows it by containerd's name."""
    containerd.run("c2", "sleep", "100000000", option="-d", rate="10", at="2038-01-19")
    try:
        inside = ("task", "exec", "--exec-id", "e1", "c2")
        assert containerd.ok(*inside, "date", "+%Y") == "2038\n"
        assert lorentz.json_of("time", "c2")["rate"] == "10"
        containerd.ok("task", "pause", "c2")
        assert lorentz.json_of("time", "c2")["state"] == "frozen"
        containerd.ok("task", "resume", "c2")
        assert lorentz.json_of("time", "c2")["state"] == "running"
    finally:
        containerd.ok("task", "kill", "-s", "KILL", "c2")
        wait(lambda: "STOPPED" in containerd.ok("task", "ls"), "not stopped")
        containerd.ok("task", "rm", "c2")
        containerd.ok("container", "rm", "c2")
    lorentz.wait_until_gone("c2")


def test_a_container_is_checkpointed_and_restored(containerd):
    """Into an image of containerd's, and from there on where it stood."""
    checkpoints.criu()
    loop = "exec >/log; while :; do date +%s; usleep 100000; done"
    containerd.run("c3", "sh", "-c", loop, option="-d", rate="10", at="2038-01-19")
    words = ("task", "exec", "--exec-id")

    def log() -> list[int]:
        return [int(line) for line in containerd.ok(*words, "e1", "c3", "cat", "/log").split()]

    def remove() -> None:
        containerd.ok("task", "rm", "--force", "c3")
        containerd.ok("container", "rm", "c3")

    try:
        wait(lambda: len(log()) > 3, "no output")
        containerd.ok("container", "checkpoint", "--rw", "--image", "--task", "c3", "saved")
        remove()
        time.sleep(2)
        containerd.ok("container", "restore", "--rw", "--live", "c3", "saved")
        before = len(log())
        wait(lambda: len(log()) > before + 3, "it does not go on")
        steps = [after - at for at, after in itertools.pairwise(log())]
        assert min(steps) >= 0 and max(steps) < 10, "time has passed in between"
        assert lorentz.json_of("time", "c3")["rate"] == "10"
    finally:
        remove()
    lorentz.wait_until_gone("c3")
