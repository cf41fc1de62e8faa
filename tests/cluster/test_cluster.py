"""Clocks that several hosts share (`lorentz cluster`): etcd of Debian, and hosts that are time
namespaces."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable

import pytest
from framework import lorentz, needs
from framework.cluster import Etcd, Host, difference, free_ports
from framework.containers import Bundle
from framework.running import Running

pytestmark = pytest.mark.patient

#: Largest difference of two virtual clocks by the same hardware clock, ns.
SAME = 100

#: Reads clocks without a pause, and says when one has gone back.
WATCHES = """
import sys, time
clocks = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
last = [time.clock_gettime_ns(clock) for clock in clocks]
print('{"ev": "ready"}', flush=True)
end = time.monotonic_ns() + 10**12
while last[0] < end:
    now = [time.clock_gettime_ns(clock) for clock in clocks]
    if any(new < old for new, old in zip(now, last)):
        print('{"ev": "back"}', flush=True)
    last = now
"""


@pytest.fixture(scope="module", autouse=True)
def _root():
    needs.root()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    with Etcd(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def clock(etcd, request):
    """A clock of this test's own, at rate 10 in 2038."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    etcd.ok("create", name, "--at", "2038-01-19T03:14:00Z", "--rate", "10")
    yield name
    etcd.call("rm", name)


def set_error(folder, host: Host, nanos: int) -> None:
    (folder / f"error-{host.name}").write_text(f"{nanos}\n")


def error_of(folder, host: Host, nanos: int) -> tuple[str, str]:
    """The option by which the agent's host has an error."""
    set_error(folder, host, nanos)
    return ("--test-offset", str(folder / f"error-{host.name}"))


def wait_for_both(etcd: Etcd, clock: str, **wanted: object) -> None:
    for name in ("a", "b"):
        etcd.wait_for_host(clock, name, **wanted)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def watcher(host: Host, clock: str) -> Running:
    return host.program(clock, "python3", "-c", WATCHES)


def test_two_hosts_show_one_time_through_every_change(etcd, hosts, clock):
    """At the same nanosecond, although their CLOCK_MONOTONIC differ by 100,000 s; never back."""
    a, b = hosts
    with a.agent(etcd), b.agent(etcd), watcher(a, clock) as one, watcher(b, clock) as two:
        for program in (one, two):
            program.line(ev="ready")
        assert abs(difference(a, b, clock, 10)) <= SAME
        for rate in ("1/3", "1000", "1", "7"):
            change = etcd.change("dilate", clock, "--rate", rate, "--lead", "300ms")
            wait_for_both(etcd, clock, change=change["change"], late_ns=0, state="follows")
            time.sleep(0.4)
            top, _, bottom = rate.partition("/")
            assert abs(difference(a, b, clock, int(top) / int(bottom or 1))) <= SAME
        before = a.point(clock)
        etcd.ok("leap", clock, "--by", "1h", "--lead", "300ms")
        time.sleep(0.5)
        real, virtual = a.point(clock)
        assert abs(virtual - before[1] - 7 * (real - before[0]) - 3600 * 10**9) <= SAME
        assert abs(difference(a, b, clock, 7)) <= SAME
        assert not one.lines(ev="back") and not two.lines(ev="back")


def test_programs_of_all_hosts_are_at_the_clocks_date(etcd, hosts, clock):
    a, b = hosts
    with a.agent(etcd), b.agent(etcd):
        for host in hosts:
            with host.program(clock, "date", "-u", "+%Y-%m-%d") as program:
                assert program.succeed().stdout == "2038-01-19\n"
        etcd.ok("step", clock, "--by", "365d", "--lead", "100ms")
        time.sleep(0.3)
        for host in hosts:
            assert host.clock(clock)["wall"].startswith("2039-01-19")


def test_a_container_of_an_oci_engine_asks_by_an_annotation(etcd, clock, tmp_path):
    host = Host(tmp_path, "a", 0, state=lorentz.session.state_dir())
    with host.agent(etcd) as agent, Bundle(["date", "+%Y"], clock=f"cluster/{clock}") as bundle:
        assert bundle.run() == "2038\n"
        # It leaves its container.
        assert agent.finish_by(signal.SIGTERM) == 0


def test_a_freeze_is_exact_whatever_the_hosts_clocks_show(etcd, hosts, clock, tmp_path):
    """With errors of 10 ms all stand at one nanosecond, and go on from there."""
    a, b = hosts
    fast, slow = error_of(tmp_path, a, 10_000_000), error_of(tmp_path, b, -10_000_000)
    with a.agent(etcd, *fast), b.agent(etcd, *slow):
        wait_for_both(etcd, clock, change=1)
        for _ in range(3):
            change = etcd.change("freeze", clock, "--lead", "500ms")
            wait_for_both(etcd, clock, change=change["change"], late_ns=0)
            time.sleep(0.6)
            stands = etcd.status(clock)
            assert stands["frozen"]
            assert [host.point(clock)[1] for host in hosts] == 2 * [stands["virtual_ns"]]
            change = etcd.change("unfreeze", clock, "--lead", "300ms")
            wait_for_both(etcd, clock, change=change["change"], late_ns=0)
            time.sleep(0.4)
            # 20 ms of error, at rate 10.
            assert abs(difference(a, b, clock, 10) + 200_000_000) <= SAME


