"""Containers by the names their engines give them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.containers import Podman
from framework.docker import daemon


@pytest.fixture(scope="module")
def podman():
    made = Podman()
    yield made
    made.close()


def engine(folder, name, script):
    """A directory with a command in it that is found first; the environment that finds it."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {**lorentz.session.environment(), "PATH": path}


def watched(name, env):
    words = ["latency", "watch", name, "--outer", "lo", "--for", "1s", "--summary", "--serve"]
    done = lorentz.call(*words, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def test_podman(podman, tmp_path):
    """Lorentz finds the container's network namespace, and makes the socket in its file system."""
    storage = f"--root {podman.folder}/storage --runroot {podman.folder}/run"
    script = f'CONTAINERS_CONF={podman.conf} exec {podman.program} {storage} "$@"'
    env = engine(tmp_path, "podman", script)
    with podman.background("sleep", "60") as name:
        pid = podman.call("inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
        known = watched(name, env)
        assert known["namespace"] == name
        assert known["inode"] == Path(f"/proc/{pid}/ns/net").stat().st_ino
        assert known["inode"] != Path("/proc/self/ns/net").stat().st_ino


def test_docker(podman, tmp_path, tmp_path_factory):
    """Asked where podman knows nothing of that name."""
    with daemon(tmp_path_factory.mktemp("docker")) as docker:
        script = f'exec {docker.client} --host unix://{docker.socket} "$@"'
        env = {**engine(tmp_path, "docker", script), "DOCKER_CONFIG": str(tmp_path)}
        docker.run("sleep", "60", options=("-d", "--name", "web"))
        try:
            found = docker.call("inspect", "--format", "{{.State.Pid}}", "web").stdout.strip()
            assert watched("web", env)["inode"] == Path(f"/proc/{found}/ns/net").stat().st_ino
        finally:
            docker.call("rm", "--force", "web", check=False)


def test_a_container_that_does_not_run(tmp_path):
    needs.root()
    env = engine(tmp_path, "podman", "echo 0")
    done = lorentz.call("latency", "watch", "web", "--outer", "lo", env=env)
    assert done.returncode == 2 and "web: no such container" in done.stderr
