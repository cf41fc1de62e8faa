"""`lorentz run --rootfs` and `--bundle`: a container without an engine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from framework import lorentz
from framework.containers import Bundle, rootfs, runtime, wait
from framework.running import Inside


def run(*words: str, options: tuple[str, ...] = (), root: Path | None = None) -> str:
    return lorentz.ok("run", "--rootfs", str(root or rootfs()), *options, "--", *words)


def assert_nothing_left() -> None:
    state = lorentz.session.state_dir()
    left = [path for path in state.rglob("*") if ".runtime" in path.parts]
    assert not left, left
    # An engine of other tests has mounts elsewhere in the session's directory.
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(state) in line]
    assert not mounts, mounts


def traced(call: str, injected: str, name: str) -> tuple[list[str], Path]:
    """Returns the words of strace that meddle with a runtime's system calls `call` on the file with
    the state of container `name`, and that file."""
    noted = lorentz.session.state_dir() / ".runtime" / name / "state.json"
    strace = ["strace", "-o", "/dev/null", "-P", str(noted)]
    return [*strace, "-e", f"trace={call}", "-e", f"inject={call}:{injected}"], noted


def finishes(*command: str) -> None:
    """Runs a command to its end, which is to be a good one, without a word of complaint."""
    done = subprocess.run(
        command,
        env=lorentz.session.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_runs_in_its_own_root_on_its_own_clock():
    script = "date +%Y; sleep 20; hostname; id -u; ls /; echo $$"
    start = time.monotonic()
    text = run("sh", "-c", script, options=("--at", "2038-01-19", "--rate", "50", "--name", "web"))
    assert time.monotonic() - start < 15
    names = ["bin", "dev", "etc", "proc", "sys", "tmp"]
    assert text.split() == ["2038", "web", "0", *names, "1"]
    assert_nothing_left()


def test_all_namespaces_are_its_own():
    kinds = ["cgroup", "ipc", "mnt", "net", "pid", "uts"]
    links = " ".join(f"/proc/self/ns/{kind}" for kind in kinds)
    inside = run("sh", "-c", f"for l in {links}; do ls -l $l; done").splitlines()
    assert len(inside) == len(kinds)
    for kind, line in zip(kinds, inside, strict=True):
        assert line.split("-> ")[1] != str(Path(f"/proc/self/ns/{kind}").readlink())


def test_the_root_file_system_stays_as_it_is():
    before = sorted(rootfs().rglob("*"))
    script = "echo x > /new; rm /bin/uname; cat /new; mkdir /tmp/d; ls /tmp"
    assert run("sh", "-c", script.replace("rm", "busybox rm")).split() == ["x", "d"]
    assert sorted(rootfs().rglob("*")) == before
    assert_nothing_left()


def test_it_is_written_through_where_that_is_asked(tmp_path):
    root = tmp_path / "root"
    shutil.copytree(rootfs(), root, symlinks=True)
    run("sh", "-c", "echo x > /new", options=("--read-write",), root=root)
    assert (root / "new").read_text() == "x\n"
    assert_nothing_left()


def test_a_program_may_end_before_the_runtime_has_noted_its_start():
    """The monitor removes the container's files after the last program's end: the runtime, which
    still had to write one of them, failed."""
    name = f"ends-at-once-{os.getpid()}"
    # The runtime alone is slow, each time that it opens the file.
    strace, _ = traced("openat", "delay_enter=1000000", name)
    words = ["run", "--rootfs", str(rootfs()), "--name", name, "--", "true"]
    finishes(*strace, *lorentz.session.command(), *words)
    assert_nothing_left()


def test_options_arrive(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("from outside\n")
    options = (
        *("--hostname", "other", "--env", "A=1 2", "--env", "PATH=/bin", "--workdir", "/tmp"),
        *("--user", "7:8", "--mount", f"{tmp_path}:/etc:ro"),
    )
    script = "hostname; echo $A; pwd; id -u; id -g; cat /etc/file; touch /etc/new || echo no"
    lines = run("sh", "-c", script, options=options).splitlines()
    assert lines == ["other", "1 2", "/tmp", "7", "8", "from outside", "no"]


def test_limits_are_set():
    options = ("--memory", "64M", "--pids", "17", "--cpus", "0.5")
    # The shell does not become its last command: a process that does is on no clock for a moment.
    with Inside(
        "sh",
        "-c",
        'echo \'{"ev":"up"}\'; sleep 1000; :',
        options=("--rootfs", str(rootfs()), *options),
    ) as inside:
        inside.line(ev="up")
        pid = inside.shown()["pids"][0]
        groups = dict(
            line.split(":", 2)[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        )
        for kind, file, value in (
            ("memory", "memory.limit_in_bytes", 64 << 20),
            ("pids", "pids.max", 17),
            ("cpu", "cpu.cfs_quota_us", 50000),
        ):
            if kind in groups:
                limit = Path("/sys/fs/cgroup") / kind / groups[kind].lstrip("/") / file
                assert int(limit.read_text()) == value


def test_root_inside_may_be_nobody_outside():
    options = ("--user-namespace", "--rate", "20", "--at", "2038-01-19")
    text = run("sh", "-c", "id -u; cat /proc/self/uid_map; sleep 10; date +%Y", options=options)
    assert text.split() == ["0", "0", "100000", "65536", "2038"]


def test_offsets_alone_take_a_time_namespace():
    script = "cat /proc/self/timens_offsets"
    text = run("sh", "-c", script, options=("--monotonic", "100000s"))
    assert text.split()[:3] == ["monotonic", "100000", "0"]


def test_verbs_and_exec_work_on_it():
    with Inside(
        "sh",
        "-c",
        'echo \'{"ev":"up"}\'; sleep 100000; echo \'{"ev":"over"}\'',
        rate="2",
        at="2038-01-19",
        options=("--rootfs", str(rootfs())),
    ) as inside:
        inside.line(ev="up")
        assert lorentz.ok("exec", inside.name, "date", "+%Y") == "2038\n"
        assert lorentz.ok("exec", inside.name, "hostname") == f"{inside.name}\n"
        inside.freeze()
        inside.unfreeze()
        inside.leap("100001s")
        inside.line(ev="over")
        assert inside.finish() == 0
    assert_nothing_left()


def test_containers_on_one_clock():
    options = ("--rootfs", str(rootfs()))
    with Inside(
        "sh", "-c", 'echo \'{"ev":"up"}\'; sleep 1000', at="2038-01-19", options=options
    ) as a:
        a.line(ev="up")
        assert run("date", "+%Y", options=("--clock", a.name)) == "2038\n"


def test_rm_clears_what_a_killed_command_left():
    with Inside(
        "sh", "-c", 'echo \'{"ev":"up"}\'; sleep 1000', options=("--rootfs", str(rootfs()))
    ) as a:
        a.line(ev="up")
        a.process.kill()
        a.process.wait()
        lorentz.ok("rm", "--force", a.name)
        assert not lorentz.shown(a.name)
        assert_nothing_left()


def test_nothing_is_left_of_a_killed_command_when_its_program_has_ended():
    script = 'echo \'{"ev":"up"}\'; read line'
    with Inside("sh", "-c", script, options=("--rootfs", str(rootfs())), stdin=True) as a:
        a.line(ev="up")
        a.process.kill()
        a.process.wait()
        a.close_stdin()
        lorentz.wait_until_gone(a.name, 10)
        assert_nothing_left()


@pytest.mark.parametrize("count", range(1, 5))
def test_nothing_is_left_of_a_command_that_was_killed_as_it_wrote_its_state(count):
    """libcontainer empties the file and then writes it: twice when it makes the container, and once
    when the program has begun. Between these the runtime adds to it."""
    name = f"killed-at-{count}-{os.getpid()}"
    strace, noted = traced("write", f"signal=SIGKILL:when={count}", name)
    words = ["run", "--rootfs", str(rootfs()), "--name", name, "--", "sh", "-c", "read line"]
    with subprocess.Popen(
        [*strace, *lorentz.session.command(), *words],
        env=lorentz.session.environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as killed:
        assert killed.wait(timeout=60) == -signal.SIGKILL
        assert count == 1 or noted.read_text() == ""
    if count in (2, 3):
        # The container is made, and waits for its start.
        lorentz.ok("rm", "--force", name)
    lorentz.wait_until_gone(name, 10)
    assert_nothing_left()
    assert not list(Path("/sys/fs/cgroup").rglob(f"lorentz-{name}"))


def test_a_state_is_read_whole_while_it_is_written():
    with Bundle(["sleep", "100000"], at="2038-01-19") as bundle:
        bundle.ok("create", "--bundle", str(bundle.folder), bundle.id)
        strace, noted = traced("write", "delay_enter=3000000", bundle.id)
        with subprocess.Popen(
            [*strace, str(runtime()), "start", bundle.id],
            env=lorentz.session.environment(),
            stdin=subprocess.DEVNULL,
        ) as starts:
            wait(lambda: noted.read_text() == "", "the file is not emptied")
            assert bundle.status() == "running"
            assert noted.read_text() == ""
            assert starts.wait(timeout=60) == 0


def test_a_program_may_go_while_the_runtime_looks_at_it():
    """libcontainer finds its directory below /proc, and then no file there. A second look finds no
    directory: here it does, for the program has not gone."""
    with Bundle(["sleep", "100000"], at="2038-01-19") as bundle:
        bundle.start()
        strace = ["strace", "-o", "/dev/null", "-P", "stat", "-e", "trace=openat"]
        strace += ["-e", "inject=openat:error=ENOENT:when=1"]
        for words in (["state", bundle.id], ["delete", "--force", bundle.id]):
            finishes(*strace, str(runtime()), *words)


def test_a_bundle_is_run_with_another_clock_and_another_program():
    with Bundle(["date", "+%Y"], at="2038-01-19") as bundle:
        assert lorentz.ok("run", "--bundle", str(bundle.folder)) == "2038\n"
        options = ("--bundle", str(bundle.folder), "--at", "2040-01-01")
        assert lorentz.ok("run", *options) == "2040\n"
        assert lorentz.ok("run", *options, "--", "date", "+%m") == "01\n"
    assert_nothing_left()


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (("--rootfs", "/no/such/dir", "true"), 2, "--rootfs /no/such/dir"),
        (("--rootfs", "ROOT", "nosuch"), 127, "not found"),
        (("--rootfs", "ROOT", "/etc"), 126, "permission denied"),
        (("--rootfs", "ROOT"), 2, "COMMAND"),
        (("--rootfs", "ROOT", "--rate", "0", "true"), 2, "--rate 0"),
        (("--rootfs", "ROOT", "--memory", "much", "true"), 2, "--memory much"),
        (("--rootfs", "ROOT", "--mount", "x", "true"), 2, "--mount x"),
        (("--rootfs", "ROOT", "--mount", "/no/such:/x", "true"), 2, "/no/such"),
        (("--rootfs", "ROOT", "--user", "root", "true"), 2, "--user root"),
        (("--rootfs", "ROOT", "--bundle", "/tmp", "true"), 2, "--bundle"),
        (("--hostname", "x", "true"), 2, "--rootfs"),
        (("--bundle", "/no/such/dir"), 125, "/no/such/dir"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_left(arguments, status, words):
    given = [str(rootfs()) if word == "ROOT" else word for word in arguments]
    done = lorentz.call("run", *given)
    assert done.returncode == status, done.stderr
    assert words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("lorentz: ")
    assert lorentz.ps() == []
    assert_nothing_left()


def test_exec_names_the_runtimes_directory_where_it_is_not_seen():
    """For example from another root directory, which has another /run."""
    up = ["sh", "-c", 'echo \'{"ev":"up"}\'; exec sleep 1000']
    with Inside(*up, options=["--rootfs", str(rootfs())]) as inside:
        inside.line(ev="up")
        [own] = [path.parent for path in inside.session.state_dir().rglob("state.json")]
        hidden = own.with_name(".hidden")
        own.rename(hidden)
        try:
            done = lorentz.call("exec", inside.name, "true")
        finally:
            hidden.rename(own)
        assert str(own) in lorentz.refusal(done, inside.name)
        lorentz.ok("exec", inside.name, "true")
    assert_nothing_left()
