"""docker, with `lorentz-runtime` as one of its runtimes; environment variables select the clock."""

from __future__ import annotations

import time

import pytest
from framework import lorentz
from framework.containers import wait
from framework.docker import daemon, groups


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    with daemon(tmp_path_factory.mktemp("docker")) as made:
        yield made


def test_a_container_has_the_clock_that_its_variables_ask_for(docker):
    script = "date +%Y; sleep 20; date +%Y"
    start = time.monotonic()
    done = docker.run("sh", "-c", script, options=("--rm",), rate="20", at="2038-01-19")
    assert done.stdout.split() == ["2038", "2038"]
    assert time.monotonic() - start < 15


def test_a_container_in_the_background(docker):
    """exec, pause, unpause, stop; lorentz knows it by docker's id."""
    done = docker.run("sleep", "100000000", options=("-d",), rate="10", at="2038-01-19")
    container = done.stdout.strip()
    try:
        assert docker.call("exec", container, "date", "+%Y").stdout == "2038\n"
        assert lorentz.json_of("time", container)["rate"] == "10"
        docker.call("pause", container)
        assert lorentz.json_of("time", container)["state"] == "frozen"
        docker.call("unpause", container)
        assert lorentz.json_of("time", container)["state"] == "running"
        docker.call("stop", "--time", "1", container)
        assert docker.call("inspect", "-f", "{{.State.Running}}", container).stdout == "false\n"
    finally:
        docker.call("rm", "--force", container, check=False)
    lorentz.wait_until_gone(container)


def test_an_exit_status_arrives(docker):
    done = docker.run("sh", "-c", "exit 7", options=("--rm",), check=False, rate="2")
    assert done.returncode == 7


def test_a_wrong_value_is_told_by_docker(docker):
    done = docker.run("true", options=("--rm",), check=False, rate="fast")
    assert done.returncode not in (0, 1)
    assert "LORENTZ_RATE" in done.stderr and "fast" in done.stderr


def test_nothing_is_left_of_dockers_containers(docker):
    wait(lambda: not docker.call("ps", "-aq").stdout, "containers left")
    below = [path for group in groups() for path in group.iterdir() if path.is_dir()]
    assert not below
    state = lorentz.session.state_dir()
    wait(lambda: not [path for path in state.iterdir() if len(path.name) == 64], "state left")
