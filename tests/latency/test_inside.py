"""Access of a container: its own packets, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time

import pytest
from framework import lorentz, needs
from framework.latency import REMOTE, TIMEOUT, Container, Network, Watch, check_pairs, number

SOCKET = "/run/lorentz/latency"
LINES = f"{SOCKET}.log"
STATISTICS = f"{SOCKET}.json"
LINE = re.compile(r"\[\d+\.\d{6}\] \((\d+)\) (egress|ingress): (\d+|lost|unread)$")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


@contextlib.contextmanager
def reading(container, *words):
    """A reader without rights inside, which has sent `words`; yields its process."""
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(('\\n'.join(sys.argv[2:] + ['sync']) + '\\n').encode())\n"
        "for line in s.makefile(): print(line, end='', flush=True)\n"
    )
    process = subprocess.Popen(
        container.enter(*NOBODY, "/usr/bin/python3", "-c", script, SOCKET, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)


def ready(process):
    before = []
    while (line := process.stdout.readline()) != "# sync\n":
        assert line, process.stderr.read()
        before.append(line)
    return before


def read(process, count):
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


@pytest.fixture(scope="module")
def network():
    needs.root()
    for tool in ("unshare", "nsenter", "setpriv"):
        needs.tool(tool)
    with Network() as made:
        made.serve("udp")
        yield made


def test_lines_as_maces_without_rights(network, inside):
    with Watch(network, verb="serve", targets=[inside.pid]), reading(inside) as reader:
        ready(reader)
        exchanges = network.probe("raw", count=10)
        lines = read(reader, 20)
    assert len(exchanges) == 10
    found = [LINE.match(line) for line in lines]
    assert all(found), lines
    egress = [int(one[1]) for one in found if one[2] == "egress" and one[3].isdigit()]
    assert len(egress) >= 9 and egress == sorted(egress)


def test_json_has_the_whole(network, inside):
    with Watch(network, verb="serve", targets=[inside.pid]), reading(inside, "json") as reader:
        ready(reader)
        exchanges = network.probe("udp", count=10)
        packets = [json.loads(line) for line in read(reader, 20)]
    packets = [packet for packet in packets if packet["outcome"] == "matched"]
    numbers = {number(packet) for packet in packets}
    check_pairs(packets, [exchange for exchange in exchanges if exchange["number"] in numbers])


def test_the_aggregate_and_orders(network, inside):
    with Watch(network, verb="serve", targets=[inside.pid]):
        network.probe("udp", count=10)
        with reading(inside, "aggregate", "reset", "aggregate", "off", "aggregate") as reader:
            known = [json.loads(line) for line in ready(reader)]
        with reading(inside, "nonsense", "on") as reader:
            assert ready(reader) == ["# expected json, text, on, off, reset, aggregate or sync\n"]
    assert [row["protocol"] for row in known[0]["rows"]] == ["udp", "udp"]
    assert [row["rows"] for row in known[1:]] == [[], []]
    assert [row["on"] for row in known] == [True, True, False]


AT_ONCE = ("dd", f"if={LINES}", "iflag=nonblock", "status=none")


def drained(container, how=AT_ONCE):
    """The lines that a program without rights takes out of the file."""
    return container.run(*NOBODY, *how).stdout.splitlines()


def drained_by_cat(container, count):
    """As `drained`, by cat, which waits for more after `count` lines."""
    cat = subprocess.Popen(
        container.enter(*NOBODY, "cat", LINES), stdout=subprocess.PIPE, text=True
    )
    try:
        lines = read(cat, count)
    finally:
        cat.kill()
        rest, _ = cat.communicate(timeout=TIMEOUT)
    return lines + rest.splitlines()


def test_cat_drains_the_lines_of_before(network, inside):
    """As of MACE's device: whatever reads the file, waiting or not, and once only."""
    with Watch(network, "--files", verb="serve", targets=[inside.pid]):
        network.probe("raw", count=10)
        with reading(inside) as reader:
            # The lines of all packets up to now are in the file.
            ready(reader)
        lines = drained_by_cat(inside, 20)
        assert len(lines) == 20 and all(LINE.match(line) for line in lines), lines
        assert inside.run(*NOBODY, *AT_ONCE).returncode == 1, (
            "nothing is left, and it does not wait"
        )
        network.probe("raw", count=10)
        with reading(inside) as reader:
            ready(reader)
        assert len(drained(inside)) == 20
        shell = 'i=0; while [ $i -lt 3 ] && read -r line; do echo "$line"; i=$((i+1)); done'
        network.probe("raw", count=10)
        by_line = drained(inside, ("sh", "-c", f"{shell} <{LINES}"))
        assert len(by_line) == 3 and all(LINE.match(line) for line in by_line)
        assert inside.run(*NOBODY, "sh", "-c", f"echo >{LINES}").returncode != 0


