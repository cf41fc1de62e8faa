"""Lifecycle of a container by the OCI runtime specification, and the clock during it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from framework import lorentz, processes
from framework.containers import Bundle, runtime, wait

CGROUPS = Path("/sys/fs/cgroup")


def traces(bundle: Bundle) -> list[str]:
    """Returns the remains of a container: state, control groups, mounts, sockets."""
    state = [str(path) for path in lorentz.session.state_dir().rglob(f"*{bundle.id}*")]
    groups = [str(path) for path in CGROUPS.glob(f"**/{bundle.id}")]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if bundle.id in line]
    return state + groups + mounts


def test_a_container_is_created_started_killed_and_deleted():
    """created, running, stopped; the program begins with start and not before."""
    with Bundle(["sh", "-c", "echo begun; sleep 1000000"], rate="1000") as bundle:
        bundle.create("--pid-file", "pid")
        time.sleep(0.2)
        assert bundle.printed() == ""
        assert bundle.status() == "created"
        assert int((bundle.folder / "pid").read_text()) == bundle.pid()
        bundle.ok("start", bundle.id)
        assert bundle.status() == "running"
        assert bundle.time()["rate"] == "1000"
        bundle.ok("kill", bundle.id, "KILL")
        bundle.wait_until("stopped")
        bundle.ok("delete", bundle.id)
        wait(lambda: not traces(bundle), f"left: {traces(bundle)}")
        assert "does not exist" in bundle.refused("state", bundle.id)


def test_the_state_is_that_of_the_specification():
    with Bundle(["sleep", "100"], rate="2") as bundle:
        bundle.start()
        state = json.loads(bundle.ok("state", bundle.id))
        assert state["id"] == bundle.id
        assert Path(state["bundle"]) == bundle.folder
        assert state["annotations"] == {"lorentz.rate": "2"}
        assert Path(f"/proc/{state['pid']}").exists()
        listed = json.loads(bundle.ok("list", "--format", "json"))
        assert [one["id"] for one in listed] == [bundle.id]
        assert bundle.ok("list", "--quiet") == f"{bundle.id}\n"
        assert json.loads(bundle.ok("ps", "--format", "json", bundle.id)) == [state["pid"]]
        assert str(state["pid"]) in bundle.ok("ps", bundle.id)


def test_verbs_in_the_wrong_state_are_refused():
    """One line each, status 1, and nothing has changed."""
    with Bundle(["sleep", "100"]) as bundle:
        assert "does not exist" in bundle.refused("start", bundle.id)
        bundle.ok("create", bundle.id)
        assert "it is created" in bundle.refused("exec", bundle.id, "true")
        assert "it is created" in bundle.refused("pause", bundle.id)
        assert "it is created" in bundle.refused("resume", bundle.id)
        assert "already exists" in bundle.refused("create", bundle.id)
        bundle.ok("start", bundle.id)
        assert "it is running" in bundle.refused("start", bundle.id)
        assert "it is running" in bundle.refused("resume", bundle.id)
        assert "it is running and not stopped" in bundle.refused("delete", bundle.id)
        assert "expected a number or a name" in bundle.refused("kill", bundle.id, "NOSUCH")
        bundle.ok("kill", bundle.id, "9")
        bundle.wait_until("stopped")
        for verb in (["start"], ["pause"], ["resume"]):
            assert "it is stopped" in bundle.refused(*verb, bundle.id)
        assert "it is stopped" in bundle.refused("exec", bundle.id, "true")
        assert "it is stopped and not running" in bundle.refused("kill", bundle.id, "TERM")
        bundle.ok("delete", bundle.id)
        bundle.ok("delete", "--force", bundle.id)
        assert "does not exist" in bundle.refused("delete", bundle.id)


@pytest.mark.parametrize("words, status", [(["true"], 0), (["sh", "-c", "exit 7"], 7)])
def test_run_ends_with_the_programs_status(words, status):
    with Bundle(words, rate="3") as bundle:
        assert bundle.call("run", bundle.id).returncode == status
        assert not traces(bundle)


def test_signals_for_run_reach_the_program():
    script = "trap 'exit 5' TERM; echo up; while :; do usleep 10000; done"
    with (
        Bundle(["sh", "-c", script]) as bundle,
        subprocess.Popen(
            [runtime(), "run", bundle.id],
            cwd=bundle.folder,
            env=lorentz.session.environment(),
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 5


def test_a_container_that_is_killed_from_outside_leaves_nothing_but_its_state():
    with Bundle(["sleep", "100"], rate="5") as bundle:
        bundle.start()
        os.kill(bundle.pid(), signal.SIGKILL)
        bundle.wait_until("stopped")
        lorentz.wait_until_gone(bundle.id)
        bundle.ok("delete", bundle.id)
        assert not traces(bundle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The block has the lock of a directory."""
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_a_delete_and_pauses_of_others_do_not_wait_for_each_other(tmp_path):
    """A delete can take 5 s."""
    root = tmp_path / "runtime"
    with Bundle(["sleep", "100"], rate="2") as bundle, Bundle(["sleep", "100"], rate="2") as other:
        for one in (bundle, other):
            one.ok("--root", str(root), "run", "--detach", one.id)
        with locked(root):
            bundle.ok("--root", str(root), "delete", "--force", bundle.id)
        with locked(root / other.id):
            other.ok("--root", str(root), "pause", other.id)
        other.ok("--root", str(root), "delete", "--force", other.id)
    assert not root.exists()


