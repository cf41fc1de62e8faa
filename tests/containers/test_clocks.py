"""Clocks of containers: their choice, the processes on them, and their changes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from framework import lorentz
from framework.containers import Bundle, wait
from framework.oracle import HostNoise

#: Prints the uptime ten times a second, by the container's clock.
TICKS = "while :; do echo $(cut -d' ' -f1 /proc/uptime); usleep 100000; done"
SLEEPER = ["sleep", "100000000"]


def uptime(text: str) -> float:
    return float(text.split()[0])


def test_a_container_has_the_date_and_the_rate_that_were_asked():
    script = "date +%s; sleep 100; date +%s"
    words = ["sh", "-c", script]
    with HostNoise() as noise, Bundle(words, at="2038-01-19T03:14:00Z", rate="100") as bundle:
        start = time.monotonic()
        first, last = map(int, bundle.run().split())
        took = time.monotonic() - start
    assert 0 <= first - 2147483640 < 60
    assert 100 <= last - first < 130 + 100 * noise.slack
    assert took < 30


def test_variables_of_the_environment_ask_for_the_same():
    variables = ["LORENTZ_OFFSET=-1d", "LORENTZ_RATE=50", "LORENTZ_SERVICE_PORT=80"]
    script = "date +%s; sleep 20; date +%s; echo $LORENTZ_SERVICE_PORT"
    with HostNoise() as noise, Bundle(["sh", "-c", script], env=variables) as bundle:
        now = time.time()
        start = time.monotonic()
        first, last, port = map(int, bundle.run().split())
        assert time.monotonic() - start < 15
    assert abs(first - (now - 86400)) < 200
    assert 20 <= last - first < 30 + 50 * noise.slack and port == 80


def test_nothing_asked_is_the_hosts_time_which_can_be_changed():
    with Bundle(SLEEPER) as bundle:
        bundle.start()
        assert abs(int(bundle.exec("date", "+%s")) - time.time()) < 5
        lorentz.ok("leap", bundle.id, "--by", "1d")
        assert abs(int(bundle.exec("date", "+%s")) - time.time() - 86400) < 5


def test_time_offsets_of_the_bundle_are_the_kernels_work():
    """A bundle's time namespace is the kernel's, without a shim; exec enters it."""
    with Bundle(SLEEPER) as bundle:
        bundle.config["linux"]["namespaces"].append({"type": "time"})
        bundle.config["linux"]["timeOffsets"] = {
            "monotonic": {"secs": 100000, "nanosecs": 5},
            "boottime": {"secs": 200000, "nanosecs": 7},
        }
        bundle.write()
        bundle.start()
        assert bundle.time()["mechanism"] == "time-namespace"
        host = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert abs(uptime(bundle.exec("cat", "/proc/uptime")) - host - 200000) < 30
        offsets = bundle.exec("cat", "/proc/self/timens_offsets").split()
        assert offsets == ["monotonic", "100000", "5", "boottime", "200000", "7"]
        bundle.ok("kill", bundle.id, "KILL")
        bundle.wait_until("stopped")
        lorentz.wait_until_gone(bundle.id)


def test_offsets_that_annotations_ask_for_hold_for_who_enters_later():
    with Bundle(SLEEPER, monotonic="100000s", boottime="200000s") as bundle:
        bundle.start()
        assert bundle.time()["mechanism"] == "time-namespace"
        host = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert abs(uptime(bundle.exec("cat", "/proc/uptime")) - host - 200000) < 30
        assert abs(uptime(lorentz.ok("exec", bundle.id, "cat", "/proc/uptime")) - host) > 199000


def test_time_offsets_and_a_rate_are_one_clock():
    with Bundle(SLEEPER, rate="1000") as bundle:
        bundle.config["linux"]["namespaces"].append({"type": "time"})
        bundle.config["linux"]["timeOffsets"] = {"boottime": {"secs": 1000000}}
        bundle.write()
        bundle.start()
        assert bundle.time()["mechanism"] == "shim"
        host = time.clock_gettime(time.CLOCK_BOOTTIME)
        ahead = uptime(bundle.exec("cat", "/proc/uptime")) - host
        assert 1000000 <= ahead < 1000000 + 30000


def test_who_enters_later_is_on_the_clock_from_the_first_instruction():
    with Bundle(SLEEPER, at="2038-01-19", rate="20") as bundle:
        bundle.start()
        assert bundle.exec("date", "+%Y") == "2038\n"
        start = time.monotonic()
        with HostNoise() as noise:
            first, last = bundle.exec("sh", "-c", "date +%s; sleep 40; date +%s").split()
        assert time.monotonic() - start < 20
        assert 40 <= int(last) - int(first) < 60 + 20 * noise.slack
        assert bundle.call("exec", bundle.id, "sh", "-c", "exit 9").returncode == 9
        assert "not found in $PATH" in bundle.refused("exec", bundle.id, "nosuch")
        assert lorentz.ok("exec", bundle.id, "date", "+%Y") == "2038\n"
        done = lorentz.call("exec", bundle.id, "nosuch")
        assert (done.returncode, len(done.stderr.splitlines())) == (127, 1)


def test_a_started_program_is_on_its_clock():
    """Though its monitor, which puts the clock there, comes late."""
    with Bundle(SLEEPER, rate="2") as bundle:
        bundle.create()
        monitor = lorentz.shown(bundle.id)["monitors"][0]["pid"]
        os.kill(monitor, signal.SIGSTOP)
        start = threading.Thread(target=bundle.ok, args=("start", bundle.id))
        start.start()
        start.join(timeout=0.5)
        assert start.is_alive(), "start waits for the program"
        os.kill(monitor, signal.SIGCONT)
        start.join(timeout=20)
        assert lorentz.shown(bundle.id)["pids"] == [bundle.pid()]


def test_every_verb_of_lorentz_finds_it_by_name_and_by_id():
    name = f"named-{time.monotonic_ns()}"
    with Bundle(SLEEPER, rate="2", name=name) as bundle:
        bundle.start()
        assert lorentz.shown(name)["pids"] == [bundle.pid()]
        for word in (name, bundle.id, str(bundle.pid())):
            assert lorentz.json_of("time", word)["name"] == name
        lorentz.ok("dilate", bundle.id, "--rate", "7")
        assert lorentz.json_of("time", name)["rate"] == "7"
        lorentz.ok("freeze", name)
        assert bundle.frozen()
        lorentz.ok("unfreeze", bundle.id)
        before = lorentz.json_of("time", name)["wall"]
        lorentz.ok("leap", name, "--by", "1y")
        assert lorentz.json_of("time", name)["wall"] > before
        lorentz.ok("step", name, "--by=-300d")


def test_changes_reach_waits_in_its_process_namespace():
    """A leap ends the sleep of the container's first process, which has process id 1 inside."""
    with Bundle(["sh", "-c", "sleep 1000000; echo over"]) as bundle:
        bundle.start()
        wait(lambda: bundle.time()["waits"] == 1, "no wait is known")
        lorentz.ok("leap", bundle.id, "--by", "1000001s")
        bundle.wait_until("stopped")
        assert bundle.printed() == "over\n"


