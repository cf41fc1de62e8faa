"""`lorentz adopt`: programs whose monitor was killed get a new one, and notice nothing."""

from __future__ import annotations

import functools
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from framework import build, lorentz, needs, oracle, points, processes, waits
from framework.catalogue import WAITS
from framework.oracle import HostNoise
from framework.running import Inside, Native, Running

#: Length of the waits that an adoption interrupts, s.
LENGTH = 3.0
LIVE = [case for case in WAITS if case.live]
FAMILIES = sorted({case.family for case in LIVE})
#: A shell that executes a program for each line that it reads.
EXECS = (
    'echo "{\\"ev\\":\\"ready\\"}"; n=0; '
    'while read -r _; do n=$((n + 1)); d=$(date +%Y) && echo "{\\"ev\\":\\"year\\",\\"n\\":$n,'
    '\\"year\\":$d}" || echo "{\\"ev\\":\\"failed\\",\\"n\\":$n}"; done'
)


def shell(**options: object) -> Inside:
    """A shell in 2038 that executes date for each line that it reads."""
    return Inside("/bin/sh", "-c", EXECS, at="2038-01-19", stdin=True, **options)


def executes(inside: Running, turn: int) -> bool:
    """Has the shell execute a program for the `turn`th time. Whether it could."""
    inside.process.stdin.write(b"\n")
    inside.process.stdin.flush()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if inside.lines(ev="year", n=turn):
            return inside.lines(ev="year", n=turn)[0]["year"] == 2038
        if inside.lines(ev="failed", n=turn):
            return False
        time.sleep(0.005)
    raise AssertionError(f"turn {turn}: {inside.stdout}{inside.stderr}")


def adopt(inside: Inside) -> list[int]:
    """Adopts the programs of a container. Returns their process ids."""
    how = {"unprivileged": inside.unprivileged, "session": inside.session}
    report = lorentz.json_of("adopt", inside.name, **how)
    assert report["refused"] == []
    assert report["monitor_alive"] and not report["needs_adopt"]
    return report["adopted"]


def filters(pid: int) -> int:
    """The number of seccomp filters of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(x for x in status.splitlines() if x.startswith("Seccomp_filters")).split()[1])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def traced(pid: int) -> bool:
    """Whether a thread of a process is traced or stopped."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(x.split(":\t", 1) for x in (task / "status").read_text().splitlines())
        found.append(lines["TracerPid"] != "0" or lines["State"][0] in "tT")
    return any(found)


def asleep(inside: Inside) -> list[int]:
    """The processes of a container that sleep."""
    return [pid for pid in inside.shown()["pids"] if processes.state(pid) == "S"]


# The gains of an adoption


@pytest.mark.parametrize("unprivileged", [False, True], ids=["root", "nobody"])
def test_programs_can_start_others_again(unprivileged):
    with shell(rate="10", unprivileged=unprivileged) as inside:
        inside.line(ev="ready")
        assert executes(inside, 1)
        inside.kill_monitor()
        assert not executes(inside, 2)
        (pid,) = adopt(inside)
        assert pid in inside.shown()["pids"]
        assert executes(inside, 3)
        inside.close_stdin()
        inside.finish()
        deadline = time.monotonic() + 10
        while inside.name in [entry["name"] for entry in lorentz.ps(unprivileged)]:
            assert time.monotonic() < deadline, "the container is left"
            time.sleep(0.02)


def test_the_line_says_which_processes_were_adopted():
    with shell() as inside:
        inside.line(ev="ready")
        assert inside.verb("adopt") == f"{inside.name}: every program has a monitor\n"
        inside.kill_monitor()
        (pid,) = inside.shown()["pids"]
        assert inside.verb("adopt") == f"{inside.name}: adopted: {pid}\n"
        assert inside.verb("adopt") == f"{inside.name}: every program has a monitor\n"


def test_a_process_finds_its_container():
    with shell() as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        (pid,) = inside.shown()["pids"]
        assert lorentz.json_of("adopt", str(pid))["adopted"] == [pid]