def test_the_told_bound_holds_for_an_error_that_grows(etcd, hosts, clock, tmp_path):
    a, b = hosts
    error = (*error_of(tmp_path, b, 3_000_000), "--test-drift", "20", "--error-bound", "4ms")
    begun = time.monotonic()
    with a.agent(etcd, "--error-bound", "0s"), b.agent(etcd, *error):
        wait_for_both(etcd, clock, change=1)
        for _ in range(3):
            time.sleep(1)
            off = difference(a, b, clock, 10)
            grown = 20_000 * (time.monotonic() - begun)
            assert 10 * 3_000_000 - SAME <= off <= 10 * (3_000_000 + grown) + SAME
            bounds = [host["error_bound_ns"] for host in etcd.hosts(clock).values()]
            assert abs(off) <= sum(bounds), bounds


def test_a_step_of_a_hosts_wall_clock_is_slewed(etcd, hosts, clock, tmp_path):
    """By 500 ppm, forward and back, and no clock goes back."""
    a, b = hosts
    with a.agent(etcd), b.agent(etcd, *error_of(tmp_path, b, 0)), watcher(b, clock) as program:
        program.line(ev="ready")
        for step in (1_000_000, -1_000_000):
            set_error(tmp_path, b, step)
            etcd.wait_for_host(clock, "b", state="slews")
            before = b.point(clock)
            time.sleep(0.3)
            real, virtual = b.point(clock)
            rate = (virtual - before[1]) / (real - before[0])
            sign = 1 if step > 0 else -1
            assert rate == pytest.approx(10 * (1 + sign * 0.0005), abs=1e-6)
            etcd.wait_for_host(clock, "b", state="follows")
            assert abs(difference(a, b, clock, 10) - 10 * step) <= SAME
        assert not program.lines(ev="back")


def test_a_host_that_joins_late_is_on_the_line(etcd, hosts, clock):
    a, b = hosts
    with a.agent(etcd):
        for words in (("dilate", clock, "--rate", "3"), ("freeze", clock)):
            change = etcd.change(*words, "--lead", "500ms")
            etcd.wait_for_host(clock, "a", change=change["change"], late_ns=0)
        with b.agent(etcd):
            etcd.wait_for_host(clock, "b", change=3, late_ns=0)
            until(lambda: etcd.status(clock)["frozen"])
            assert a.point(clock)[1] == b.point(clock)[1]
            etcd.ok("unfreeze", clock, "--lead", "100ms")
            time.sleep(0.5)
            assert abs(difference(a, b, clock, 3)) <= SAME


def test_programs_go_on_without_their_agent_and_a_new_one_takes_over(etcd, hosts, clock):
    """A change that came meanwhile is taken over late, and the host says how late."""
    a, b = hosts
    with a.agent(etcd), b.agent(etcd) as killed, watcher(b, clock) as program:
        program.line(ev="ready")
        killed.signal(signal.SIGKILL)
        killed.finish()
        before = b.point(clock)
        etcd.ok("dilate", clock, "--rate", "20", "--lead", "0s")
        real, virtual = b.point(clock)
        assert abs(virtual - before[1] - 10 * (real - before[0])) <= SAME
        with b.agent(etcd):
            etcd.wait_for_host(clock, "b", change=2, state="follows")
            assert abs(difference(a, b, clock, 20)) <= SAME
        # This agent ended by SIGTERM; the program and its clock stay.
        before = b.point(clock)
        time.sleep(0.2)
        real, virtual = b.point(clock)
        assert abs(virtual - before[1] - 20 * (real - before[0])) <= SAME
        assert not program.lines(ev="back")


