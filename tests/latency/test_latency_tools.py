"""Measuring tools, corrected by the built-in rules."""

from __future__ import annotations

import re

import pytest
from framework import lorentz, needs
from framework.latency import BEYOND, REMOTE, TIMEOUT, Network, Watch

#: The tool's command, its rule, and a line of a time: where it came from, and the time.
TOOLS = {
    "fping": ("fping -c3 -p200", "fping", r"(?m)^([0-9.]+) +: .* ([0-9.]+) ms corrected=(\S+)"),
    "traceroute": ("traceroute -n", "traceroute", r"()([0-9.]+) ms corrected=(\S+)"),
    "traceroute, ICMP": (
        "traceroute -n -I",
        "traceroute-icmp",
        r"()([0-9.]+) ms corrected=(\S+)",
    ),
    "traceroute, TCP": ("traceroute -n -T", "traceroute-tcp", r"()([0-9.]+) ms corrected=(\S+)"),
    "mtr": ("mtr -n --raw -c3 -i0.2 -G0.5", "mtr", r"(?m)^p (\d) (\d+) \d+ corrected=(\S+)"),
    "mtr, UDP": (
        "mtr -n --raw -u -c3 -i0.2 -G0.5",
        "mtr-udp",
        r"(?m)^p (\d) (\d+) \d+ corrected=(\S+)",
    ),
    "scamper": (
        "scamper -O text -c 'ping -c 3' -i",
        "scamper",
        r"from (\S+),.*=([0-9.]+) ms corrected=(\S+)",
    ),
    "scamper, a trace": (
        "scamper -O text -c 'trace -P icmp -q 1' -i",
        "scamper-trace",
        r"(?m)^ \d+ +(\S+) +([0-9.]+) ms corrected=(\S+)",
    ),
    "scamper, JSON": (
        "scamper -O json -c 'ping -c 3' -i",
        "scamper-json",
        r'"from":"(\S+?)".*?"rtt":([0-9.]+), "corrected":([0-9.]+|null)',
    ),
    "hping3": ("hping3 -n --icmp -c 3", "hping3", r"ip=(\S+) .* rtt=([0-9.]+) ms corrected=(\S+)"),
}


@pytest.fixture(scope="module")
def network():
    needs.root()
    with Network() as made:
        made.beyond()
        # Devices need some time.
        made.run(made.inside, "ping", "-c1", "-W10", BEYOND[4])
        made.run(made.inside, "ping", "-c1", "-W10", BEYOND[6])
        yield made


def corrected(inside, name, address):
    """Returns, for each time of the tool's output: its source, the time, and the corrected one or
    None; ms."""
    command, rule, pattern = TOOLS[name]
    needs.tool(command.split()[0])
    run = [*lorentz.session.command(), "latency", "run", "--rule", rule, "--"]
    words = re.findall(r"'([^']*)'|(\S+)", command)
    done = inside.run("timeout", TIMEOUT - 5, *run, *("".join(word) for word in words), address)
    unit = 1000 if "mtr" in name else 1
    return [
        (source, float(plain) / unit, None if better in ("-", "null") else float(better))
        for source, plain, better in re.findall(pattern, done.stdout)
    ], done


def check(times, done):
    """Checks that all times are corrected to a possible value, except for packets that the kernel
    lost."""
    found = [(plain, better) for _, plain, better in times if better is not None]
    assert len(found) >= len(times) - 1 >= 1, done
    # Tools print to 0.001 ms, hping3 to 0.1.
    assert all(-0.1 <= better < plain for plain, better in found), done
    assert f"{len(found)} corrected" in done.stdout, done


#: hping3 has a test of its own. In-band, no TCP is seen to leave.
WAYS = [
    (name, mode)
    for name in TOOLS
    for mode in ([], ["--in-band"])
    if name != "hping3" and not (mode and "TCP" in name)
]


@pytest.mark.parametrize(("name", "mode"), WAYS)
def test_the_remote_machine_by_each_tool(network, inside, name, mode):
    # This one prints one time a hop.
    address = BEYOND[4] if name == "scamper, a trace" else REMOTE[4]
    with Watch(network, *mode, verb="serve", targets=[inside.pid]):
        times, done = corrected(inside, name, address)
    # The first hop is the host; nothing is measured inside of it.
    if "mtr" in name:
        assert all(better is None for hop, _, better in times if hop == "0"), done
        times = [one for one in times if one[0] != "0"]
    # One of its times may be missing: the kernel limits how many errors the host sends.
    traces = "trace" in name
    hops = re.findall(r"^ ?\d .*$", done.stdout, re.MULTILINE) if traces else []
    first = hops[0].count("corrected=") if len(hops) > 1 else 0
    check(times[first:], done)


def test_what_reads_packet_sockets_is_corrected_in_band_only(network, inside):
    """hping3 numbers its packets in the processor's byte order, and no call shows its reads."""
    with Watch(network, verb="serve", targets=[inside.pid]):
        times, done = corrected(inside, "hping3", REMOTE[4])
    assert len(times) == 3 and all(better is None for _, _, better in times), done
    with Watch(network, "--in-band", verb="serve", targets=[inside.pid]):
        times, done = corrected(inside, "hping3", REMOTE[4])
    assert len(times) == 3
    check(times, done)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("name", ["mtr", "mtr, UDP"])
def test_routers_on_the_way(network, inside, name, family):
    """The replies of routers name a packet; its number is in the part that they quote."""
    with Watch(network, verb="serve", targets=[inside.pid]):
        times, done = corrected(inside, name, BEYOND[family])
    for hop in "12":
        check_hop = [one for one in times if one[0] == hop]
        assert len(check_hop) >= 3, done
        good = [better for _, plain, better in check_hop if better is not None and better < plain]
        assert len(good) >= len(check_hop) - 1, done


@pytest.mark.alone
def test_two_with_the_same_numbers_are_told_apart(network, inside):
    """Both number their packets alike. Their processes distinguish them: each gets its own
    correction."""
    run = " ".join([*lorentz.session.command(), "latency", "run", "--rule", "ping", "--"])
    # The other tool runs beside it. It ends with its reader.
    other = f"ping -c100 -i0.2 {REMOTE[4]} | {{ read head; read answer; "
    tool = f"ping -c5 -i0.2 {BEYOND[4]} 3<&0 </dev/null; }}"
    with Watch(network, verb="serve", targets=[inside.pid]):
        done = inside.run("sh", "-c", f"{other} exec {run} {tool}")
    times = re.findall(r"time=([0-9.]+) ms corrected=([0-9.]+)", done.stdout)
    assert len(times) >= 4, done
    # In-band the other tool has used all numbers before, and the correction has begun before both.
    both = f"ping -c5 -i0.02 {REMOTE[4]} >/dev/null; exec ping -c5 -i0.2 {BEYOND[4]}"
    with Watch(network, "--in-band", verb="serve", targets=[inside.pid]):
        done = inside.run("sh", "-c", f"exec {run} sh -c '{both}'")
    # The packets of the two cannot be distinguished there: none is guessed.
    assert done.stdout.count("corrected=-") == 5, done