def test_the_container_works_as_before():
    """exec, changes of the clock, a step from inside, rm; nothing is left behind."""
    with shell(rate="1") as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        (pid,) = adopt(inside)
        (monitor,) = inside.shown()["monitors"]
        assert (monitor["kind"], monitor["alive"], monitor["program"]) == ("adopt", True, pid)
        assert lorentz.ok("exec", inside.name, "--", "date", "+%Y") == "2038\n"
        inside.dilate("10")
        inside.leap("400d")
        assert lorentz.ok("exec", inside.name, "--", "date", "+%Y") == "2039\n"
        if os.geteuid() == 0:
            lorentz.ok("exec", inside.name, "--", "date", "-s", "2030-01-01")
            assert lorentz.ok("exec", inside.name, "--", "date", "+%Y") == "2030\n"
        inside.freeze()
        inside.unfreeze()
        assert inside.time()["rate"] == "10"
        refused = lorentz.call("rm", inside.name)
        assert refused.returncode == 2 and "still running" in refused.stderr
        inside.verb("rm", "--force")
        assert lorentz.shown(inside.name) is None
        assert processes.has_ended(monitor["pid"])
        assert list(lorentz.session.state_dir().rglob(f"*{inside.name}*")) == []


def test_the_new_monitor_leaves_with_the_last_program():
    with shell() as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        adopt(inside)
        monitor = inside.monitor()
        inside.close_stdin()
        inside.finish()
        lorentz.wait_until_gone(inside.name)
        deadline = time.monotonic() + 5
        while not processes.has_ended(monitor):
            assert time.monotonic() < deadline, "the monitor stays"
            time.sleep(0.01)


# Programs notice nothing


@functools.cache
def interrupted(threads: bool) -> waits.Results:
    """All kinds of waits at once, as processes or as threads. They get another monitor."""
    lines, count = [], 0
    for family in FAMILIES:
        cases = [c for c in LIVE if c.family == family and (c.threads or not threads)]
        count += len(cases)
        words = waits.command(family, "dynamic", LENGTH, cases, threads)
        lines.append(" ".join(map(str, words)) + " &")
    with (
        HostNoise() as noise,
        Inside("/bin/sh", "-c", "\n".join([*lines, "wait"]), rate="1") as inside,
    ):
        inside.wait_for(count, ev="ready")
        time.sleep(0.3)
        inside.kill_monitor()
        assert len(adopt(inside)) >= len(FAMILIES)
        assert inside.lines(ev="done") == [], "the adoption came too late"
        inside.wait_for(count, timeout=LENGTH + 10, ev="done")
        complaint = f"{inside.stdout[-800:]}\n{inside.stderr[-800:]}"
        collected = waits.collect(inside)
    return waits.Results(collected, noise.slack, complaint)


@pytest.mark.parametrize("threads", [False, True], ids=["process", "thread"])
@pytest.mark.parametrize("case", LIVE, ids=str)
def test_a_wait_ends_at_its_deadline(case, threads):
    """With the result of a wait that nobody has disturbed."""
    if threads and not case.threads:
        pytest.skip("runs as a process alone")
    results = interrupted(threads)
    result = results.of(case).data
    span = oracle.own(LENGTH, 1, results.slack, late=waits.late(case))
    assert result["elapsed"] in span, f"took {result['elapsed']:.4f}, not in {span}"
    native, _ = waits.standard(case, "dynamic", None)
    assert (result["ret"], result["err"]) == (native.data["ret"], native.data["err"])


def test_a_wait_without_a_timeout_goes_on():
    """No call returns EINTR."""
    with Inside(build.c("faults/untimed"), rate="1", stdin=True) as inside:
        ready = {line["case"] for line in inside.wait_for(16, ev="ready")}
        points.until(lambda: len(asleep(inside)) == len(ready) + 2)
        inside.kill_monitor()
        assert len(adopt(inside)) == len(ready) + 2
        time.sleep(0.5)
        assert [line["case"] for line in inside.lines(ev="done")] == []


