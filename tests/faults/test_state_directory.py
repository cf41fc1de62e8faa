"""The state directory: deleted while containers run, invisible from another root directory,
replaced by another user; and a missing /proc."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from framework import build, lorentz, needs, real
from framework.oracle import epoch
from framework.running import Inside

AT = "2038-01-19"


ONE_THAT_WAITS = """
import time
print('{"ev":"up"}', flush=True)
time.sleep(1000000)
"""


@contextlib.contextmanager
def own_session(unprivileged: bool = False) -> Iterator[lorentz.Session]:
    """A session with a state directory of its own, which the test may delete."""
    session = lorentz.Session()
    session.state_dir(unprivileged)
    try:
        yield session
    finally:
        session.close()


def wait_until_restored(inside: Inside) -> None:
    deadline = time.monotonic() + 10
    record = inside.session.state_dir(inside.unprivileged) / inside.name / "container.json"
    while not record.exists():
        assert time.monotonic() < deadline, "the directory was not made anew"
        time.sleep(0.02)


# ------------------------------------------------------------------------------------- deleted


@pytest.mark.parametrize("unprivileged", [False, True], ids=["root", "nobody"])
@pytest.mark.parametrize("whole", [True, False], ids=["all", "one"])
def test_a_deleted_directory_is_made_anew(whole, unprivileged):
    """By the monitor: ps shows the container, its clock is changed, exec enters it, the end
    removes it."""
    with own_session(unprivileged) as session:
        how = {"unprivileged": unprivileged, "session": session}
        # It executes nothing any more: in the midst of an exec a process is on no clock.
        command = [real.python(), "-c", ONE_THAT_WAITS]
        with Inside(*command, rate="2", at=AT, **how) as inside:
            inside.line(ev="up")
            before = inside.shown()
            state = session.state_dir(unprivileged)
            shutil.rmtree(state if whole else state / inside.name)
            wait_until_restored(inside)
            after = inside.shown()
            same = ("name", "pids", "monitor_alive", "created", "command", "state")
            assert {key: after.get(key) for key in same} == {key: before.get(key) for key in same}
            inside.dilate("5")
            assert inside.time()["rate"] == "5"
            inside.leap("1h")
            done = lorentz.call("exec", inside.name, "date", "+%s", **how)
            assert done.returncode == 0, done.stderr
            assert 3600 <= int(done.stdout) - epoch(AT) < 3600 + 1000
            os.kill(after["pids"][0], 9)
            inside.finish()
            assert [one["name"] for one in lorentz.ps(unprivileged, session)] == []
            assert not (state / inside.name).exists()


@contextlib.contextmanager
def no_inotify() -> Iterator[None]:
    """User nobody has as many inotify instances as the kernel gives a user."""
    script = f"""