def test_a_file_has_the_statistics(network, inside):
    with Watch(network, "--files", verb="serve", targets=[inside.pid]) as watch:
        network.probe("udp", count=10)
        with reading(inside, "aggregate") as reader:
            known = json.loads(ready(reader)[-1])
        deadline = time.monotonic() + TIMEOUT
        # The file is written each second, perhaps also while the packets were on their way.
        while (shown := inside.run(*NOBODY, "cat", STATISTICS)).returncode or json.loads(
            shown.stdout
        )["rows"] != known["rows"]:
            assert time.monotonic() < deadline, (shown, known)
            time.sleep(0.1)
        assert known["rows"]
        watch.finish()
    assert inside.run("test", "-e", "/run/lorentz").returncode == 1


def test_files_left_by_a_crash_are_replaced(network, inside):
    with Watch(network, "--files", verb="serve", targets=[inside.pid]) as watch:
        watch.process.kill()
        watch.process.wait(TIMEOUT)
    assert inside.run("test", "-p", LINES).returncode == 0
    with Watch(network, "--files", verb="serve", targets=[inside.pid]):
        network.probe("raw", count=10)
        with reading(inside) as reader:
            ready(reader)
        assert len(drained(inside)) == 20


def test_a_container_switches_its_measuring_on(network, inside):
    """Where root has allowed that, and begun paused."""
    words = ("--files", "--paused")
    with Watch(network, *words, verb="serve", targets=[inside.pid], harmless="reset"):
        network.probe("raw", count=5)
        with reading(inside, "aggregate", "on") as reader:
            assert json.loads(ready(reader)[0])["on"] is False
        network.probe("raw", count=10)
        with reading(inside) as reader:
            ready(reader)
        assert len(drained(inside)) == 20


def test_another_containers_packets_are_not_to_be_had(network, inside):
    """Neither through its own socket nor through the other's, even within reach."""
    other = Container(network, network.more(5))
    targets = [inside.pid, other.pid]
    with Watch(network, verb="serve", targets=targets), reading(other, "json") as reader:
        ready(reader)
        network.probe("raw", first=1, count=10)
        network.probe("raw", first=501, count=10, name=f"{network.prefix}c5")
        packets = [json.loads(line) for line in read(reader, 20)]
        assert {packet["namespace"] for packet in packets} == {other.pid}
        assert all(501 <= number(packet) <= 510 for packet in packets)
        # The other's file system, but not its network.
        script = (
            "import socket\n"
            f"s = socket.socket(socket.AF_UNIX); s.connect({SOCKET!r}); s.settimeout(5)\n"
            "try:\n    s.sendall(b'off\\naggregate\\n'); print(s.recv(100))\n"
            "except OSError: print(b'')\n"
        )
        nosy = ["nsenter", "-t", inside.pid, "-n", "nsenter", "-t", other.pid, "-m"]
        done = subprocess.run(
            [*nosy, "python3", "-c", script], capture_output=True, text=True, timeout=TIMEOUT
        )
        assert done.stdout == "b''\n", done
        with reading(other, "aggregate") as again:
            assert json.loads(ready(again)[0])["on"], "not for others to turn off"
    other.process.kill()


def test_the_socket_goes_with_the_server(network, inside):
    with Watch(network, verb="serve", targets=[inside.pid]) as watch:
        assert inside.run("test", "-S", SOCKET).returncode == 0
        watch.finish()
    assert inside.run("test", "-e", "/run/lorentz").returncode == 1


def test_a_socket_left_by_a_crash_is_replaced(network, inside):
    with Watch(network, verb="serve", targets=[inside.pid]) as watch:
        watch.process.kill()
        watch.process.wait(TIMEOUT)
    assert inside.run("test", "-S", SOCKET).returncode == 0
    with Watch(network, verb="serve", targets=[inside.pid]), reading(inside) as reader:
        assert ready(reader) == []


def test_links_inside_lead_nowhere_outside(network, inside, tmp_path):
    """The server makes the socket in the container's file system, whatever links the container puts
    there."""
    for command in (["rm", "-rf", "/run/lorentz"], ["ln", "-s", str(tmp_path), "/run/lorentz"]):
        assert inside.run(*command).returncode == 0
    assert inside.run("mount", "-t", "tmpfs", "tmpfs", str(tmp_path.parent)).returncode == 0
    done = lorentz.call("latency", "serve", inside.pid, "--outer", "lo", "--for", "1s")
    assert done.returncode == 1 and SOCKET in done.stderr, done
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [[], ["-U"]])
def test_ping_is_corrected(network, inside, mode):
    with Watch(network, verb="serve", targets=[inside.pid]):
        words = ["latency", "ping", *mode, "-c5", "-i0.2", REMOTE[4]]
        done = inside.run(*lorentz.session.command(), *words)
    assert done.returncode == 0, done.stderr
    times = re.findall(r"icmp_seq=\d+ .* time=([0-9.]+) ms corrected=([0-9.]+) ms", done.stdout)
    assert len(times) >= 4, done.stdout
    assert all(0 < float(corrected) < float(plain) for plain, corrected in times)
    assert "rtt min/avg/max/mdev" in done.stdout
    closing = re.search(r"corrected min/avg/max/mdev = .* ms, (\d) corrected, (\d)", done.stdout)
    assert int(closing[1]) == len(times) and int(closing[1]) + int(closing[2]) == 5


