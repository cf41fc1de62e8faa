"""Small files in the formats of other emulators: each is read, comes up and carries packets, or the
one line is told that is expected. The files are ours; each holds one thing that files of these
programs have."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.networks import TIMEOUT, Lab

SCENARIOS = Path(__file__).parent / "scenarios"


@dataclass(frozen=True)
class Sample:
    """A scenario file, and the network expected from it."""

    #: A word of each element left out, in order; None where others say what is.
    left_out: tuple[str, ...] | None = ()
    #: Node, and the address that it can reach.
    pings: tuple[str, str] | None = None
    #: Parts of the topology file.
    has: tuple[str, ...] = ()
    #: Number of lines of exec that fail, and words that are told of them.
    failed: int = 0
    says: tuple[str, ...] = ()


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
        pings=("pc1", "10.0.0.1"), has=("ip route replace ::/0 via fc00::1 metric 5",)
    ),
    "daemons": Sample(pings=("r1", "10.0.0.2"), has=("# services: rip, ospf", "router rip")),
    "several-addresses": Sample(pings=("pc1", "10.9.0.2")),
    "loopback-address": Sample(pings=("r1", "192.0.2.1")),
    "vlan": Sample(has=("ip link add link eth0 name vlan0 type vlan id 4",)),
    "vlan-switch": Sample(("vlan_filtering",), pings=PCS),
    "nat": Sample(has=("iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE",)),
    "custom-shell": Sample(pings=PCS, has=("configured by hand",)),
    "custom-frr": Sample(pings=("pc2", "10.0.0.1"), has=("router bgp 1",)),
    "loop-of-switches": Sample(pings=PCS, has=("'stp': True",)),
    "rstp": Sample(pings=PCS, has=("'stp': True",)),
    "outside": Sample(("type rj45", "type ext", "type filter", "there: n1", "there: n4")),
    "external": Sample(("type ext: its way to the host",), PCS),
    "filter": Sample(
        ("type filter", "there: n3"), PCS, ("'kind': 'hub'", "'pc3:eth0', 'pc3-eth0-nowhere:p0'")
    ),
    "indented-frr": Sample(
        pings=("r1", "10.0.0.2"),
        has=("router bgp 1\\n no bgp ebgp-requires-policy\\n network 10.1.1.0/24",),
    ),
    "of-imunes-2": Sample(
        pings=("left", "10.0.1.1"),
        has=(
            "ip address replace 192.0.2.1/32 dev lo",
            "'gate-eth1-nowhere:p0'",
        ),
    ),
    "rstp-of-imunes-2": Sample(
        pings=("left", "10.0.0.1"), has=("'stp': True", "['sw:e3', 'sw2:e2']")
    ),
    "unlinked-interface": Sample(
        pings=("pc1", "10.0.1.1"), has=("'r1:eth1', 'r1-eth1-nowhere:p0'",)
    ),
    "services": Sample(
        ("cpu", "ber 1000", "jitter_upstream"),
        ("www", "10.0.0.21"),
        ("'image': 'imunes/template'",),
    ),
    "images": Sample(pings=PCS, has=("'image': 'imunes/template:latest'",)),
    "two-canvases": Sample(pings=PCS, has=("'delay': '1ms'",)),
    "same-names": Sample(pings=("pc", "10.0.0.21"), has=("'a-name-with-spaces'", "'pc-n1'")),
}

CORE4 = {
    "two-pcs": Sample(pings=N1),
    # Lines of TimeKeeper's CORE. They are not for routing daemons.
    "dilation": Sample(pings=N1, has=("'tdf': '10'",)),
    "dilations": Sample(("give --rounds --node-tdf n1=2",), N1),
    "comments": Sample(pings=N1),
    "options-on-one-line": Sample(pings=N1),
    "options-empty": Sample(pings=N1),
    "session-options": Sample(("option global: traffic_start 5", "option session: controlnet"), N1),
    "comments-and-options": Sample(pings=N1),
    "link-settings": Sample(pings=N1, has=("'rate': '1mbit'", "'delay': '20ms'", "'loss': '0.5%'")),
    "asymmetric": Sample(("ber",), N1, ("'delay': '40ms'",)),
    "switch": Sample(pings=N1),
    "hub": Sample(pings=N1, has=("'kind': 'hub'",)),
    "router-default-route": Sample(pings=("n1", "10.0.1.20")),
    "daemons": Sample(("OSPFv3MDR",), has=("'10.0.0.2/32'", "neighbor 10.0.0.2 remote-as 105")),
    "user-defined": Sample(
        pings=("n2", "10.0.0.1"),
        has=("ip route replace 192.0.2.0/24",),
    ),
    "generated-file": Sample(pings=("n2", "10.0.0.1"), has=("router ospf6",)),
    "wireless": Sample(("OSPFv3MDR", "OSPFv3MDR"), has=("'kind': 'wlan'", "'range': 240.0")),
    "wireless-moving": Sample(("gone.scen: not found",), N1, ("'delay': '2ms'", "'range': 320.0")),
    "outside": Sample(("type rj45", "type tunnel", "n3", "n4")),
    "several-addresses": Sample(("10.9.0.1/24",), N1, ("00:16:3e:00:00:01",)),
    "loop-of-switches": Sample(pings=N1, has=("'stp': True",)),
    "annotations": Sample(pings=N1),
    "names-of-hosts": Sample(pings=("left", "10.0.0.21")),
    "unnamed-values": Sample(pings=N1, has=("bash greet.sh",)),
}

CORE9 = {
    "two-pcs": Sample(pings=N1),
    "switch": Sample(pings=N1, has=("'endpoints': ['n3:p0', 'n1:eth0']",)),
    "hub": Sample(pings=N1, has=("'kind': 'hub'",)),
    "router": Sample(pings=("n1", "10.0.1.20"), has=("default via 2001::1",)),
    "link-options": Sample(
        pings=N1, has=("'rate': '1mbit'", "'delay': '5ms'", "'packets': 64", "'duplicate': '1%'")
    ),
    "unidirectional": Sample(pings=N1, has=("'n2:eth0': {'delay': '1ms'}",)),
    "ipv6": Sample(pings=("n1", "2001::21")),
    "mac": Sample(pings=N1, has=("00:00:00:aa:00:01",)),
    "ospf-by-default": Sample(None, N1),
    "user-defined": Sample((), N1, has=("hello from core",)),
    "hooks": Sample(("hook",), N1),
    "annotations": Sample(pings=N1),
    "wireless": Sample(None),
    "wireless-network": Sample(
        ("loss that grows",), N1, ("'range': 400.0", "'rate': '11mbit'", "'delay': '2ms'")
    ),
    "emane": Sample(("EMANE", "link", "link", "emane_configuration")),
    "docker": Sample(pings=("n2", "10.0.0.20"), has=("localhost/nosuch:1",)),
    "rj45": Sample(("RJ45", "an end is not there"), N1, ("'n1:eth1', 'n1-eth1-nowhere:p0'",)),
    "tunnel": Sample(("TUNNEL", "GRE_BRIDGE", "an end is not there"), N1),
    "of-core-5": Sample(pings=N1, has=("'delay': '2ms'", "'loss': '1.5%'")),
    "configservices": Sample(pings=N1),
    "loop-of-switches": Sample(pings=N1, has=("'stp': True",)),
    "no-interface-names": Sample(pings=N1),
}

A1 = ("a", "10.0.0.2")

CLAB = {
    "two-linux": Sample(pings=A1),
    "mtu": Sample(pings=A1, has=("'mtu': 9000",)),
    "extended-links": Sample(pings=A1, has=("02:00:00:00:01:01", "'mtu': 1400")),
    "link-addresses": Sample(pings=("a", "fd00::2")),
    "bridge": Sample(pings=A1, has=("'kind': 'switch'",)),
    "loop-of-bridges": Sample(pings=A1, has=("'stp': True",)),
    "defaults-kinds-groups": Sample(
        pings=A1, has=("'ROLE': 'server', 'SITE': 'north'", "{'SITE': 'north'}", "ip_forward")
    ),
    "binds": Sample(("not-there.conf: not there",), has=("/binds.txt:/opt/note.txt:ro,O']",)),
    "command-and-env": Sample(),
    "management": Sample(("mgmt", "prefix", "mgmt-ipv4"), A1),
    "limits-and-ports": Sample(("ports", "memory", "cpu", "restart-policy"), A1),
    "routers-of-vendors": Sample(
        ("nokia_srlinux", "arista_ceos", "so a:eth2 leads nowhere", "srl:e1-2"),
        A1,
        ("'a:eth2', 'a-eth2-nowhere:p0'",),
    ),
    "links-to-the-host": Sample(
        ("host:", "mgmt-net:", "macvlan:", "type vxlan"),
        A1,
        ("'a:dummy0', 'a-dummy0-nowhere:p0'", "'a:eth4', 'a-eth4-nowhere:p0'"),
    ),
    "shared-network": Sample(pings=("side", "10.0.0.2")),
    "netem": Sample(pings=A1, has=("'from': {'a:eth1': {'delay': '20ms'}}",)),
    "alpine": Sample(pings=A1, failed=1, says=("apk", "give the node its image")),
    "bash-in-exec": Sample(pings=A1),
    "router": Sample(pings=("a", "10.0.2.2")),
    "routing-daemon": Sample(pings=A1, failed=1, says=("vtysh", "give the node its image")),
    "labels": Sample(("label owner",), A1, ("'position': [10.0, 20.0]",)),
    "stages": Sample(("wait-for", "exec on the host: touch", "startup-delay"), A1),
    "frr": Sample(
        has=("ospf router-id 10.3.0.1", "vrrpd pathd; do if command", "all.forwarding': '1'")
    ),
    "template": Sample(pings=("host1", "10.0.0.13"), has=("'mtu': 1400", "'lan:port2'")),
    "ovs-bridge": Sample(pings=A1, has=("'kind': 'switch'",)),
    "networks-of-others": Sample(
        ("container:cluster-control-plane: not a node",), ("side", "10.0.0.2"), ("'a:eth1', 'b:",)
    ),
    "words-of-exec": Sample(pings=A1, has=("test '$LAB_SITE' '!=' north",)),
    "variables": Sample(
        ("bind /var/lib/volume",),
        A1,
        ("'alpine:3'", "'SITE': 'north'", "/notes-a.txt:/notes:ro,O", "a of clab-variables"),
    ),
}

PC1 = ("pc1", "10.0.0.2")
NO_SERVICE = "services are those of the node's image"

KATHARA = {
    "two-pcs": Sample(pings=PC1),
    "one-lan": Sample(pings=("pc2", "10.0.0.3"), has=("'kind': 'switch'",)),
    "static-routing": Sample(
        tuple(f"LAB_{one}" for one in ("DESC", "VERSION", "AUTHOR", "EMAIL", "WEB")),
        ("pc1", "10.2.0.2"),
    ),
    "systemctl": Sample(pings=PC1, failed=1, says=(NO_SERVICE,)),
    "service": Sample(pings=PC1, failed=1, says=(NO_SERVICE,)),
    "init-d": Sample(pings=PC1, failed=1, says=(NO_SERVICE,)),
    "bash-arrays": Sample(pings=PC1),
    "open-vswitch": Sample(failed=1, says=("kernel's module openvswitch",)),
    "netem": Sample(
        pings=PC1,
        has=("'pc1:eth0': {'delay': '30ms'}", "'rate': '1mbit'", "'packets': 50"),
    ),
    "linux-bridge": Sample(pings=PC1),
    "brctl": Sample(pings=PC1, failed=1, says=("'ip link add NAME type bridge'",)),
    "files-of-a-machine": Sample(pings=PC1),
    "settings": Sample(
        ("[mem]", "[cpus]", "[num_terms]", "[port]", "[bridged]"), PC1, ("'COLOUR': 'blue'",)
    ),
    "ipv6": Sample(pings=("pc1", "fd00::2"), has=("disable_ipv6': '0'",)),
    "mac-addresses": Sample(pings=PC1, has=("02:42:00:00:00:02",)),
    "shared-startup": Sample(pings=PC1, has=("echo for all machines",)),
    "shutdown": Sample(pings=PC1, has=("'shutdown': ['echo bye",)),
    "quotes-and-comments": Sample(("pc2[eth]",), PC1),
    "nat": Sample(pings=("pc1", "192.0.2.2")),
    "command": Sample(pings=PC1, has=("['sleep', '1000']",)),
    "failing-lines": Sample(pings=PC1, failed=2, says=("nosuchprogram --now", "false")),
    "tunnel": Sample(pings=PC1),
}


@dataclass(frozen=True)
class Family:
    """The samples of one format."""

    samples: dict[str, Sample]
    #: How their files are called; empty for directories.
    ending: str
    #: How many there have to be.
    least: int = 20


FAMILIES = {
    "imunes": Family(IMUNES, ".imn"),
    "core4": Family(CORE4, ".imn"),
    "core9": Family(CORE9, ".xml"),
    "clab": Family(CLAB, ".clab.yml"),
    "kathara-labs": Family(KATHARA, ""),
}

ALL = [
    pytest.param(folder, name, sample, id=f"{folder}/{name}")
    for folder, family in FAMILIES.items()
    for name, sample in family.samples.items()
]


def test_each_sample_is_in_the_table():
    for folder, family in FAMILIES.items():
        found = {
            file.name.removesuffix(family.ending)
            for file in (SCENARIOS / folder).iterdir()
            if file.name.endswith(family.ending)
        }
        assert found == set(family.samples)
        assert len(found) >= family.least


def file_of(folder: str, name: str) -> Path:
    return SCENARIOS / folder / f"{name}{FAMILIES[folder].ending}"


@pytest.mark.parametrize(("folder", "name", "sample"), ALL)
def test_a_sample_is_read(folder, name, sample):
    told = lorentz.json_of("import", str(file_of(folder, name)))
    what = [one["what"] for one in told["left_out"]]
    if sample.left_out is not None:
        assert len(what) == len(sample.left_out), what
        for one, word in zip(what, sample.left_out, strict=True):
            assert word in one, what
    for part in sample.has:
        assert part in str(told["topology"]), told["topology"]


@pytest.mark.parametrize(("folder", "name", "sample"), ALL)
def test_what_a_sample_leaves_out_is_told_in_lines_with_their_places(folder, name, sample):
    """A line for each kind: links without an end share one."""
    file = file_of(folder, name)
    done = lorentz.call("import", str(file))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    place = f"lorentz: {re.escape(str(file))}(/[^:]*)?:\\d+:\\d+: left out: "
    for line in lines:
        assert re.match(place, line) and len(line) < len(str(file)) + 160, line
    assert sum("an end is not there" in line for line in lines) <= 1
    assert bool(lines) == bool(lorentz.json_of("import", str(file))["left_out"])


class Named(Lab):
    """A sample, up under a name of its own. No image of it is there."""

    def __init__(self, path: Path) -> None:
        super().__init__("")
        folder = Path(self.folder.name)
        self.path = folder / f"{self.name}{''.join(path.suffixes)}"
        if path.is_dir():
            shutil.copytree(path, self.path)
            conf = self.path / "lab.conf"
            conf.write_text(re.sub("(?m)^LAB_NAME=.*", "", conf.read_text()))
            return
        for beside in path.parent.glob("*.txt"):
            shutil.copy(beside, folder)
        text = re.sub("^name: .*", f"name: {self.name}", path.read_text())
        self.path.write_text(re.sub('<scenario name="[^"]*"', "<scenario", text))

    def up(self):
        words = ("up", "--ignore-images", str(self.path))
        self.done = lorentz.call(*words, timeout=TIMEOUT)
        return self.done


@pytest.mark.parametrize(("folder", "name", "sample"), ALL)
def test_a_sample_comes_up(folder, name, sample):
    if name == "vlan" and not Path("/proc/net/vlan").exists():
        # The lines fail then, one by one.
        pytest.skip("this kernel has no 802.1Q")
    with Named(file_of(folder, name)) as lab:
        if name == "nat" and "iptables" in lab.done.stderr:
            pytest.skip("this kernel or machine has no NAT")
        if name == "tunnel" and "type ipip" in lab.done.stderr:
            pytest.skip("this kernel has no tunnels")
        failures = re.findall(r": exec: .*: exit status \d+", lab.done.stderr)
        assert len(failures) == sample.failed, lab.done.stderr
        for words in sample.says:
            assert words in lab.done.stderr
        if sample.pings:
            node, address = sample.pings
            out = lab.run(node, needs.tool("ping"), "-c", 3, "-i", 0.2, "-W", 5, address)
            assert re.search(r"[123] received", out), out