def test_a_paused_container_perceives_no_gap():
    script = TICKS.replace("cut -d' ' -f1", "cat")
    with HostNoise() as noise, Bundle(["sh", "-c", script]) as bundle:
        bundle.start()
        wait(lambda: bundle.printed().count("\n") > 3, "no ticks")
        bundle.ok("pause", bundle.id)
        assert bundle.status() == "paused"
        assert bundle.frozen()
        ticks = bundle.printed().count("\n")
        time.sleep(2)
        assert bundle.printed().count("\n") == ticks
        assert "it is paused" in bundle.refused("exec", bundle.id, "true")
        bundle.ok("resume", bundle.id)
        assert bundle.status() == "running"
        wait(lambda: bundle.printed().count("\n") > ticks + 3, "no ticks after the pause")
        times = [uptime(line) for line in bundle.printed().splitlines()]
    steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert max(steps) < 1.5 + noise.worst, steps


def test_a_clock_that_was_frozen_by_hand_stays_so_over_a_pause():
    with Bundle(SLEEPER) as bundle:
        bundle.start()
        lorentz.ok("freeze", bundle.id)
        bundle.ok("pause", bundle.id)
        bundle.ok("resume", bundle.id)
        assert bundle.frozen()
        lorentz.ok("unfreeze", bundle.id)
        assert not bundle.frozen()


