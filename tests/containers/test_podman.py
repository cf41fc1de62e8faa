"""podman, with `lorentz-runtime` as its runtime."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from framework import lorentz, needs
from framework.containers import Podman, wait
from framework.oracle import HostNoise

SLEEPER = ("sleep", "100000000")


def test_run_with_annotations(podman):
    script = "date +%Y; sleep 50; hostname >/dev/null; date +%Y"
    start = time.monotonic()
    assert podman.run("sh", "-c", script, at="2038-01-19", rate="50").split() == ["2038", "2038"]
    assert time.monotonic() - start < 30


def test_run_with_variables(podman):
    text = podman.run("date", "+%Y", options=("--env", "LORENTZ_AT=2038-01-19"))
    assert text == "2038\n"


def test_the_status_is_the_programs_or_says_why_there_is_none(podman):
    options = podman.options((), {"rate": "2"})
    for words, status, complaint in (
        (["sh", "-c", "exit 7"], 7, ""),
        (["nosuch"], 127, "not found"),
        (["/etc"], 126, "permission denied"),
    ):
        done = podman.call("run", "--rm", *options, *words, check=False)
        assert done.returncode == status and complaint in done.stderr
    wrong = podman.options((), {"rate": "fast"})
    done = podman.call("run", "--rm", *wrong, "true", check=False)
    assert done.returncode == 126
    assert "lorentz.rate=fast: expected a rate" in done.stderr


def test_a_container_in_the_background(podman):
    """run -d, logs, exec, pause, unpause, stop, start, rm; and lorentz beside them."""
    script = "trap 'exit 0' TERM; date +%Y; while :; do usleep 100000; done"
    with podman.background("sh", "-c", script, at="2038-01-19", rate="10") as name:
        wait(lambda: podman.call("logs", name).stdout == "2038\n", "no log")
        assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        full = podman.call("inspect", "--format", "{{.Id}}", name).stdout.strip()
        assert lorentz.json_of("time", full[:12])["rate"] == "10"
        podman.call("pause", name)
        assert lorentz.json_of("time", full)["state"] == "frozen"
        podman.call("unpause", name)
        assert lorentz.json_of("time", full)["state"] == "running"
        podman.call("stop", "--time", "20", name)
        lorentz.wait_until_gone(full)
        podman.call("start", name)
        assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        podman.call("kill", name)
        lorentz.wait_until_gone(full)


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_monitor_that_was_killed_is_replaced(podman, paused):
    """Also while the container is paused: it stays so. exec, stop and rm work as before."""
    script = "while :; do date +%Y; usleep 100000; done"
    options = ("--security-opt", "no-new-privileges")
    with podman.background("sh", "-c", script, options=options, at="2038-01-19") as name:
        wait(lambda: "2038" in podman.call("logs", name).stdout, "no log")
        full = podman.call("inspect", "--format", "{{.Id}}", name).stdout.strip()
        (monitor,) = lorentz.shown(full)["monitors"]
        if paused:
            podman.call("pause", name)
        os.kill(monitor["pid"], signal.SIGKILL)
        wait(lambda: lorentz.shown(full)["needs_adopt"], "the monitor does not end")
        report = lorentz.json_of("adopt", full)
        assert report["adopted"] and report["refused"] == []
        before = podman.call("logs", name).stdout
        if paused:
            time.sleep(0.5)
            assert podman.call("logs", name).stdout == before
            podman.call("unpause", name)
        wait(lambda: podman.call("logs", name).stdout.endswith("2038\n" * 3), "no program starts")
        assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        podman.call("kill", name)
        lorentz.wait_until_gone(full)


def test_a_health_check_is_on_the_clock(podman):
    """The container is healthy in 2038 only."""
    options = ("--health-cmd", "test $(date +%Y) = 2038", "--health-interval", "disable")
    with podman.background(*SLEEPER, options=options, at="2038-01-19") as name:
        podman.call("healthcheck", "run", name)


def test_a_restart_policy_is_followed(podman):
    """podman restarts the program each time it ends, on a clock that begins anew."""
    options = ("--restart", "on-failure:2")
    with podman.background(
        "sh", "-c", "date +%Y; exit 3", options=options, at="2038-01-19"
    ) as name:
        wait(lambda: podman.call("logs", name).stdout == "2038\n" * 3, "not restarted", 30)


@pytest.mark.parametrize(
    "options",
    [
        ("--read-only",),
        ("--init",),
        ("--pid=host",),
        ("--uidmap", "0:100000:65536"),
        ("--user", "1000:1000"),
        ("--privileged",),
        ("--security-opt", "no-new-privileges"),
        ("--security-opt", "seccomp=unconfined"),
        ("--cap-drop", "all"),
        ("--tmpfs", "/tmp"),
        ("--memory", "64m", "--pids-limit", "50"),
        ("--tty",),
    ],
    ids=" ".join,
)
def test_options_of_podman(podman, options):
    """The first program and later ones run on the container's clock."""
    if "--init" in options:
        needs.tool("catatonit")
    with podman.background(*SLEEPER, options=options, at="2038-01-19", rate="20") as name:
        with HostNoise() as noise:
            first, last = podman.call(
                "exec", name, "sh", "-c", "date +%s; sleep 20; date +%s"
            ).stdout.split()
        assert int(first) > 2147471999 - 1
        assert 20 <= int(last) - int(first) < 40 + 20 * noise.slack


def test_a_namespace_of_another_container(podman):
    with podman.background(*SLEEPER, options=("--ipc=shareable",), rate="2") as first:
        options = (f"--ipc=container:{first}",)
        assert podman.run("date", "+%Y", options=options, at="2038-01-19") == "2038\n"


def test_a_pod_has_one_clock(podman):
    pod = (
        "--network",
        "none",
        "--infra-image",
        podman.image,
        "--infra-command",
        "/bin/sleep 1000000",
    )
    podman.call("pod", "create", "--name", "pod", *pod)
    try:
        options = ("--pod", "pod")
        with (
            podman.background(*SLEEPER, options=options, rate="7") as one,
            podman.background(*SLEEPER, options=options, rate="7") as two,
        ):
            ids = [
                podman.call("inspect", "--format", "{{.Id}}", name).stdout.strip()
                for name in (one, two)
            ]
            lorentz.ok("dilate", ids[0], "--rate", "9")
            assert lorentz.json_of("time", ids[1])["rate"] == "9"
            podman.call("pod", "pause", "pod")
            assert lorentz.json_of("time", ids[0])["state"] == "frozen"
            podman.call("pod", "unpause", "pod")
            assert lorentz.json_of("time", ids[1])["state"] == "running"
    finally:
        podman.call("pod", "rm", "--force", "--time", "0", "pod", check=False)


def test_the_end_of_another_session_spares_this_one(podman):
    """Tests run in sessions side by side, each with a podman that is reset at its end."""
    with podman.background("sleep", "1000") as name:
        Podman().close()
        assert podman.call("ps", "--format", "{{.Names}}").stdout.split() == [name]
        assert podman.call("exec", name, "echo", "there").stdout == "there\n"


def test_nothing_is_left_of_podmans_containers(podman):
    for _ in range(5):
        podman.run("true", rate="3")
    assert lorentz.ps() == []
    assert json.loads(podman.call("ps", "--all", "--format", "json").stdout) == []
