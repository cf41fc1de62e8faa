"""`lorentz run --image`: a container of podman's image, without podman's container."""

from __future__ import annotations

import json
import os
import signal

import pytest
from framework import lorentz
from framework.containers import wait
from framework.running import Inside

pytestmark = pytest.mark.patient
#: Settings of the image under test for programs.
SAYS = (
    *("--change", "ENV GREETING=from-the-image"),
    *("--change", "ENV PATH=/bin"),
    *("--change", "WORKDIR /tmp"),
    *("--change", 'ENTRYPOINT ["sh", "-c"]'),
    *("--change", 'CMD ["echo $GREETING $(pwd) $(date +%Y) $(id -u)"]'),
)


@pytest.fixture
def image(podman, monkeypatch) -> str:
    podman.publish(monkeypatch)
    name = "localhost/says:1"
    if podman.call("image", "exists", name, check=False).returncode:
        made = podman.call("create", podman.image, "true").stdout.strip()
        podman.call("commit", *SAYS, made, name)
        podman.call("rm", made)
    return name


def mounted(podman) -> list:
    return json.loads(podman.call("image", "mount", "--format", "json").stdout or "[]")


def run(image: str, *words: str, options: tuple[str, ...] = ()) -> str:
    command = ["--", *words] if words else []
    return lorentz.ok("run", "--image", image, "--at", "2038-01-19", *options, *command)


def test_its_program_runs_with_its_settings(podman, image):
    assert run(image) == "from-the-image /tmp 2038 0\n"
    assert mounted(podman) == []


def test_options_and_words_replace_its_settings(podman, image):
    options = ("--env", "GREETING=hello", "--workdir", "/etc", "--user", "7:8")
    assert run(image, options=options) == "hello /etc 2038 7\n"
    assert run(image, "echo $GREETING; id -g", options=("--user", "7:8")) == "from-the-image\n8\n"
    assert mounted(podman) == []


def test_the_image_stays_as_it_is(podman, image):
    assert run(image, "echo x > /bin/new; ls /bin/new") == "/bin/new\n"
    assert run(image, "ls /bin/new 2>/dev/null || echo none") == "none\n"


def test_two_containers_of_one_image(podman, image):
    options = ("--image", image)
    with Inside("sleep 1000", at="2038-01-19", options=options) as one:
        one.wait_until_shown()
        assert run(image, "date +%Y") == "2038\n"
        assert len(mounted(podman)) == 1
        assert lorentz.ok("exec", one.name, "date", "+%Y") == "2038\n"
    wait(lambda: mounted(podman) == [], "the image stays mounted")


def test_nothing_is_left_when_the_command_is_killed(podman, image):
    with Inside("sleep 1000", at="2038-01-19", options=("--image", image)) as inside:
        inside.wait_until_shown()
        [program] = inside.programs()
        os.kill(inside.pid, signal.SIGKILL)
        os.kill(program, signal.SIGKILL)
        wait(lambda: mounted(podman) == [], "the image stays mounted")


def test_what_a_killed_command_left_goes_with_the_next(podman, image, monkeypatch, tmp_path):
    """It is killed once podman has mounted the image, before there is a container."""
    real = podman.program
    script = f'#!/bin/sh\n[ "$2" = inspect ] && exec sleep 1000\nexec {real} "$@"\n'
    (tmp_path / "podman").write_text(script)
    (tmp_path / "podman").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with Inside("true", options=("--image", image)) as inside:
            wait(lambda: len(mounted(podman)) == 1, "podman does not mount the image")
            inside.process.kill()
            inside.process.wait(timeout=10)
    assert len(mounted(podman)) == 1
    assert run(image) == "from-the-image /tmp 2038 0\n"
    assert mounted(podman) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--image", "no/such:1", "--", "true"], "'podman pull docker.io/no/such:1' gets it"),
        (["--image", "a", "--rootfs", "/", "--", "true"], "exclude each other"),
        (["--image", "a", "--read-write", "--", "true"], "exclude each other"),
        (["--pull", "--", "true"], "--image"),
        (["--hostname", "x", "--", "true"], "--rootfs"),
    ],
    ids=["missing", "both", "read-write", "pull", "neither"],
)
def test_wrong_input(podman, image, words, complaint):
    done = lorentz.call("run", *words)
    assert done.returncode == 2 and complaint in done.stderr, done.stderr


def test_an_image_without_a_program_is_told(podman, image):
    done = lorentz.call("run", "--image", podman.image)
    assert done.returncode == 2
    assert "it names no program; expected a command" in done.stderr
    assert mounted(podman) == []