import ctypes, os
os.geteuid() or os.setuid({lorentz.NOBODY})
while ctypes.CDLL(None).inotify_init() >= 0: pass
print(flush=True)
input()
"""
    taker = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert taker.stdout.readline() == b"\n"
        yield
    finally:
        taker.communicate(b"\n", timeout=20)


def test_it_is_made_anew_by_many_monitors():
    """However many inotify instances the user has; a monitor needs none, and waits for the end of
    none."""
    with own_session(True) as session, no_inotify():
        how = {"unprivileged": True, "session": session}
        with Inside("sleep", "1000", rate="2", **how) as inside:
            inside.wait_until_shown()
            shutil.rmtree(session.state_dir(True))
            wait_until_restored(inside)


def test_it_is_made_anew_before_the_program_begins():
    """A program that waits for the unfreeze has a monitor already."""
    with own_session() as session:
        how = {"options": ["--frozen"], "session": session}
        with Inside("sh", "-c", 'echo \'{"ev":"up"}\'', rate="2", **how) as inside:
            inside.wait_until_shown()
            shutil.rmtree(session.state_dir())
            wait_until_restored(inside)
            lorentz.ok("unfreeze", inside.name, session=session)
            inside.line(ev="up")
            assert inside.finish() == 0
            assert not (session.state_dir() / inside.name).exists()


def test_it_is_made_anew_when_that_could_not_be_done_at_first():
    """As when somebody deletes the directory above it in the same moment."""
    with own_session() as session, Inside("sleep", "1000", session=session) as inside:
        inside.wait_until_shown()
        place = session.state_dir()
        shutil.rmtree(place)
        place.touch()
        time.sleep(0.5)
        place.unlink()
        wait_until_restored(inside)


def test_it_is_made_anew_by_the_monitor_that_takes_over():
    """The command ends before its monitor has made the directory anew, and a program is left."""
    year = 'date "+{\\"ev\\":\\"year\\",\\"year\\":%Y}"'
    script = f"(while :; do {year}; sleep 0.1; done) & read -r _"
    with own_session() as session:
        how = {"at": AT, "session": session, "stdin": True}
        with Inside("/bin/sh", "-c", script, **how) as inside:
            inside.line(ev="year")
            inside.wait_until_shown()
            shutil.rmtree(session.state_dir())
            inside.close_stdin()
            inside.process.wait(timeout=20)
            wait_until_restored(inside)
            seen = len(inside.lines(ev="year"))
            assert {one["year"] for one in inside.wait_for(seen + 5, ev="year")} == {2038}
            inside.verb("leap", "--by", "3y")
            inside.line(ev="year", year=2041)
            lorentz.ok("rm", "--force", inside.name, session=session)


def test_waits_follow_changes_after_the_directory_was_deleted():
    sleep = [build.c("waits/sleep"), str(100 * 10**9), "nanosleep", "clock_nanosleep-realtime-abs"]
    with own_session() as session, Inside(*sleep, rate="1", session=session) as inside:
        inside.wait_for(2, ev="ready")
        shutil.rmtree(session.state_dir())
        wait_until_restored(inside)
        inside.leap("50s")
        inside.dilate("1000")
        done = inside.wait_for(2, timeout=10, ev="done")
    assert min(line["elapsed"] for line in done) >= 100


def test_a_monitor_in_the_background_makes_it_anew():
    """The command has ended, a program is left; and the directory is deleted twice."""
    with own_session() as session:
        script = 'sleep 1000000 & echo \'{"ev":"up"}\''
        with Inside("/bin/sh", "-c", script, rate="2", session=session) as inside:
            inside.line(ev="up")
            inside.process.wait(timeout=20)
            inside.wait_until_shown()
            for rate in ("3", "4"):
                shutil.rmtree(session.state_dir())
                wait_until_restored(inside)
                inside.dilate(rate)
                assert inside.time()["rate"] == rate
            inside.verb("rm", "--force")
            assert lorentz.ps(session=session) == []


def test_containers_that_share_a_clock_are_made_anew():
    """Each by its own monitor; the second one goes on when the first has ended."""
    up = ["/bin/sh", "-c", 'echo \'{"ev":"up"}\'; exec sleep 1000000']
    with own_session() as session, Inside(*up, rate="2", session=session) as first:
        first.line(ev="up")
        shutil.rmtree(session.state_dir())
        wait_until_restored(first)
        options = {"options": ["--clock", first.name], "session": session}
        with Inside(*up, **options) as second:
            second.line(ev="up")
            second.dilate("3")
            assert first.time()["rate"] == "3"
            os.kill(first.shown()["pids"][0], 9)
            first.finish()
            second.dilate("4")
            assert second.time()["rate"] == "4"
            assert len(second.shown()["pids"]) == 1


def test_idle_time_is_skipped_after_the_directory_was_deleted():
    script = 'echo \'{"ev":"up"}\'; read line; sleep 100000; echo \'{"ev":"end"}\''
    with own_session() as session:
        options = {"options": ["--skip-idle"], "rate": "1", "stdin": True, "session": session}
        with Inside("/bin/sh", "-c", script, **options) as inside:
            inside.line(ev="up")
            shutil.rmtree(session.state_dir())
            wait_until_restored(inside)
            time.sleep(1.5)  # longer than the skipper takes to look whether its clock is used
            inside.close_stdin()
            inside.line(ev="end", timeout=30)


def test_a_removed_container_is_not_made_anew():
    with own_session() as session, Inside("sleep", "1000", session=session) as inside:
        inside.wait_until_shown()
        inside.verb("rm", "--force")
        time.sleep(0.5)
        assert lorentz.ps(session=session) == []
        assert list(session.state_dir().iterdir()) == []


def test_programs_without_directory_and_monitor_are_named():
    """No monitor is left to make it anew: the command prints how to end them."""
    with own_session() as session, Inside("sleep", "1000", rate="2", session=session) as inside:
        inside.wait_until_shown()
        [pid] = inside.programs()
        group = json.loads((session.state_dir() / inside.name / "container.json").read_text())[
            "cgroup"
        ]
        os.kill(inside.monitor(), 9)
        inside.process.wait(timeout=5)
        shutil.rmtree(session.state_dir())
        for verb in (["time", inside.name], ["rm", inside.name], ["time", str(pid)]):
            refusal = lorentz.refusal(lorentz.call(*verb, session=session), verb[1])
            assert f"kill {pid}" in refusal
    # Nobody is left who knows of the group.
    if group:
        Path(group).rmdir()


# --------------------------------------------------------------------------------- not to be seen


@pytest.fixture
def other_root() -> Iterator[Path]:
    """A root directory with everything but another /run and /tmp."""
    needs.root()
    root = Path(tempfile.mkdtemp(prefix="lorentz-root-", dir="/var/tmp"))
    yield root
    shutil.rmtree(root)


def in_root(root: Path, *command: str, proc: bool = True) -> subprocess.CompletedProcess:
    """Runs a command with another root directory, in a mount namespace of its own."""
    folders = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/sys", f"/{build.REPO.parts[1]}"]
    binary = str(lorentz.session.binary)
    lines = [f"mkdir -p {root}/run {root}/tmp {root}/proc {root}/var/tmp"]
    lines += [
        f"mkdir -p {root}{folder}; mount --rbind {folder} {root}{folder}"
        for folder in folders
        if Path(folder).is_dir()
    ]
    lines += [f"touch {root}/lorentz; mount --bind {binary} {root}/lorentz"]
    lines += [f"mount --rbind /proc {root}/proc"] if proc else []
    script = "; ".join(lines) + f'; exec chroot {root} "$@"'
    env = {key: value for key, value in os.environ.items() if key != "LORENTZ_STATE_DIR"}
    return subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-e", "-c", script, "root", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )


@pytest.mark.parametrize("verb", ["exec", "time", "rm"])
def test_a_container_in_a_directory_that_is_not_seen_here(other_root, verb):
    """The state directory is below /tmp, and the chroot has another."""
    with Inside("sleep", "1000", rate="2") as inside:
        inside.wait_until_shown()
        more = ["date"] if verb == "exec" else []
        done = in_root(other_root, "/lorentz", verb, inside.name, *more)
        refusal = lorentz.refusal(done, inside.name)
        assert str(inside.session.state_dir() / inside.name) in refusal
        assert "root directory" in refusal
        assert "LORENTZ_STATE_DIR" in refusal


def test_a_name_that_nobody_has_is_no_container_there_either(other_root):
    done = in_root(other_root, "/lorentz", "exec", "nosuch", "date")
    assert "no such container" in lorentz.refusal(done, "nosuch")


@pytest.mark.parametrize("verb", [["run", "--rate", "2", "--", "true"], ["ps"], ["time", "x"]])
def test_a_missing_proc_is_named(other_root, verb):
    done = in_root(other_root, "/lorentz", *verb, proc=False)
    assert done.returncode == (125 if verb[0] == "run" else 1), done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "/proc" in done.stderr
    assert "mount -t proc" in done.stderr
    assert "/run/lorentz" not in done.stderr


# ------------------------------------------------------------------------------------- a stranger


def nobody(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    """The command as nobody, with a /tmp of its own (`TMP`), no LORENTZ_STATE_DIR and no
    XDG_RUNTIME_DIR."""
    dropped = ("LORENTZ_STATE_DIR", "XDG_RUNTIME_DIR")
    own = {key: value for key, value in os.environ.items() if key not in dropped}
    binary = str(lorentz.session.reachable())
    script = 'mount --bind "$TMP" /tmp; exec "$@"'
    # The binary may be below /tmp, which is another there.
    held = f"exec 9<{binary}; "
    return subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-e", "-c", held + script, "nobody"]
        + [*lorentz.as_nobody(), "/proc/self/fd/9", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**own, **env},
    )


@pytest.fixture
def tmp() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lorentz-tmp-", dir="/var/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["directory", "open directory", "file", "link"])
def test_a_stranger_in_the_place_of_the_state_directory_is_no_obstacle(tmp, kind):
    """Root made a file at /tmp/lorentz-65534: user nobody runs a container, and all commands find
    it."""
    needs.root()
    taken = tmp / f"lorentz-{lorentz.NOBODY}"
    if kind == "file":
        taken.write_text("")
    elif kind == "link":
        (tmp / "elsewhere").mkdir(mode=0o777)
        taken.symlink_to("elsewhere")
    else:
        taken.mkdir()
        taken.chmod(0o777 if kind == "open directory" else 0o700)
    done = nobody("run", "--at", AT, "--rate", "2", "--", "date", "+%Y", TMP=str(tmp))
    assert (done.returncode, done.stdout.strip()) == (0, "2038"), done.stderr
    assert {one.name for one in tmp.iterdir()} <= {taken.name, "elsewhere"}, "something is left"
    if taken.is_dir():
        assert list(taken.iterdir()) == []


def test_commands_find_the_other_directory(tmp):
    """Also if the other user's directory goes meanwhile."""
    needs.root()
    taken = tmp / f"lorentz-{lorentz.NOBODY}"
    taken.mkdir()
    run = ["run", "--name", "web", "--rate", "2", "--", "/bin/sh", "-c"]
    wait = "until [ -e /tmp/stop ]; do sleep 0.05; done"
    with ThreadPoolExecutor() as pool:
        running = pool.submit(nobody, *run, wait, TMP=str(tmp))
        try:
            deadline = time.monotonic() + 20
            while "web" not in nobody("ps", TMP=str(tmp)).stdout:
                assert time.monotonic() < deadline
            [own] = [one for one in tmp.iterdir() if one.name.startswith(f"{taken.name}.")]
            assert own.stat().st_uid == lorentz.NOBODY
            assert own.stat().st_mode & 0o777 == 0o700
            taken.rmdir()
            done = nobody("exec", "web", "--", "date", TMP=str(tmp))
            assert done.returncode == 0, done.stderr
            other = nobody("run", "--name", "other", "--", "true", TMP=str(tmp))
            assert other.returncode == 0, other.stderr
            assert not taken.exists()
        finally:
            (tmp / "stop").write_text("")
        assert running.result(timeout=30).returncode == 0
    assert [one.name for one in tmp.iterdir()] == ["stop"]