def test_an_id_can_be_used_again_at_once():
    with Bundle(["date", "+%Y"], at="2038-01-19") as bundle:
        for _ in range(5):
            bundle.start()
            bundle.wait_until("stopped")
            assert bundle.printed() == "2038\n"
            bundle.ok("delete", bundle.id)


def test_limits_are_updated():
    with Bundle(["sleep", "100"]) as bundle:
        bundle.start()
        bundle.ok("update", "--memory", str(64 << 20), bundle.id)
        group = Path(f"/proc/{bundle.pid()}/cgroup").read_text()
        memory = [line.split(":", 2)[2] for line in group.splitlines() if ":memory:" in line]
        limits = (
            [CGROUPS / "memory" / memory[0].lstrip("/") / "memory.limit_in_bytes"]
            if memory
            else list(CGROUPS.glob(f"**/{bundle.id}/memory.max"))
        )
        assert [int(limit.read_text()) for limit in limits] == [64 << 20]


def test_the_runtimes_features_are_those_of_the_specification():
    with Bundle(["true"]) as bundle:
        printed = bundle.ok("features")
        assert bundle.ok("features") == printed
    features = json.loads(printed)
    assert (features["ociVersionMin"], features["ociVersionMax"].split(".")[0]) == ("1.0.0", "1")
    assert {"prestart", "createContainer", "poststop"} < set(features["hooks"])
    assert {"ro", "rro", "rbind", "nosuid", "tmpcopyup"} < set(features["mountOptions"])
    linux = features["linux"]
    assert {"mount", "time", "user"} < set(linux["namespaces"])
    assert linux["capabilities"][0] == "CAP_CHOWN" and "CAP_SYS_ADMIN" in linux["capabilities"]
    assert linux["cgroup"] == {
        **dict.fromkeys(("v1", "v2", "systemd", "systemdUser"), True),
        "rdma": False,
    }
    for part, enabled in (("apparmor", True), ("selinux", False), ("netDevices", True)):
        assert linux[part] == {"enabled": enabled}
    assert "SCMP_ARCH_X86_64" in linux["seccomp"]["archs"]
    assert features["annotations"]["io.lorentz.annotations"] == "lorentz."
    assert features["annotations"]["org.opencontainers.runc.checkpoint.enabled"] == "true"


def test_features_name_the_actions_and_mount_options_that_work():
    """One of each list is tried: a mount that is read-only with all below it, and an action that
    the features leave out."""
    read_only = {
        "destination": "/tmp",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["rro", "noexec"],
    }
    with Bundle(["cat", "/proc/self/mountinfo"]) as bundle:
        features = json.loads(bundle.ok("features"))
        assert set(read_only["options"]) < set(features["mountOptions"])
        bundle.config["mounts"] = [*bundle.config["mounts"], read_only]
        bundle.write()
        mounts = [line.split() for line in bundle.run().splitlines()]
        options = next(words[5] for words in mounts if words[4] == "/tmp").split(",")
        assert {"ro", "noexec"} < set(options)
    actions = features["linux"]["seccomp"]["actions"]
    assert "SCMP_ACT_ERRNO" in actions and "SCMP_ACT_NOTIFY" not in actions
    with Bundle(["true"]) as bundle:
        rule = {"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}
        profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}
        bundle.config["linux"]["seccomp"] = profile
        bundle.write()
        assert "SCMP_ACT_NOTIFY" in bundle.refused("run", bundle.id)