def test_a_paused_container_can_be_killed():
    with Bundle(SLEEPER) as bundle:
        bundle.start()
        bundle.ok("pause", bundle.id)
        bundle.ok("kill", bundle.id, "KILL")
        bundle.wait_until("stopped")
        bundle.ok("delete", bundle.id)


def test_a_frozen_container_begins_when_time_does():
    with Bundle(["sh", "-c", "echo begun; sleep 100000"], frozen="true") as bundle:
        bundle.start()
        time.sleep(1)
        assert bundle.printed() == ""
        lorentz.ok("unfreeze", bundle.id)
        wait(lambda: bundle.printed() == "begun\n", "has not begun")


def test_idle_time_is_skipped():
    """Ten days of sleep, in a process namespace of its own, are over at once."""
    with Bundle(["sh", "-c", "date +%s; sleep 864000; date +%s"], skip_idle="on") as bundle:
        start = time.monotonic()
        first, last = map(int, bundle.run().split())
        assert time.monotonic() - start < 20
    assert 864000 <= last - first < 864100


def test_a_container_whose_monitor_is_dead_runs_on():
    """Its clock can be changed, programs can enter, it can be adopted, and removed."""
    with Bundle(SLEEPER, rate="2") as bundle:
        bundle.start()
        os.kill(lorentz.shown(bundle.id)["monitors"][0]["pid"], signal.SIGKILL)
        wait(lambda: not lorentz.shown(bundle.id)["monitor_alive"], "the monitor lives")
        lorentz.ok("dilate", bundle.id, "--rate", "3")
        assert bundle.status() == "running"
        bundle.exec("true")
        lorentz.ok("adopt", "--no-new-privs", bundle.id)
        assert lorentz.shown(bundle.id)["monitor_alive"]
        bundle.ok("delete", "--force", bundle.id)
        assert not lorentz.shown(bundle.id)


def test_containers_share_a_clock():
    """By lorentz.clock; the clock of two goes on until both are paused."""
    with Bundle(SLEEPER, rate="3", at="2038-01-19") as first:
        first.start()
        with Bundle(SLEEPER, clock=first.id) as second:
            second.start()
            assert second.exec("date", "+%Y") == "2038\n"
            lorentz.ok("dilate", second.id, "--rate", "9")
            assert first.time()["rate"] == "9"
            first.ok("pause", first.id)
            assert not second.frozen()
            second.ok("pause", second.id)
            assert second.frozen()
            first.ok("resume", first.id)
            assert not second.frozen()
            assert second.status() == "paused"
            second.ok("resume", second.id)
            first.ok("delete", "--force", first.id)
            assert second.exec("date", "+%Y") == "2038\n"


@pytest.mark.parametrize("key", ["io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"])
def test_containers_of_a_pod_that_ask_for_the_same_share_a_clock(key):
    with Bundle(SLEEPER, rate="3") as first, Bundle(SLEEPER, rate="3") as second:
        for bundle in (first, second):
            bundle.config["annotations"][key] = "pod-1"
            bundle.write()
            bundle.start()
        with Bundle(SLEEPER, rate="4") as third:
            third.config["annotations"][key] = "pod-1"
            third.write()
            third.start()
            lorentz.ok("dilate", first.id, "--rate", "8")
            assert [one.time()["rate"] for one in (first, second, third)] == ["8", "8", "4"]