def test_an_agent_that_was_stopped_says_how_late_it_is(etcd, hosts, clock):
    """In the store, until its next change; the clock goes forward onto the line."""
    a, b = hosts
    with a.agent(etcd), b.agent(etcd) as stopped, watcher(b, clock) as program:
        program.line(ev="ready")
        wait_for_both(etcd, clock, change=1)
        stopped.signal(signal.SIGSTOP)
        etcd.ok("dilate", clock, "--rate", "100", "--lead", "0s")
        time.sleep(1)
        stopped.signal(signal.SIGCONT)
        report = etcd.wait_for_host(clock, "b", change=2, state="follows")
        assert 1e9 <= report["late_ns"] < 5e9
        assert etcd.hosts(clock)["a"]["late_ns"] < 1e9
        assert abs(difference(a, b, clock, 100)) <= SAME
        # Slower by then: it stands until the others have come so far.
        stopped.signal(signal.SIGSTOP)
        etcd.ok("dilate", clock, "--rate", "1", "--lead", "0s")
        time.sleep(0.2)
        stopped.signal(signal.SIGCONT)
        etcd.wait_for_host(clock, "b", change=3, state="stands")
        change = etcd.change("leap", clock, "--by", "1h", "--lead", "300ms")
        wait_for_both(etcd, clock, change=change["change"], state="follows")
        time.sleep(0.4)
        assert abs(difference(a, b, clock, 1)) <= SAME
        assert not program.lines(ev="back")


