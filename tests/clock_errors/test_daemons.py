"""Debian's NTP daemons, unmodified, discipline a container whose clock errs, beside one whose clock
is the truth."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.clock_errors import SERVER, TimeServer, daemons, error
from framework.networks import Lab

MILLI = 1_000_000

pytestmark = pytest.mark.patient

Words = list[str | Path]


def chrony(folder: Path) -> Words:
    config = folder / "chrony.conf"
    config.write_text(
        f"server {SERVER} minpoll 0 maxpoll 2 iburst\nport 0\ncmdport 0\n"
        f"pidfile {folder}/pid\nmakestep 0.05 3\nrtcsync\n"
    )
    return [daemons() / "chrony/usr/sbin/chronyd", "-d", "-f", config, "-u", "root"]


def ntpsec(folder: Path) -> Words:
    config = folder / "ntp.conf"
    config.write_text(
        f"server {SERVER} iburst minpoll 3 maxpoll 4\ndriftfile {folder}/drift\n"
        "restrict default\ntos minclock 1 minsane 1\n"
    )
    return [daemons() / "ntpsec/usr/sbin/ntpd", "-n", "-g", "-c", config]


def openntpd(folder: Path) -> Words:
    """Its user and its directories are in a mount namespace."""
    config, users, groups = folder / "ntpd.conf", folder / "passwd", folder / "group"
    config.write_text(f"server {SERVER}\n")
    users.write_text(
        Path("/etc/passwd").read_text() + "ntpd:x:997:997::/var/lib/openntpd:/usr/sbin/nologin\n"
    )
    groups.write_text(Path("/etc/group").read_text() + "ntpd:x:997:\n")
    program = daemons() / "openntpd/usr/sbin/ntpd"
    return [
        *("unshare", "--mount", "sh", "-ec"),
        f"mount --bind {users} /etc/passwd; mount --bind {groups} /etc/group; "
        "mount -t tmpfs none /var/lib; mkdir -p /var/lib/openntpd/run /var/lib/openntpd/db; "
        f"exec {program} -d -s -f {shlex.quote(str(config))}",
    ]


def timesyncd(folder: Path) -> Words:
    program = daemons() / "systemd-timesyncd/lib/systemd/systemd-timesyncd"
    config = folder / "timesyncd.conf"
    config.write_text(f"[Time]\nNTP={SERVER}\nPollIntervalMinSec=16\nPollIntervalMaxSec=32\n")
    return [
        *("unshare", "--mount", "sh", "-ec"),
        "mount -t tmpfs none /run; mkdir -p /run/systemd/timesyncd.conf.d; "
        f"cp {config} /run/systemd/timesyncd.conf.d/test.conf; exec {program}",
    ]


def serve(pair: TimeServer, folder: Path) -> None:
    config = folder / "server.conf"
    config.write_text(f"local stratum 1\nallow\ncmdport 0\npidfile {folder}/server.pid\n")
    pair.serve(daemons() / "chrony/usr/sbin/chronyd", "-d", "-x", "-f", config, "-u", "root")


@pytest.mark.parametrize("daemon", [chrony, ntpsec, timesyncd])
def test_a_daemon_mends_its_containers_clock(daemon: Callable[[Path], Words], tmp_path):
    """From 100 ms off, at 100 ppm, to 5 ms; a step of the network's delay is 20 times as long."""
    needs.root()
    with TimeServer("20") as pair:
        serve(pair, tmp_path)
        client = pair.err("offset=100ms,drift=+100ppm", *daemon(tmp_path))
        deadline = time.monotonic() + 60
        while abs((found := error(client.name))["offset_ns"]) > 5 * MILLI:
            assert time.monotonic() < deadline, (found, client.stderr[-2000:])
            time.sleep(0.2)
        assert found["drift_ppm"] == 100
        # The server's clock is another container's.
        assert error(pair.server.name)["offset_ns"] == 0
        assert lorentz.json_of("time", pair.server.name)["rate"] == "20"


def test_openntpd_mends_a_nodes_clock(tmp_path):
    """From 100 ms off, at 100 ppm: to 5 ms, and never beyond 40 ms later: it lets the clock go its
    way for minutes, and then slews. In rounds it measures the delays of the links alone."""
    needs.root()
    config = tmp_path / "server.conf"
    config.write_text(f"local stratum 1\nallow\ncmdport 0\npidfile {tmp_path}/server.pid\n")
    server = [daemons() / "chrony/usr/sbin/chronyd", "-d", "-x", "-f", config, "-u", "root"]
    *client, script = openntpd(tmp_path)
    # Refused once, it asks again after minutes.
    commands = {"a": [*client, f"sleep 5; {script}"], "b": server}
    nodes = {name: {"command": [str(word) for word in words]} for name, words in commands.items()}
    nodes["a"]["clock-error"] = "offset=100ms,drift=+100ppm"
    link = {
        "endpoints": ["a:eth0", "b:eth0"],
        "ipv4": ["10.77.0.2/24", f"{SERVER}/24"],
        "delay": "1ms",
    }
    head = "rounds: true\ncompute: none\nrate: 100\nat: 2027-01-01T00:00:00Z\n"
    topology = json.dumps({"nodes": nodes, "links": [link]})
    with Lab(f"{head}topology: {topology}\n") as lab:
        words = ("--every", "1s", "--for", "1800s", "--json")
        lines = lorentz.ok("clock", "log", lab.container("a"), *words).splitlines()
    offsets = [abs(json.loads(line)["offset_ns"]) for line in lines]
    first = next(at for at, offset in enumerate(offsets) if offset <= 5 * MILLI)
    assert first < 1_200 and max(offsets[first:]) < 40 * MILLI


def test_ptp4l_mends_its_containers_clock(tmp_path):
    """By software timestamps, to 1 ms."""
    needs.root()
    program = daemons() / "linuxptp/usr/sbin/ptp4l"
    ways = {"master": "free_running 1\npriority1 10", "slave": "slaveOnly 1"}
    lines = {}
    for name, way in ways.items():
        config = tmp_path / f"{name}.conf"
        config.write_text(
            f"[global]\ntime_stamping software\n{way}\nuds_address {tmp_path}/{name}\n"
        )
        lines[name] = [program, "-f", config, "-i", "eth0", "-m"]
    with TimeServer("10") as pair:
        pair.serve(*lines["master"])
        client = pair.err("offset=100ms,drift=+100ppm", *lines["slave"])
        deadline = time.monotonic() + 60
        while abs((found := error(client.name))["offset_ns"]) > MILLI:
            assert time.monotonic() < deadline, (found, client.stdout[-2000:])
            time.sleep(0.2)
        assert found["disciplined_ppm"] < -50


def test_chrony_keeps_within_the_bound_that_it_tells(tmp_path):
    needs.root()
    with TimeServer("4") as pair:
        serve(pair, tmp_path)
        client = pair.err("offset=1s,drift=-200ppm", *chrony(tmp_path))
        deadline = time.monotonic() + 60
        while not error(client.name)["within_bound"]:
            assert time.monotonic() < deadline, (error(client.name), client.stderr[-2000:])
            time.sleep(0.2)
        for line in lorentz.ok(
            "clock", "log", client.name, "--every", "1s", "--for", "40s", "--json"
        ).splitlines():
            look = json.loads(line)
            assert look["within_bound"] and look["synchronized"], look
        assert abs(error(client.name)["disciplined_ppm"] - 200) < 20