def test_no_call_returns_eintr_without_a_signal():
    """Signals come at random moments of waits, while the monitor is killed and replaced all the
    time: the shell stays, so that there is one to kill. The kernel takes some 650 filters."""
    script = f"{build.c('stress/eintr')} 4000; read line"
    with Inside("/bin/sh", "-c", script, rate="1", stdin=True) as inside:
        inside.wait_until_shown()
        inside.programs()
        adoptions = 0
        while adoptions < 500 and not inside.lines(ev="end"):
            inside.kill_monitor()
            assert adopt(inside)
            adoptions += 1
        inside.line(ev="end", timeout=60)
        assert adoptions > 10
        assert {line["spurious"] for line in inside.lines(ev="eintr")} == {0}


def test_no_signal_is_lost():
    """Signals come without a pause: the adoption finds the thread in the delivery of one."""
    with Inside(build.c("process/counts_signals"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        for _ in range(20):
            inside.kill_monitor()
            assert adopt(inside)
        inside.close_stdin()
        seen = inside.line(ev="signals")
    assert seen["sent"] == seen["came"] > 0
    assert (seen["in_order"], seen["trapped"]) == (1, 1)


def test_a_full_queue_of_signals_is_waited_for():
    """Any program of the user may fill it: the kernel counts the pending signals of all."""
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        inside.kill_monitor()
        before = resource.prlimit(pid, resource.RLIMIT_SIGPENDING)
        resource.prlimit(pid, resource.RLIMIT_SIGPENDING, (0, before[1]))
        give = functools.partial(resource.prlimit, pid, resource.RLIMIT_SIGPENDING, before)
        later = threading.Timer(0.5, give)
        later.start()
        assert adopt(inside) == [pid]
        later.join()
        assert executes(inside, 1)


def test_a_thread_executes_a_program_while_its_process_is_adopted():
    """The kernel then gives it the number of the first thread, which the adoption may be waiting
    for. No program begins without its clock."""
    with Inside(build.c("process/thread_execs"), at="2038-01-19") as inside:
        for number in range(60):
            inside.line(ev="start", n=number)
            (pid,) = inside.programs()
            inside.kill_monitor()
            os.kill(pid, signal.SIGUSR1)
            assert adopt(inside)
        starts = inside.wait_for(61, ev="start")
    assert {line["year"] for line in starts} == {2038}


def test_a_stopped_process_stays_stopped():
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        os.kill(pid, signal.SIGSTOP)
        inside.kill_monitor()
        assert adopt(inside) == [pid]
        points.until(lambda: processes.state(pid) == "T")
        time.sleep(0.1)
        assert processes.state(pid) == "T"
        os.kill(pid, signal.SIGCONT)
        assert executes(inside, 1)
        # The listener that the process has had must not be open there.
        assert not any("seccomp" in name for name in files(pid))


def test_a_frozen_container_stays_frozen():
    """Not one instruction of its programs runs, and time stands still."""
    needs.feature("cgroup-freeze")
    loop = "while :; do n=$((n + 1)); echo $n > $0/n; done & "
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "n"
        script = f"{loop} {EXECS}; kill $!"
        words = ["/bin/sh", "-c", script, folder]
        with Inside(*words, at="2038-01-19", stdin=True) as inside:
            inside.line(ev="ready")
            points.until(counts.exists)
            inside.freeze()
            before = (counts.read_text(), inside.time()["monotonic_ns"])
            inside.kill_monitor()
            assert len(adopt(inside)) == 2
            assert inside.time()["state"] == "frozen"
            time.sleep(0.3)
            assert before == (counts.read_text(), inside.time()["monotonic_ns"])
            inside.unfreeze()
            assert executes(inside, 1)
            deadline = time.monotonic() + 5
            while counts.read_text() == before[0]:
                assert time.monotonic() < deadline, "the loop does not go on"
                time.sleep(0.01)


def files(pid: int) -> list[str]:
    return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]


def test_a_program_with_a_filter_of_its_own():
    """Its filter refuses seccomp and close, which an adoption needs."""
    sleep = [build.c("process/seccomp"), "strict", str(3 * 10**9)]
    with HostNoise() as noise, Inside(*sleep, rate="1") as inside:
        inside.wait_until_shown()
        (pid,) = inside.programs()
        deadline = time.monotonic() + 2
        while filters(pid) != 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        inside.kill_monitor()
        assert adopt(inside) == [pid]
        # The adoption stops the program: on a busy machine perhaps beyond the end of its wait.
        adopted = time.monotonic() - inside.started_at
        assert not any("seccomp" in name for name in files(pid))
        ended = inside.line(ev="seccomp")
    assert ended["ret"] == 0
    assert 3 <= ended["slept"] <= oracle.own(max(3, adopted), 1, noise.slack).most


def test_an_attached_process():
    """Its own monitor is that of `attach`."""
    name = f"attached-{os.getpid()}"
    with Native(["/bin/sh", "-c", EXECS], stdin=True) as native:
        native.line(ev="ready")
        at = "2038-01-19"
        lorentz.ok("attach", str(native.process.pid), "--name", name, "--at", at, "--tree")
        assert executes(native, 1)
        (monitor,) = lorentz.shown(name)["monitors"]
        os.kill(monitor["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 5
        while not lorentz.shown(name)["needs_adopt"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not executes(native, 2)
        assert lorentz.json_of("adopt", name)["adopted"] == [native.process.pid]
        assert executes(native, 3)
    lorentz.wait_until_gone(name)


def test_programs_that_start_others_all_the_time():
    """Each pass finds new ones."""
    loop = "while :; do (:) & (:) & wait; done"
    script = (
        f'({loop}) & ({loop}) & echo "{{\\"ev\\":\\"ready\\"}}"; read -r _; date +%Y; kill %1 %2'
    )
    with Inside("/bin/bash", "-c", script, at="2038-01-19", stdin=True) as inside:
        inside.line(ev="ready")
        time.sleep(0.2)
        inside.kill_monitor()
        assert len(adopt(inside)) >= 3
        inside.close_stdin()
        inside.finish()
        assert inside.stdout.splitlines()[-1] == "2038"


def test_eight_that_execute_programs_all_the_time():
    """At any time one of them is in the midst of an exec, or has just ended."""
    loop = "while :; do /bin/true 2>/dev/null; done"
    ready = 'echo "{\\"ev\\":\\"ready\\"}"; read -r _; date +%Y; kill $(jobs -p)'
    script = f"({loop}) & " * 8 + ready
    with Inside("/bin/bash", "-c", script, at="2038-01-19", stdin=True) as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        assert len(adopt(inside)) >= 9
        inside.close_stdin()
        inside.finish()
        assert inside.stdout.splitlines()[-1] == "2038"


def test_execs_that_fail_during_the_adoption():
    loop = 'while :; do /bin/true 2>/dev/null && echo \'{"ev":"works"}\'; done'
    quiet = "while ! /bin/true 2>/dev/null; do :; done; "
    ready = 'echo "{\\"ev\\":\\"ready\\"}"; read -r _; '
    with Inside("/bin/bash", "-c", ready + quiet + loop, stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        inside.close_stdin()
        time.sleep(0.2)
        assert len(adopt(inside)) >= 1
        inside.wait_for(3, ev="works")


# Again and again


def test_twenty_times():
    """Each time adds one filter, and nothing else."""
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        before = (filters(pid), descriptors(pid))
        for turn in range(1, 21):
            inside.kill_monitor()
            assert adopt(inside) == [pid]
            assert executes(inside, turn)
            assert (filters(pid), descriptors(pid)) == (before[0] + turn, before[1])
            assert not traced(pid)
        assert len(inside.shown()["monitors"]) == 1


def test_two_at_once():
    """Each process gets one monitor, and each command succeeds."""
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        for turn in range(1, 6):
            before = filters(pid)
            inside.kill_monitor()
            both = [begin_adopt(inside) for _ in range(2)]
            assert [one.wait(timeout=30) for one in both] == [0, 0]
            assert filters(pid) == before + 1
            assert executes(inside, turn)


def begin_adopt(inside: Inside) -> subprocess.Popen:
    words = [*inside.session.command(), "adopt", inside.name]
    environment = inside.session.environment()
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)


# Where one monitor of several has died


def test_only_programs_without_a_monitor_are_adopted():
    """An exec's monitor lives; that of the first program is dead."""
    with shell() as inside:
        inside.line(ev="ready")
        (first,) = inside.shown()["pids"]
        words = [*inside.session.command(), "exec", inside.name, "--", "sleep", "1000"]
        with Running(words, env=inside.session.environment()):
            deadline = time.monotonic() + 10
            while len(inside.shown()["pids"]) != 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            run = next(m["pid"] for m in inside.shown()["monitors"] if m["kind"] == "run")
            os.kill(run, signal.SIGKILL)
            deadline = time.monotonic() + 5
            while not inside.shown()["needs_adopt"]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            shown = inside.shown()
            assert shown["monitor_alive"] and shown["state"] == "running"
            assert f"lorentz adopt {inside.name}" in lorentz.ok("ps")
            assert f"lorentz adopt {inside.name}" in inside.verb("time")
            assert adopt(inside) == [first]
            assert executes(inside, 1)


# Other commands


def test_ps_and_time_only_say_so():
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        before = filters(pid)
        inside.kill_monitor()
        assert f"lorentz adopt {inside.name}" in lorentz.ok("ps")
        assert f"lorentz adopt {inside.name}" in inside.verb("time")
        assert inside.shown()["needs_adopt"] and inside.time()["needs_adopt"]
        assert filters(pid) == before
        assert not executes(inside, 1)


def test_exec_replaces_a_dead_monitor():
    with shell() as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        assert lorentz.ok("exec", inside.name, "--", "date", "+%Y") == "2038\n"
        assert executes(inside, 1)
        assert not inside.shown()["needs_adopt"]


def test_a_run_on_the_same_clock_replaces_a_dead_monitor():
    with shell() as inside:
        inside.line(ev="ready")
        inside.kill_monitor()
        assert lorentz.ok("run", "--clock", inside.name, "--", "date", "+%Y") == "2038\n"
        assert executes(inside, 1)


# Refusals


def test_wrong_input_is_one_line():
    lorentz.refusal(lorentz.call("adopt", "no-such-container"), "no-such-container: no such")
    lorentz.refusal(lorentz.call("adopt"), "NAME|PID")
    lorentz.refusal(lorentz.call("adopt", "1"), "1: this process is not in virtual time")


def test_a_time_namespace_needs_no_monitor():
    needs.feature("time-namespace")
    with Inside("sleep", "1000", options=["--monotonic", "5d"]) as inside:
        inside.wait_until_shown()
        inside.kill_monitor()
        lorentz.refusal(lorentz.call("adopt", inside.name), "need no monitor")


def test_a_program_with_an_older_image_is_left_alone():
    """Its handler does not know the signal, which would end it. The image's header says what it
    knows."""
    needs.root()
    with shell() as inside:
        inside.line(ev="ready")
        (pid,) = inside.shown()["pids"]
        inside.kill_monitor()
        flags = 0x7000_0000 + 48
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(flags)
            memory.write(b"\0")
        done = lorentz.call("adopt", inside.name)
        assert done.returncode == 1 and "older version" in done.stderr
        assert not executes(inside, 1)
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(flags)
            memory.write(b"\1")
        assert adopt(inside) == [pid]
        assert executes(inside, 2)


def test_a_program_that_the_kernel_does_not_let_add_a_filter():
    """Without CAP_SYS_ADMIN and no_new_privs. The line says why; the program goes on."""
    needs.root()
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]
    with Inside(*drop, "/bin/sh", "-c", EXECS, at="2038-01-19", stdin=True) as inside:
        inside.line(ev="ready")
        assert executes(inside, 1)
        inside.kill_monitor()
        (pid,) = inside.shown()["pids"]
        done = lorentz.call("adopt", inside.name)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
        assert f"process {pid}: " in done.stderr and "no_new_privs" in done.stderr
        assert inside.shown()["needs_adopt"]
        assert not executes(inside, 2)
        exec_ = lorentz.call("exec", inside.name, "--", "date", "+%Y")
        assert exec_.stdout == "2038\n" and "no_new_privs" in exec_.stderr
        inside.verb("adopt", "--no-new-privs")
        assert executes(inside, 3)