def test_a_configuration_to_begin_with_is_written(tmp_path):
    with Bundle(["true"]) as bundle:
        assert bundle.ok("--version").startswith("lorentz-runtime ")
        bundle.ok("spec", "--bundle", str(tmp_path))
        assert json.loads((tmp_path / "config.json").read_text())["process"]["args"] == ["sh"]
        assert "is there already" in bundle.refused("spec", "--bundle", str(tmp_path))


def test_a_verb_that_is_not_there_is_refused_as_runtimes_do():
    """Engines read the refusal in the log. The verb's arguments do not matter."""
    with Bundle(["sleep", "1000"]) as bundle:
        bundle.start()
        words = ("--log", "log", "--log-format", "json", "events", "--stats", bundle.id)
        refusal = bundle.refused(*words)
        assert refusal.startswith("events is not supported: ")
        entry = json.loads((bundle.folder / "log").read_text())
        assert (entry["level"], entry["msg"]) == ("error", refusal)
        assert bundle.status() == "running"


def kernels_figures() -> dict[str, float]:
    """Returns the kernel's figures that grow if a container is not freed: control groups (also
    those removed but not freed), namespaces, mounts, and memory in KiB."""
    found = {}
    for line in Path("/proc/cgroups").read_text().splitlines()[1:]:
        name, _, count, _ = line.split()
        if name in ("memory", "pids"):
            found[f"control groups, {name}"] = float(count)
    for line in Path("/proc/slabinfo").read_text().splitlines()[2:]:
        name, count, *_ = line.split()
        if name in ("net_namespace", "mnt_cache"):
            found[name] = float(count)
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, size = line.split()[0].rstrip(":"), line.split()[1]
        if name in ("SUnreclaim", "KernelStack", "Percpu"):
            found["memory"] = found.get("memory", 0) + float(size)
    return found


def growth(figures: list[dict[str, float]], part: int) -> dict[str, float]:
    """Returns the growth of a figure per sample, from the first `part` of the samples to the last,
    by the medians: the kernel frees some memory later."""
    between = len(figures) - part
    return {
        name: (
            median(one[name] for one in figures[-part:])
            - median(one[name] for one in figures[:part])
        )
        / between
        for name in figures[0]
    }


#: An eighth of what a namespace or two control groups take.
KEPT_KIB = 32


@pytest.mark.alone
def test_two_hundred_containers_leave_nothing_behind():
    """Start, enter and remove each. The monitors end, no control group, file or mount stays, and
    the kernel keeps nothing of them."""
    figures = []
    with Bundle(["sleep", "100000"], rate="60") as bundle:
        for number in range(200):
            bundle.start()
            if number % 20 == 0:
                bundle.exec("true")
            bundle.ok("delete", "--force", bundle.id)
            figures.append(kernels_figures())
        assert not traces(bundle)
        assert not list(lorentz.session.state_dir().glob(f"{bundle.id}*"))
        # The last monitor ends after its container is gone.
        deadline = time.monotonic() + 10
        while processes.tagged(bundle.tag):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    grown = growth(figures, 50)
    assert grown.pop("memory") < KEPT_KIB
    # Each that stays would add at least one.
    assert all(count < 0.75 for count in grown.values()), grown


def test_a_monitor_does_not_grow_with_those_who_enter():
    """A monitor lives as long as its container: its memory after 200 execs is that after the first
    ones."""
    with Bundle(["sleep", "100000"], rate="60") as bundle:
        bundle.start()
        monitor = bundle.time()["monitors"][0]["pid"]
        sizes = []
        for _ in range(200):
            bundle.exec("true")
            text = Path(f"/proc/{monitor}/smaps_rollup").read_text()
            private = re.search(r"Private_Dirty: +(\d+)", text)
            files = len(list(Path(f"/proc/{monitor}/fd").iterdir()))
            sizes.append({"private KiB": float(private[1]), "descriptors": float(files)})
    grown = growth(sizes, 50)
    assert grown["private KiB"] < 0.5
    assert grown["descriptors"] == 0
