"""Every way to start another program: it lives in the same virtual time, and notices nothing."""

from __future__ import annotations

import errno
import shutil
import subprocess

import pytest
from framework import build, lorentz, oracle
from framework.build import C_FLAVOURS
from framework.needs import root, tool
from framework.oracle import HostNoise
from framework.running import Inside, Native

RATE = "10"
AT = "2038-01-19"
NAP = 0.5  # virtual seconds that the probe sleeps
PROBE = str(round(NAP * 1e9))


def probe(running: Inside, noise: HostNoise) -> dict:
    """Returns the probe's output, which must be virtual: the date, by vDSO and raw, and its
    sleep, for which `noise` must have ended."""
    event = running.line(ev="probe").data
    for clock in ("real", "real_raw"):
        passed = event[clock] - oracle.epoch(AT)
        assert 0 <= passed < 1000, f"{clock}: not at {AT} but {passed} s from it"
    assert event["slept"] >= NAP
    assert event["slept"] <= NAP + 0.15 * 10 + 1 + 10 * noise.slack
    return event


def same_but_time(shown: dict, native: dict) -> None:
    for field in ("argc", "argv0", "euid", "uid", "cwd"):
        assert shown[field] == native[field], field


STARTED = [
    *("fork", "vfork", "posix_spawn", "posix_spawn-signals", "exec", "exec-thread"),
    *("exec-sigsys-blocked", "exec-sigsys-ignored", "exec-all-blocked"),
    *("fexecve", "execveat-empty", "execveat-dir"),
]


@pytest.mark.parametrize("flavour", C_FLAVOURS)
@pytest.mark.parametrize("how", STARTED)
def test_a_program_started_inside_is_inside(how, flavour):
    command = [build.c("process/tree"), how, build.c("process/probe", flavour), PROBE, "3"]
    with Native(command) as native:
        expect = native.finish()
    with HostNoise() as noise, Inside(*command, rate=RATE, at=AT) as inside:
        status = inside.finish()
    event = probe(inside, noise)
    assert status == expect
    same_but_time(event, native.line(ev="probe").data)
    if native.lines(ev="tree"):
        assert inside.line(ev="tree").data == native.line(ev="tree").data


@pytest.mark.parametrize("how", ["exec", "exec-sigsys-blocked", "exec-sigsys-ignored"])
def test_what_is_blocked_and_ignored_at_exec_reads_back_so(how):
    """If a program blocks or ignores SIGSYS before exec, it reads that back after it."""
    command = [build.c("process/tree"), how, build.c("process/probe"), PROBE]
    with Native(command) as native:
        native.succeed()
    with Inside(*command, rate=RATE, at=AT) as inside:
        inside.succeed()
    expect, event = native.line(ev="probe"), inside.line(ev="probe")
    for field in ("sigsys_blocked", "sigsys_ignored"):
        assert event[field] == expect[field], field


FAILING = ["enoent", "eacces", "eacces-directory", "efault", "efault-argv", "enoexec"]


@pytest.mark.parametrize("how", [*FAILING, "posix_spawn-enoent"])
def test_an_exec_that_fails_fails_as_natively(how):
    """exec fails with the same errno as natively, and the program goes on in virtual time."""
    command = [build.c("process/tree"), how, build.c("process/probe"), PROBE]
    with Native(command) as native:
        native.succeed()
    with HostNoise() as noise, Inside(*command, rate=RATE) as inside:
        inside.succeed()
    event, expect = inside.line(ev="tree").data, native.line(ev="tree").data
    assert (event["status"], event["err"]) == (expect["status"], expect["err"])
    assert event["err"] in (errno.ENOENT, errno.EACCES, errno.EFAULT, errno.ENOEXEC)
    if "slept" in event:
        assert 0.1 <= event["slept"] <= 0.1 + 0.15 * 10 + 10 * noise.slack


@pytest.mark.parametrize("flavour", C_FLAVOURS)
@pytest.mark.parametrize("depth", [1, 3])
def test_a_script_and_a_script_of_a_script(tmp_path, flavour, depth):
    """#! lines, the last naming a program in virtual time as all do."""
    program = tmp_path / "script0"
    program.write_text(f"#!/bin/sh\nexec {build.c('process/probe', flavour)} {PROBE} 5\n")
    program.chmod(0o755)
    for level in range(1, depth):
        script = tmp_path / f"script{level}"
        script.write_text(f"#!/bin/sh\nexec ./script{level - 1}\n")
        script.chmod(0o755)
        program = script
    words = {"rate": RATE, "at": AT, "cwd": tmp_path}
    with HostNoise() as noise, Inside(f"./{program.name}", **words) as inside:
        assert inside.finish() == 5
    probe(inside, noise)


def test_a_program_with_a_relative_interpreter(tmp_path):
    """A script whose #! line is relative to the working directory."""
    shutil.copy2("/bin/sh", tmp_path / "my-sh")
    script = tmp_path / "script"
    script.write_text(f"#!./my-sh\nexec {build.c('process/probe')} {PROBE} 0\n")
    script.chmod(0o755)
    with HostNoise() as noise, Inside("./script", rate=RATE, at=AT, cwd=tmp_path) as inside:
        inside.succeed()
    probe(inside, noise)