def test_ping_without_the_socket_says_what_makes_it(network, inside):
    done = inside.run(*lorentz.session.command(), "latency", "ping", "-c1", REMOTE[4])
    assert done.returncode == 1
    assert "lorentz latency serve" in done.stderr and done.stderr.count("\n") == 1


def test_a_rule_of_ones_own(network, inside, tmp_path):
    """Any tool: here one that numbers its datagrams itself."""
    with Watch(network, verb="serve", targets=[inside.pid]):
        rule = tmp_path / "mine.toml"
        rule.write_text(
            "pattern = 'reply (?<seq>\\d+): (?<time>[0-9.]+) us'\n"
            "unit = 'us'\nkey = 'payload'\nuntil = 'call'\n"
        )
        script = (
            "import socket, time\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"s.connect(('{REMOTE[4]}', 7007))\n"
            "for n in range(70001, 70006):\n"
            "    t = time.monotonic_ns(); s.send(n.to_bytes(4, 'big') + b'abcdefgh'); s.recv(100)\n"
            "    print(f'reply {n}: {(time.monotonic_ns() - t) / 1000} us', flush=True)\n"
        )
        command = [*lorentz.session.command(), "latency", "run", "--rule", str(rule), "--"]
        done = inside.run(*command, "python3", "-c", script)
    times = re.findall(r": ([0-9.]+) us corrected=([0-9.]+) ms", done.stdout)
    assert len(times) >= 4, done
    assert all(float(corrected) * 1000 < float(plain) for plain, corrected in times)


@pytest.mark.parametrize("measured", ["sent", "received"])
def test_one_way_delays(network, inside, tmp_path, measured):
    """A program that prints one-way delays: the latency of that direction is subtracted. The unit
    test `one_way_needs_its_own_latency_alone` has the figures."""
    script = (
        "import socket, time\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.connect(('{REMOTE[4]}', 7007))\n"
        "for n in range(70001, 70006):\n"
        "    s.send(n.to_bytes(4, 'big') + b'abcdefgh'); s.recv(100)\n"
        "    print(f'delay {n}: 1000 us', flush=True)\n"
    )
    rule = tmp_path / "delay.toml"
    rule.write_text(
        "pattern = 'delay (?<seq>\\d+): (?<time>[0-9.]+) us'\n"
        f"unit = 'us'\nkey = 'payload'\nuntil = 'call'\nmeasured = '{measured}'\n"
    )
    with Watch(network, verb="serve", targets=[inside.pid]):
        command = [*lorentz.session.command(), "latency", "run", "--rule", str(rule), "--"]
        done = inside.run(*command, "python3", "-c", script)
    corrected = [float(ms) for ms in re.findall(r"corrected=([0-9.]+) ms", done.stdout)]
    assert len(corrected) >= 4, done
    assert all(ms < 1 for ms in corrected), done


def test_both_times_in_a_container_with_virtual_time(network):
    """At rate 1/10 a latency of 10 us is 1 us inside."""
    network.start(
        network.inside,
        *lorentz.session.command(),
        *("run", "--name", "slow", "--rate", "1/10", "--", "sleep", "60"),
    )
    deadline = time.monotonic() + TIMEOUT
    while not lorentz.shown("slow"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    try:
        with Watch(network, "--json", targets=["slow"]) as watch:
            network.probe("raw", count=10)
            packets = [p for p in watch.stop() if p["outcome"] == "matched"]
    finally:
        lorentz.call("rm", "slow", "--force")
    assert len(packets) >= 19
    for packet in packets:
        assert packet["virtual_ns"] == packet["latency_ns"] // 10


def test_readers_are_limited(network, inside):
    """No reader can take all of the server's descriptors."""
    script = (
        "import socket\n"
        "all = [socket.socket(socket.AF_UNIX) for _ in range(70)]\n"
        "answered = 0\n"
        f"for one in all: one.settimeout(10); one.connect({SOCKET!r})\n"
        "for one in all:\n"
        "    try:\n"
        "        one.sendall(b'sync\\n'); answered += one.recv(100) == b'# sync\\n'\n"
        "    except OSError: pass\n"
        "print(answered)\n"
    )
    with Watch(network, verb="serve", targets=[inside.pid]):
        assert inside.run(*NOBODY, "/usr/bin/python3", "-c", script).stdout == "64\n"
