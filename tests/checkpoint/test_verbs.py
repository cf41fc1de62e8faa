"""Verbs on a restored container, and the refusals of checkpoint and restore."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import zlib
from datetime import datetime
from pathlib import Path

import pytest
from framework import checkpoints, lorentz
from framework.checkpoints import Restored, save
from framework.experiments import until
from framework.running import Inside

#: A shell that executes date each 50 ms.
EXECS = (
    "n=0; while :; do n=$((n + 1)); "
    'echo "{\\"ev\\":\\"year\\",\\"n\\":$n,$(date +\'"year":%Y,"at":%s.%N\')}"; sleep 0.05; done'
)


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def name() -> str:
    name.count = getattr(name, "count", 0) + 1
    return f"v{os.getpid()}-{name.count}"


def shell(**options: object) -> Inside:
    return Inside("/bin/sh", "-c", EXECS, at="2038-01-19", **options)


@pytest.fixture
def saved(tmp_path) -> Path:
    """The checkpoint of a shell."""
    with shell() as inside:
        inside.wait_for(3, ev="year")
        directory = save(inside, tmp_path / "saved")
        assert inside.finish() == 137
    return directory


# Verbs on a restored container


def test_programs_start_others(saved):
    with Restored(saved, name()) as restored:
        years = restored.wait_for(10, ev="year")
        assert {line["year"] for line in years} == {2038}
        numbers = [line["n"] for line in years]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_every_verb_works(saved):
    with Restored(saved, name()) as restored:
        restored.line(ev="year")
        shown = lorentz.shown(restored.name)
        assert shown["monitor_alive"] and not shown["needs_adopt"]
        assert lorentz.ok("exec", restored.name, "date", "+%Y").strip() == "2038"
        restored.verb("dilate", "--rate", "10")
        seen = len(restored.lines(ev="year"))
        begun = restored.time()
        restored.wait_for(seen + 20, ev="year")
        ended = restored.time()
        real = ended["host"]["monotonic_ns"] - begun["host"]["monotonic_ns"]
        assert ended["monotonic_ns"] - begun["monotonic_ns"] == pytest.approx(10 * real, rel=1e-6)
        restored.verb("freeze")
        time.sleep(0.2)
        check_that_it_stands(restored)
        restored.verb("unfreeze")
        restored.verb("leap", "--by", "3y")
        restored.line(ev="year", year=2041)
        lorentz.ok("rm", "--force", restored.name)
        assert lorentz.shown(restored.name) is None


def check_that_it_stands(frozen: Restored) -> None:
    """Checks that a frozen clock stands, and that the program has read it no later. Lines from
    before the freeze may come late."""
    wall = frozen.time()["wall"]
    latest = max(line["at"] for line in frozen.lines(ev="year"))
    assert latest <= datetime.fromisoformat(wall).timestamp() + 1e-3
    assert frozen.time()["wall"] == wall


def test_nothing_is_left_after_its_end(tmp_path):
    with Inside("sleep", "2") as inside:
        checkpoints.begun(inside)
        directory = save(inside, tmp_path / "saved")
    with Restored(directory, name()) as restored:
        restored.wait_until_ended()
        assert not restored.lines()


def test_check_says_that_it_can_be_restored(saved):
    assert lorentz.ok("restore", "--check", str(saved)) == f"{saved}: can be restored here\n"


def test_the_log_of_a_restore_that_failed_is_kept(tmp_path):
    program, away = tmp_path / "sleep", tmp_path / "away"
    shutil.copy("/bin/sleep", program)
    with Inside(str(program), "1000") as inside:
        checkpoints.begun(inside)
        directory = save(inside, tmp_path / "saved")
    program.rename(away)
    failed = lorentz.call("restore", str(directory), "--name", name())
    log = directory / "restore.log"
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("lorentz: CRIU: ") and str(program)[1:] in failed.stderr
    assert failed.stderr.endswith(f"(its log: {log})\n") and "Error (" in log.read_text()
    away.rename(program)
    with Restored(directory, name()) as restored:
        assert restored.row()["pids"]


def test_lives_side_by_side(saved):
    """Their process ids are the same inside. Each has a clock of its own, which no verb on another
    life changes."""
    with (
        Restored(saved, name()) as one,
        Restored(saved, name()) as two,
        Restored(saved, name(), "--frozen") as three,
    ):
        lives = (one, two, three)
        two.verb("leap", "--by", "3y")
        two.line(ev="year", year=2041)
        three.verb("leap", "--by", "10y")
        three.verb("dilate", "--rate", "5")
        three.verb("unfreeze")
        three.line(ev="year", year=2048)
        for life, year in zip(lives, (2038, 2041, 2048), strict=True):
            seen = len(life.lines(ev="year"))
            years = life.wait_for(seen + 5, ev="year")[seen:]
            assert {line["year"] for line in years} == {year}
            assert lorentz.ok("exec", life.name, "date", "+%Y").strip() == str(year)
        pids = [set(life.row()["pids"]) for life in lives]
        assert not pids[0] & pids[1] and not pids[1] & pids[2]
        two.verb("freeze")
        seen = len(two.lines(ev="year"))
        one.wait_for(len(one.lines(ev="year")) + 5, ev="year")
        check_that_it_stands(two)
        two.verb("unfreeze")
        two.wait_for(seen + 5, ev="year")
        for life in lives:
            lorentz.ok("rm", "--force", life.name)
            assert lorentz.shown(life.name) is None


def test_a_name_in_use_is_refused(saved):
    with Inside("sleep", "60") as other:
        other.wait_until_shown()
        done = lorentz.call("restore", str(saved), "--name", other.name)
        lorentz.refusal(done, other.name)


@pytest.mark.patient
@pytest.mark.timeout(400)
def test_a_hundred_cycles_leave_the_program_as_it_was(tmp_path):
    """Number of filters, descriptors and mappings, size of its data."""

    def looks(pid: int) -> tuple[list[str], int, int]:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        kept = [line for line in status if line.startswith(("Seccomp_filters", "VmData"))]
        maps = Path(f"/proc/{pid}/maps").read_text().count("\n")
        return kept, len(list(Path(f"/proc/{pid}/fd").iterdir())), maps

    def sleeper(restored: Restored) -> int:
        """Its number may be another than before, and an init beside it, where that was taken."""
        pids = restored.row()["pids"]
        (found,) = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
        return found

    with Inside("sleep", "1000") as inside:
        checkpoints.begun(inside)
        directory = save(inside, tmp_path / "0")
    first = None
    for turn in range(1, 101):
        again = f"{inside.name}-{turn}"
        with Restored(directory, again) as restored:
            last = looks(sleeper(restored))
            first = first or last
            directory = tmp_path / str(turn)
            lorentz.ok("checkpoint", again, "-o", str(directory))
            shutil.rmtree(tmp_path / str(turn - 1))
    assert last == first


# Refusals


def refused(container: str, directory: Path, names: str) -> None:
    lorentz.refusal(lorentz.call("checkpoint", container, "-o", str(directory)), names)
    assert not directory.exists()
    assert not list(directory.parent.glob(f".{directory.name}*"))


def test_a_directory_that_exists_is_refused(tmp_path):
    with shell() as inside:
        inside.wait_for(1, ev="year")
        done = lorentz.call("checkpoint", inside.name, "-o", str(tmp_path))
        lorentz.refusal(done, "exists")
        inside.wait_for(4, ev="year")


def is_the_other(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0060\0"
    return False


def test_programs_beside_one_another_are_refused(tmp_path):
    with shell() as inside:
        inside.wait_for(1, ev="year")
        command = [*lorentz.session.command(), "exec", inside.name, "sleep", "60"]
        other = subprocess.Popen(command, env=lorentz.session.environment())
        try:
            deadline = time.monotonic() + 10
            while len(inside.shown()["monitors"]) < 2:
                assert time.monotonic() < deadline
            until(lambda: any(map(is_the_other, inside.shown()["pids"])), "the other program")
            refused(inside.name, tmp_path / "new", "beside one another")
        finally:
            lorentz.ok("rm", "--force", inside.name)
            other.wait()


def test_a_clock_of_several_containers_is_refused(tmp_path):
    with shell() as inside:
        inside.wait_for(1, ev="year")
        with Inside("sleep", "60", options=["--clock", inside.name]) as other:
            other.wait_until_shown()
            refused(inside.name, tmp_path / "new", "other containers")


def test_a_program_on_a_terminal_is_refused(tmp_path):
    command = [*lorentz.session.command(), "run", "--name", name(), "--", "sleep", "60"]
    controller, terminal = os.openpty()
    with subprocess.Popen(
        command,
        env=lorentz.session.environment(),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        start_new_session=True,
    ) as run:
        deadline = time.monotonic() + 10
        while not (lorentz.shown(command[-4]) or {}).get("pids"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        try:
            refused(command[-4], tmp_path / "new", "/dev/pts/")
        finally:
            lorentz.ok("rm", "--force", command[-4])
            run.wait()
            os.close(controller)
            os.close(terminal)


#: Where a process has the layout in the header of the shim's image (crates/inject/src/image.rs).
LAYOUT_ADDRESS = 0x70000000 + 49


def test_programs_of_a_build_with_another_layout_are_refused(tmp_path):
    with shell() as inside:
        inside.wait_for(1, ev="year")
        (pid,) = [pid for pid in inside.shown()["pids"] if is_the_shell(pid)]
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(LAYOUT_ADDRESS)
            memory.write(bytes.fromhex("efcdab"))
        refused(inside.name, tmp_path / "new", "with the shim layout abcdef")
        inside.wait_for(4, ev="year")


def is_the_shell(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/bin/sh\0")
    return False


def rewrite(directory: Path, **changes: object) -> None:
    """Changes the description of a checkpoint, and its checksum with it."""
    file = directory / "lorentz.json"
    description = json.loads(file.read_text())
    description["checkpoint"].update(changes)
    text = json.dumps(description["checkpoint"], separators=(",", ":"), ensure_ascii=False)
    description["checksum"] = zlib.crc32(text.encode())
    file.write_text(json.dumps(description))


def test_a_checkpoint_of_another_build_is_restored_if_the_layout_is_the_same(saved):
    rewrite(saved, shim=1, lorentz="0.0.1")
    with Restored(saved, name()) as restored:
        restored.line(ev="year")
        assert lorentz.ok("exec", restored.name, "date", "+%Y").strip() == "2038"
    rewrite(saved, shim_layout=0xABCDEF)
    lorentz.refusal(lorentz.call("restore", str(saved)), "(0.0.1) with the shim layout abcdef")
    assert lorentz.ps() == []


def test_without_criu_one_line_says_how_to_get_it(saved, tmp_path, monkeypatch):
    old = tmp_path / "criu"
    old.write_text("#!/bin/sh\necho Version: 3.17.1\n")
    old.chmod(0o755)
    for binary, what in [(old, "CRIU 3.17.1, too old"), (tmp_path / "none", "No such file")]:
        monkeypatch.setenv("LORENTZ_CRIU", str(binary))
        done = lorentz.call("restore", str(saved))
        assert done.returncode == 1 and done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert what in line and "apt-get install criu" in line
        entries = json.loads(lorentz.call("doctor", "--json").stdout)["features"]
        (entry,) = [entry for entry in entries if entry["name"] == "criu"]
        assert not entry["available"] and what in entry["detail"]


# Damage


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    middle = len(data) // 2
    if how == "truncated":
        file.write_bytes(data[:middle])
    elif how == "changed":
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :])
    else:
        file.unlink()


def test_each_damaged_file_is_named_in_one_line(saved, tmp_path):
    files = [path.relative_to(saved) for path in saved.rglob("*") if path.is_file()]
    assert len(files) > 10
    for file in files:
        for how in ("truncated", "changed", "gone"):
            if how == "changed" and not (saved / file).stat().st_size:
                continue
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(saved, copy)
            damage(copy / file, how)
            lorentz.refusal(lorentz.call("restore", "--check", str(copy)), str(file))
    lorentz.refusal(lorentz.call("restore", str(copy)), str(copy))
    assert lorentz.ps() == []


def test_what_is_no_checkpoint_is_refused(tmp_path):
    for wrong in (tmp_path, tmp_path / "none"):
        lorentz.refusal(lorentz.call("restore", str(wrong)), "no checkpoint")