def test_an_empty_environment_changes_nothing():
    command = ["env", "-i", build.c("process/probe"), PROBE]
    with HostNoise() as noise, Inside(*command, rate=RATE, at=AT) as inside:
        inside.succeed()
    assert probe(inside, noise)["envs"] == 0


def test_the_environment_is_passed_on_as_it_is():
    """Nothing of Lorentz is in it, neither LD_PRELOAD nor anything else."""
    with Native(["env"]) as native:
        native.succeed()
    with Inside("env", rate="1") as inside:
        inside.succeed()

    def variables(running):
        lines = running.stdout.splitlines()
        ours = ("LORENTZ_TEST_TAG=", "LORENTZ_STATE_DIR=")
        return {line for line in lines if not line.startswith(ours)}

    assert variables(inside) == variables(native)


def test_proc_self_exe_is_the_program():
    program = build.c("process/probe")
    command = f"exec readlink /proc/$({program} 0 | sed 's/.*\"pid\":[0-9]*.*/self/')/exe"
    with Inside("/bin/sh", "-c", command, rate="1") as inside:
        inside.succeed()
    assert inside.stdout.strip() == str(build.Path(tool("readlink")).resolve())


def test_a_storm_of_spawns_from_many_threads():
    """Four threads, fifty posix_spawns each: every child ends well."""
    with Inside(build.c("process/storm"), "4", "50", "/bin/true", rate="1") as inside:
        inside.succeed(timeout=60)
        assert inside.line(ev="storm").data == {"ev": "storm", "execs": 200, "failures": 0}


def test_make_builds_in_parallel(tmp_path):
    """make -j2 with fifty compilations: vfork and exec from several processes at once."""
    tool("make")
    names = [f"f{number}" for number in range(50)]
    for name in names:
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    rules = ["all: " + " ".join(f"{name}.o" for name in names)]
    rules.append("%.o: %.c\n\tgcc -c -o $@ $<")
    (tmp_path / "Makefile").write_text("\n".join(rules) + "\n")
    with Inside("make", "-s", "-j2", rate="10", at=AT, cwd=tmp_path) as inside:
        inside.succeed(timeout=80)
    assert len(list(tmp_path.glob("*.o"))) == 50
    with Inside("make", "-q", rate="10", at=AT, cwd=tmp_path) as inside:
        assert inside.finish() == 0, "what was built just now is not up to date"


def test_many_threads():
    nominal = 1.0
    command = [build.c("process/threads"), "200", str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*command, rate="5") as inside:
        inside.line(ev="ready")
        inside.succeed()
        event = inside.line(ev="threads")
    assert event["n"] == 200
    assert event["shortest"] >= nominal
    assert event["longest"] <= nominal * 1.05 + 5 * (noise.slack + 0.05)


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_the_program_itself_in_every_flavour(flavour):
    command = [build.c("process/probe", flavour), PROBE]
    with HostNoise() as noise, Inside(*command, rate=RATE, at=AT) as inside:
        inside.succeed()
    probe(inside, noise)


@pytest.mark.parametrize("setuid", [False, True], ids=["plain", "setuid"])
def test_a_setuid_program_lives_in_virtual_time_or_is_refused(tmp_path_factory, setuid):
    """A setuid program of root's, run by user nobody: virtual time, or a clear message. The same
    program without the bit shows that it can run at all."""
    root()
    folder = lorentz.session.folder / f"setuid-{setuid}"
    folder.mkdir(exist_ok=True)
    program = folder / "probe"
    shutil.copy2(build.c("process/probe", "static"), program)
    program.chmod(0o4755 if setuid else 0o755)
    how = {"rate": RATE, "at": AT, "unprivileged": True}
    with HostNoise() as noise, Inside(program, PROBE, **how) as inside:
        status = inside.finish()
    if inside.lines(ev="probe"):
        event = probe(inside, noise)
        assert event["uid"] == lorentz.NOBODY
        return
    assert setuid, inside.stderr
    assert status != 0
    assert inside.stderr.strip()


def test_roots_setuid_programs_keep_their_rights(tmp_path):
    """As root a program that drops its rights and then runs a setuid one gets them back."""
    root()
    folder = lorentz.session.folder / "setuid-root"
    folder.mkdir(exist_ok=True)
    program = folder / "probe"
    shutil.copy2(build.c("process/probe", "static"), program)
    program.chmod(0o4755)
    command = [*lorentz.as_nobody(), str(program), PROBE]
    with Native(command) as native:
        native.succeed()
    with HostNoise() as noise, Inside(*command, rate=RATE, at=AT) as inside:
        status = inside.finish()
    if inside.lines(ev="probe"):
        assert probe(inside, noise)["euid"] == native.line(ev="probe")["euid"]
    else:
        assert status != 0
        assert inside.stderr.strip()


def test_a_32_bit_program_is_refused_or_virtual():
    """Never real time: a word on stderr and no success, or the date inside."""
    program = build.i386("process/time32")
    try:
        native = subprocess.run([program], capture_output=True, timeout=10, check=True)
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    assert len(native.stdout) == 4
    done = lorentz.call("run", "--at", "2030-01-01", "--", str(program), text=False)
    if done.returncode == 0:
        seconds = int.from_bytes(done.stdout, "little")
        assert 0 <= seconds - oracle.epoch("2030-01-01") < 60
    else:
        assert done.stdout == b""
        assert done.stderr.strip()
