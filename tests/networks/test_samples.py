"""Small files in the formats of IMUNES (JSON) and of CORE 4: each is read, comes up and carries
packets. The files are ours; each holds one thing that files of these programs have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.networks import TIMEOUT, Lab

SCENARIOS = Path(__file__).parent / "scenarios"


@dataclass(frozen=True)
class Sample:
    """What a file is to become."""

    #: A word of each element left out, in order.
    left_out: tuple[str, ...] = ()
    #: Node, and the address that it can reach.
    pings: tuple[str, str] | None = None
    #: Parts of the topology file.
    has: tuple[str, ...] = ()
    #: Number of lines of exec that fail.
    failed: int = 0


PCS = ("pc1", "10.0.0.21")
N1 = ("n1", "10.0.0.21")

IMUNES = {
    "pc-pc": Sample(pings=PCS),
    "old-canvas": Sample(pings=PCS, has=("'position': [100.0, 100.0]",)),
    "delay-rate": Sample(
        pings=PCS, has=("'delay': '5ms'", "'rate': '10mbit'", "'duplicate': '1%'")
    ),
    "switch": Sample(pings=PCS, has=("'endpoints': ['pc1:eth0', 'sw:e0']",)),
    "hub": Sample(pings=PCS, has=("'kind': 'hub'",)),
    "wlan": Sample(pings=PCS, has=("'kind': 'wlan'", "'rate': '54mbit'")),
    "router-auto-routes": Sample(
        pings=("pc1", "10.0.1.10"),
        has=(
            "ip -4 route replace default via 10.0.0.1",
            "ip -6 route replace default via fc00:2::1",
        ),
    ),
    "static-routes": Sample(
        pings=("pc1", "10.0.0.1"), has=("ip route replace ::/0 via fc00::1 metric 5",), failed=1
    ),
    "daemons": Sample(
        ("routing daemon frr", "router_config", "routing daemon quagga", "router_config"),
        pings=("r1", "10.0.0.2"),
    ),
    "several-addresses": Sample(pings=("pc1", "10.9.0.2")),
    "loopback-address": Sample(pings=("r1", "192.0.2.1")),
    "vlan": Sample(has=("ip link add link eth0 name vlan0 type vlan id 4",)),
    "vlan-switch": Sample(("vlan_filtering",), pings=PCS),
    "nat": Sample(has=("iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE",)),
    "custom-shell": Sample(pings=PCS, has=("configured by hand",)),
    "custom-frr": Sample(("NODE_CONFIG for /usr/local/bin/frrboot.sh",), pings=("pc2", "10.0.0.1")),
    "loop-of-switches": Sample(pings=PCS, has=("'stp': True",)),
    "rstp": Sample(pings=PCS, has=("'stp': True",)),
    "outside": Sample(("type rj45", "type ext", "type filter", "n1 ", "n2 ", "n4 ")),
    "services": Sample(
        ("services", "docker_image", "cpu", "ber 1000", "jitter_upstream"), ("www", "10.0.0.21")
    ),
    "two-canvases": Sample(pings=PCS, has=("'delay': '1ms'",)),
    "same-names": Sample(pings=("pc", "10.0.0.21"), has=("'a-name-with-spaces'", "'pc-n1'")),
}

CORE4 = {
    "two-pcs": Sample(("option global",), N1),
    "comments": Sample(("option global",), N1),
    "options-on-one-line": Sample(pings=N1),
    "options-empty": Sample(pings=N1),
    "session-options": Sample(("option global", "option session: controlnet"), N1),
    "comments-and-options": Sample(("option global",), N1),
    "link-settings": Sample(
        ("option global",), N1, ("'rate': '1mbit'", "'delay': '20ms'", "'loss': '0.5%'")
    ),
    "asymmetric": Sample(("ber", "option global"), N1, ("'delay': '40ms'",)),
    "switch": Sample(("option global",), N1),
    "hub": Sample(("option global",), N1, ("'kind': 'hub'",)),
    "router-default-route": Sample(("services IPForward", "option global"), ("n1", "10.0.1.20")),
    "daemons": Sample(
        ("router bgp 105", "bgp router-id", "neighbor 10.0.0.2", "services zebra", "option global"),
        has=("'10.0.0.2/32'",),
    ),
    "user-defined": Sample(
        ("services IPForward", "option global"),
        ("n2", "10.0.0.1"),
        ("ip route replace 192.0.2.0/24",),
    ),
    "generated-file": Sample(("sh quaggaboot.sh zebra", "option global"), ("n2", "10.0.0.1")),
    "wireless": Sample(("option global",), has=("'kind': 'wlan'", "'range': 240.0")),
    "wireless-moving": Sample(
        ("gone.scen: not found", "option global"), N1, ("'delay': '2ms'", "'range': 320.0")
    ),
    "outside": Sample(("type rj45", "type tunnel", "n3", "n4", "option global")),
    "several-addresses": Sample(("10.9.0.1/24", "option global"), N1, ("00:16:3e:00:00:01",)),
    "loop-of-switches": Sample(("option global",), N1, ("'stp': True",)),
    "annotations": Sample(("option global",), N1),
    "names-of-hosts": Sample(("option global",), ("left", "10.0.0.21")),
}

ALL = [
    *(pytest.param("imunes", name, sample, id=f"imunes/{name}") for name, sample in IMUNES.items()),
    *(pytest.param("core4", name, sample, id=f"core4/{name}") for name, sample in CORE4.items()),
]


def test_each_sample_is_in_the_table():
    for folder, table in (("imunes", IMUNES), ("core4", CORE4)):
        assert {file.stem for file in (SCENARIOS / folder).iterdir()} == set(table)
        assert len(table) >= 20


@pytest.mark.parametrize(("folder", "name", "sample"), ALL)
def test_a_sample_is_read(folder, name, sample):
    told = lorentz.json_of("import", str(SCENARIOS / folder / f"{name}.imn"))
    what = [one["what"] for one in told["left_out"]]
    assert len(what) == len(sample.left_out), what
    for one, word in zip(what, sample.left_out, strict=True):
        assert word in one, what
    for part in sample.has:
        assert part in str(told["topology"]), told["topology"]


class Named(Lab):
    """A sample, up under a name of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__("")
        self.path = Path(self.folder.name) / f"{self.name}.imn"
        self.path.write_text(path.read_text())

    def up(self):
        self.done = lorentz.call("up", str(self.path), timeout=TIMEOUT)
        return self.done


@pytest.mark.parametrize(("folder", "name", "sample"), ALL)
def test_a_sample_comes_up(folder, name, sample):
    if name == "vlan" and not Path("/proc/net/vlan").exists():
        # The lines fail then, one by one.
        pytest.skip("this kernel has no 802.1Q")
    with Named(SCENARIOS / folder / f"{name}.imn") as lab:
        if name == "nat" and "iptables" in lab.done.stderr:
            pytest.skip("this kernel or machine has no NAT")
        failures = re.findall(r": exec: .*: exit status \d+", lab.done.stderr)
        assert len(failures) == sample.failed, lab.done.stderr
        if sample.pings:
            node, address = sample.pings
            out = lab.run(node, needs.tool("ping"), "-c", 3, "-i", 0.2, "-W", 5, address)
            assert re.search(r"[123] received", out), out
