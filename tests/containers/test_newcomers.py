"""Programs that enter a container from outside: brought onto its clock, refused, or left alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework import build, lorentz, needs
from framework.containers import Bundle, has_watch, rootfs, wait, wait_for_watch
from framework.experiments import until
from framework.running import Inside, Native

#: The kernel holds a newcomer for 20 ms at most, one at a time on two processors. One that the
#: monitor has not received by then begins in the host's time.
pytestmark = pytest.mark.alone

SLEEPER = ["sleep", "1000000"]
AT = "2038-01-19"


@pytest.fixture(autouse=True)
def _watch():
    needs.feature("newcomers")


def started(bundle: Bundle) -> Bundle:
    bundle.start()
    wait_for_watch(bundle.id)
    return bundle


def enter(pid: int, *words: str, ways: str = "--all") -> subprocess.CompletedProcess:
    nsenter = needs.tool("nsenter")
    command = [nsenter, *ways.split(), "--target", str(pid), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def year(pid: int, ways: str = "--all") -> str:
    done = enter(pid, "date", "+%Y", ways=ways)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "ways", ["--all", "--mount", "--mount --pid", "--pid", "--pid --no-fork"], ids=str
)
def test_a_program_that_enters_is_on_the_clock(ways):
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        assert year(pid, ways) == "2038"


def test_it_and_its_children_wait_on_the_clock():
    with Bundle(SLEEPER, at=AT, rate="1000") as bundle:
        pid = started(bundle).pid()
        begun = time.monotonic()
        script = "sleep 500; sh -c 'sleep 500; date +%Y'"
        assert enter(pid, "sh", "-c", script).stdout == "2038\n"
        assert time.monotonic() - begun < 30


def test_what_follows_the_clock_changes_with_it():
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        words = ["nsenter", "--all", "--target", str(pid), "sh", "-c", "echo; read a; date +%Y"]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as entered:
            assert entered.stdout.readline() == "\n"
            assert len(lorentz.shown(bundle.id)["pids"]) == 2
            lorentz.ok("step", bundle.id, "--by", "366d")
            assert entered.communicate("\n", timeout=20)[0] == "2039\n"


def test_many_that_enter_at_once():
    """The kernel does not hold those for which no processor is left. They are on the clock soon."""
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        script = "sleep 1; date +%Y"
        words = ["nsenter", "--all", "--target", str(pid), "sh", "-c", script]
        many = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(20)]
        assert [one.communicate(timeout=30)[0] for one in many] == ["2038\n"] * 20
        assert bundle.exec("date", "+%Y") == "2038\n"


def test_a_container_may_refuse_them():
    with Bundle(SLEEPER, at=AT, newcomers="refuse") as bundle:
        pid = started(bundle).pid()
        done = enter(pid, "date", "+%Y")
        # nsenter ends as its child.
        assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
        assert f"has entered container {bundle.id} and is ended: --newcomers refuse" in done.stderr
        assert bundle.exec("date", "+%Y") == "2038\n"
        assert bundle.status() == "running"


def test_a_container_may_ignore_them():
    with Bundle(SLEEPER, at=AT, newcomers="ignore") as bundle:
        bundle.start()
        assert year(bundle.pid()) == time.strftime("%Y")
        assert not has_watch(bundle.id)


def test_one_that_cannot_be_brought_in_is_ended_with_a_word():
    """A debugger traces it, so the monitor cannot."""
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        enters = f"exec nsenter --mount --target {pid} date +%Y"
        script = f"""echo '{{"ev":"pid","pid":'$$'}}'; read line; {enters}"""
        with Native(["sh", "-c", script], stdin=True) as entering:
            number = entering.line(ev="pid")["pid"]
            command = [build.c("faults/tracer"), "gdb", str(number)]
            with Native(command, stdin=True) as tracer:
                tracer.line(ev="traces")
                entering.close_stdin()
                # A process that has been killed ends only when its tracer has let it go.
                until(lambda: entering.stderr, "the word")
                tracer.close_stdin()
                assert entering.finish(timeout=20) == 128 + signal.SIGKILL
        assert "cannot be brought onto the container's clock" in entering.stderr


def test_a_program_in_the_containers_group_is_inside():
    with Bundle(SLEEPER, at=AT) as bundle:
        started(bundle)
        record = lorentz.session.state_dir() / bundle.id / "container.json"
        group = json.loads(record.read_text())["cgroup"]
        script = 'echo $$ > "$0/cgroup.procs" && exec date +%Y'
        done = subprocess.run(
            ["sh", "-c", script, group], capture_output=True, text=True, timeout=30
        )
        assert done.stdout == "2038\n", done.stderr


def kill_monitor(bundle: Bundle) -> None:
    [monitor] = lorentz.shown(bundle.id)["monitors"]
    os.kill(monitor["pid"], signal.SIGKILL)
    wait(lambda: lorentz.shown(bundle.id)["needs_adopt"], "the monitor does not end")


def test_the_new_monitor_of_an_adoption_watches_too():
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        kill_monitor(bundle)
        lorentz.ok("adopt", bundle.id, "--no-new-privs")
        wait_for_watch(bundle.id)
        assert year(pid) == "2038"


def test_a_monitor_that_dies_lets_them_in_at_the_hosts_time():
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        kill_monitor(bundle)
        assert year(pid) == time.strftime("%Y")


def test_a_stopped_monitor_holds_nobody_for_long():
    """The kernel lets a newcomer go after 20 ms; the monitor attaches it when it runs again."""
    with Bundle(SLEEPER, at=AT) as bundle:
        pid = started(bundle).pid()
        [monitor] = lorentz.shown(bundle.id)["monitors"]
        os.kill(monitor["pid"], signal.SIGSTOP)
        try:
            words = ["nsenter", "--all", "--target", str(pid), "sh", "-c", "echo; read a; date +%Y"]
            with subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as entered:
                assert entered.stdout.readline() == "\n"
                os.kill(monitor["pid"], signal.SIGCONT)
                wait(lambda: len(lorentz.shown(bundle.id)["pids"]) == 2, "it stays outside")
                assert entered.communicate("\n", timeout=20)[0] == "2038\n"
        finally:
            os.kill(monitor["pid"], signal.SIGCONT)


def test_an_attached_container_of_another_runtime_receives_them():
    """As docker exec and lxc-attach enter a container whose first process was attached."""
    unshare = [needs.tool("unshare"), "--fork", "--pid", "--mount-proc", "--kill-child"]
    with subprocess.Popen([*unshare, *SLEEPER]) as outer:
        try:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
            wait(lambda: children.read_text().strip(), "no child")
            first = int(children.read_text())
            wait(lambda: Path(f"/proc/{first}/comm").read_text() == "sleep\n", "no exec")
            name = f"newcomers-{os.getpid()}"
            lorentz.ok("attach", str(first), "--name", name, "--at", AT)
            wait_for_watch(name)
            assert year(first, "--pid --mount") == "2038"
        finally:
            outer.kill()


def command_of(pid: int) -> str:
    """The words of a process's command, each with a null behind it; "" if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_a_running_container_of_podman_is_attached_by_its_name(podman, tmp_path):
    """One of runc, under podman's seccomp profile; `podman exec` then enters its clock."""
    storage = f"--root {podman.folder}/storage --runroot {podman.folder}/run --runtime runc"
    script = f'#!/bin/sh\nCONTAINERS_CONF={podman.conf} exec {podman.program} {storage} "$@"\n'
    (tmp_path / "podman").write_text(script)
    (tmp_path / "podman").chmod(0o755)
    env = {**lorentz.session.environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    name = f"plain-{os.getpid()}"
    runc = ["--runtime", needs.tool("runc")]
    loop = "while :; do date +%Y; sleep 0.1; done"
    podman.call(
        *runc, "run", "-d", "--name", name, "--network=none", podman.image, "sh", "-c", loop
    )
    try:
        # A child of the engine, and not of the container's first process.
        podman.call(*runc, "exec", "-d", name, "sleep", "4711")
        done = lorentz.call("attach", f"podman:{name}", "--at", AT, "--rate", "10", env=env)
        assert done.returncode == 0, done.stderr
        assert "sleep\0004711\0" in map(command_of, lorentz.shown(name)["pids"])
        wait_for_watch(name)
        wait(lambda: "2038" in podman.call("logs", name).stdout, "the container's own program")
        assert podman.call(*runc, "exec", name, "date", "+%Y").stdout == "2038\n"
        begun = time.monotonic()
        podman.call(*runc, "exec", name, "sleep", "100")
        assert time.monotonic() - begun < 60
    finally:
        podman.call(*runc, "rm", "--force", "--time", "0", name, check=False)


def test_podman_exec_and_another_container_in_the_same_process_ids(podman):
    """A container beside it that shares its process id namespace has entered, as `kubectl debug`
    does."""
    with podman.background(*SLEEPER, at=AT) as name:
        full = podman.call("inspect", "--format", "{{.Id}}", name).stdout.strip()
        wait_for_watch(full)
        assert podman.call("exec", name, "date", "+%Y").stdout == "2038\n"
        options = ["--rm", "--network=none", "--pid", f"container:{name}"]
        beside = ["--runtime", needs.tool("runc"), "run", *options, podman.image, "date", "+%Y"]
        assert podman.call(*beside).stdout == "2038\n"


def test_python_and_other_real_programs():
    with Bundle(SLEEPER, at=AT, rate="100") as bundle:
        pid = started(bundle).pid()
        script = (
            "import threading, time\n"
            "threading.Timer(100, lambda: print(time.gmtime().tm_year)).start()\n"
        )
        begun = time.monotonic()
        done = enter(pid, sys.executable, "-c", script, ways="--pid")
        assert done.stdout == "2038\n", done.stderr
        assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "--newcomers", "attach", "--", "true"], "--newcomers: expected with --rootfs"),
        (["run", "--newcomers", "no", "--", "true"], "expected attach, refuse or ignore"),
        (["attach", "--newcomers", "refuse", str(os.getpid())], "expected the first process of"),
    ],
    ids=["run", "word", "attach"],
)
def test_wrong_input(words, complaint):
    done = lorentz.call(*words)
    assert done.returncode == 2 and complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_run_with_a_root_file_system():
    options = ("--rootfs", str(rootfs()), "--newcomers", "attach")
    with Inside(*SLEEPER, at=AT, options=options) as inside:
        inside.wait_until_shown()
        wait_for_watch(inside.name)
        [first] = inside.programs()
        assert year(first) == "2038"