def compact(etcd: Etcd) -> None:
    """Has etcd forget its past."""

    def ask(path: str, body: dict) -> dict:
        request = urllib.request.Request(
            f"http://{etcd.address}/v3/kv/{path}", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    revision = ask("range", {"key": "AA=="})["header"]["revision"]
    ask("compaction", {"revision": revision, "physical": True})


@pytest.mark.parametrize("way", ["ends", "stops"])
def test_clocks_go_on_without_the_store_and_follow_it_again(way, hosts, tmp_path):
    """Also where the store has forgotten what happened meanwhile."""
    a, b = hosts
    with Etcd(tmp_path) as store:
        store.ok("create", "lab", "--rate", "10")
        with a.agent(store), b.agent(store, "--lease", "2s", "--fence") as fenced:
            wait_for_both(store, "lab", change=1)
            again = store
            if way == "ends":
                store.end()
            else:
                store.signal(signal.SIGSTOP)
            deadline = time.monotonic() + 20
            before = b.point("lab")
            while (now := b.point("lab"))[1] != before[1]:
                assert time.monotonic() < deadline, "not fenced"
                time.sleep(0.1)
                before = now
            first = a.point("lab")
            time.sleep(0.2)
            real, virtual = a.point("lab")
            assert abs(virtual - first[1] - 10 * (real - first[0])) <= SAME
            if way == "ends":
                again = store.again().__enter__()
            else:
                store.signal(signal.SIGCONT)
            try:
                again.ok("leap", "lab", "--by", "1h", "--lead", "0s")
                compact(again)
                wait_for_both(again, "lab", change=2, state="follows")
                assert abs(difference(a, b, "lab", 10)) <= SAME
                change = again.change("dilate", "lab", "--rate", "2")
                wait_for_both(again, "lab", change=change["change"], late_ns=0)
            finally:
                again.end()
            assert "the store: " in fenced.stderr


def test_a_partition_by_the_network_is_a_store_that_does_not_answer(hosts, tmp_path):
    """Of a host whose link goes down the lease runs out: the others see that it is gone."""
    a, _ = hosts
    with Etcd(tmp_path) as store:
        store.ok("create", "lab")
        with a.agent(store, "--lease", "1s") as agent:
            store.wait_for_host("lab", "a", change=1)
            agent.signal(signal.SIGSTOP)
            until(lambda: not store.hosts("lab"))
            agent.signal(signal.SIGCONT)
            store.wait_for_host("lab", "a", change=1)


def test_commands_at_once_all_take_effect(etcd, hosts, clock):
    a, _ = hosts
    with a.agent(etcd):
        words = ("cluster", "leap", clock, "--by", "1h", "--lead", "0s", "--etcd", etcd.address)
        command = [*lorentz.session.command(), *words]
        env = lorentz.session.environment()
        calls = [subprocess.Popen(command, env=env) for _ in range(6)]
        assert [call.wait(timeout=30) for call in calls] == 6 * [0]
        assert etcd.status(clock)["change"] == 7
        etcd.wait_for_host(clock, "a", change=7)
        assert 6 <= etcd.status(clock)["virtual_ns"] / 3600e9 < 7
        assert 6 <= a.point(clock)[1] / 3600e9 < 7


def test_somebody_who_freezes_the_clock_of_one_host_is_told_of_and_left_alone(etcd, hosts, clock):
    a, _ = hosts
    with a.agent(etcd):
        etcd.wait_for_host(clock, "a", change=1)
        a.ok("freeze", f"cluster.{clock}")
        etcd.wait_for_host(clock, "a", state="held-here")
        first = a.point(clock)[1]
        etcd.ok("dilate", clock, "--rate", "20", "--lead", "0s")
        assert a.point(clock)[1] == first
        a.ok("unfreeze", f"cluster.{clock}")
        etcd.wait_for_host(clock, "a", state="follows", change=2)


def test_a_clock_that_is_removed_leaves_nothing_on_the_hosts(etcd, hosts, clock):
    a, _ = hosts
    with a.agent(etcd) as agent:
        etcd.wait_for_host(clock, "a", change=1)
        etcd.ok("rm", clock)
        until(lambda: not a.left())
        assert agent.finish_by(signal.SIGTERM) == 0


def test_tables_for_people(etcd, hosts, clock):
    a, b = hosts
    with a.agent(etcd, "--error-bound", "1ms"):
        etcd.wait_for_host(clock, "a", change=1)
        first, host = etcd.ok("status", clock).splitlines()
        assert first.startswith(f"{clock}  2038-01-19T0") and first.endswith(
            "Z  rate 10, running, change 1"
        )
        assert host == "  a  follows, error at most 10ms of virtual time"
        assert first.split("  ")[0] in etcd.ok("ls")
        etcd.ok("freeze", clock, "--lead", "0s")
        assert "rate 10, frozen, change 2" in etcd.ok("status", clock)


def refused(done: subprocess.CompletedProcess, line: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"lorentz-agent: {line}\n"


def test_wrong_input_is_one_line(etcd, hosts, clock):
    a, _ = hosts
    refused(
        etcd.call("create", clock),
        f"{clock}: there is such a clock; 'lorentz cluster rm {clock}' removes it",
    )
    none = "none: no such clock; expected one that 'lorentz cluster ls' shows"
    refused(etcd.call("status", "none"), none)
    refused(etcd.call("dilate", "none", "--rate", "2"), none)
    refused(etcd.call("rm", "none"), none)
    refused(
        etcd.call("leap", clock, "--by=-1s"),
        "--by -1s: time does not go back; expected 0 or more, or 'lorentz cluster step'",
    )
    refused(
        etcd.call("step", clock, "--by=-100y"),
        "the clock would leave the range of the kernel's clocks, 1970 to 2262",
    )
    done = lorentz.call("cluster", "ls", "--etcd", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("lorentz-agent: etcd at 127.0.0.1:1: ")
    assert len(done.stderr.splitlines()) == 1
    lorentz.refusal(
        a.run("run", "--clock", "cluster/none", "--", "true"),
        "--clock cluster/none: no agent on this host keeps this clock",
    )


@pytest.fixture
def certificates(tmp_path):
    """Variables of etcdctl: an authority, and a certificate and key for servers and clients."""
    openssl = needs.tool("openssl")
    names = {"CACERT": "ca.pem", "CERT": "host.pem", "KEY": "host.key"}
    paths = {name: str(tmp_path / file) for name, file in names.items()}
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    ca_key = str(tmp_path / "ca.key")
    calls = [
        ("req", "-x509", *new_key, "-keyout", ca_key, "-out", paths["CACERT"], "-subj", "/CN=ca"),
        (
            *("req", "-x509", *new_key, "-keyout", paths["KEY"], "-out", paths["CERT"]),
            *("-subj", "/CN=host", "-CA", paths["CACERT"], "-CAkey", ca_key),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"),
        ),
    ]
    for call in calls:
        done = subprocess.run([openssl, *call], capture_output=True, check=False, timeout=20)
        if done.returncode:
            needs.missing(f"openssl {call[0]}: {done.stderr.decode()}")
    return {f"ETCDCTL_{name}": path for name, path in paths.items()}


def test_etcd_by_certificates_of_both_sides(hosts, tmp_path, certificates):
    """As etcdctl takes them from its variables; without them the store refuses."""
    with Etcd(tmp_path, certificates=certificates) as store:
        store.ok("create", "lab", "--rate", "3")
        with hosts[0].agent(store):
            store.wait_for_host("lab", "a", change=1)
            assert hosts[0].clock("lab")["rate"] == "3"
        bare = lorentz.call("cluster", "ls", *store.options)
        assert bare.returncode == 1
        assert len(bare.stderr.splitlines()) == 1
        half = {**lorentz.session.environment(), "ETCDCTL_CERT": certificates["ETCDCTL_CERT"]}
        done = lorentz.call("cluster", "ls", *store.options, env=half)
        assert "expected both, or none" in done.stderr


def test_prometheus_reads_an_agent(etcd, hosts, clock):
    a, _ = hosts
    (port,) = free_ports(1)
    with a.agent(etcd, "--metrics", f"127.0.0.1:{port}"):
        etcd.wait_for_host(clock, "a", change=1)

        def read(page: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
                return answer.read().decode()

        assert read("healthz") == "ok\n"
        lines = read("metrics").splitlines()
        assert "lorentz_cluster_store_connected 1" in lines
        assert f'lorentz_cluster_change{{clock="{clock}"}} 1' in lines
        assert f'lorentz_cluster_state{{clock="{clock}",state="follows"}} 1' in lines
        # A port that is taken is one line.
        second = a.run("cluster", "serve", *etcd.options, "--metrics", f"127.0.0.1:{port}")
        assert second.returncode == 1
        assert "--metrics" in second.stderr
