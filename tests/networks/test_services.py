"""The services of scenarios of CORE and IMUNES: routing daemons that converge in virtual time, and
servers that answer. The nodes run Debian's programs, from a root file system that has them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import lorentz, needs, servers
from framework.networks import TIMEOUT, Lab

pytestmark = pytest.mark.patient

SCENARIOS = Path(__file__).parent / "scenarios"
#: Time limits of `lorentz up`, and of the routers' convergence after it, both real, s.
UP_LIMIT, LIMIT = 200, 400
#: Time limit of convergence in virtual seconds. OSPF's own timers make some 12 of it with hellos
#: every 2 s, and some 50 with hellos every 10 s.
CONVERGED = 90

slow = pytest.mark.timeout(servers.LIMIT + UP_LIMIT + LIMIT + 60)


class Scenario(Lab):
    """The network of a scenario, whose nodes see the root file system with servers."""

    def __init__(self, file: str, *flags: str, rate: str | None = None) -> None:
        super().__init__("")
        told = lorentz.json_of("import", str(SCENARIOS / file))
        topology = told["topology"]
        topology["name"] = self.name
        self.left_out = [one["what"] for one in told["left_out"]]
        if rate:
            topology["rate"] = rate
        for node in topology["topology"]["nodes"].values():
            if node.get("kind", "process") == "process":
                node["rootfs"] = str(servers.root())
        self.topology, self.flags = topology, flags

    def up(self):
        # JSON is YAML.
        self.file.write_text(json.dumps(self.topology))
        words = ("up", str(self.file), "--keep-going", *self.flags)
        self.done = lorentz.call(*words, timeout=UP_LIMIT)
        return self.done

    def now(self) -> float:
        """The network's time, virtual seconds since the start."""
        return self.status()["virtual_ns"] / 1e9

    def converges(self, node: str, *networks: str, family: str = "-4") -> None:
        """Waits until `node` has routes to the networks, and checks how long that took."""
        begin, deadline = self.now(), time.monotonic() + LIMIT
        missing = list(networks)
        while missing:
            assert time.monotonic() < deadline, f"{node}: no route to {missing}"
            # A daemon that loses a route may leave it as unreachable, the line's first word.
            lines = self.run(node, "ip", family, "route").splitlines()
            routes = [line.split()[0] for line in lines]
            missing = [one for one in networks if one not in routes]
            time.sleep(0.5)
        assert self.now() - begin < CONVERGED

    def reaches(self, node: str, address: str) -> None:
        out = self.run(node, "ping", "-c", 3, "-i", 0.5, "-W", 5, address)
        assert re.search(r"[123] received", out), out


def answers(lab: Lab, text: str, node: str, *words: object) -> str:
    """Waits until a command succeeds and its output has the text; returns the output.

    A server that goes into the background may listen only after `up` has ended.
    """
    limit = time.monotonic() + TIMEOUT
    while time.monotonic() < limit:
        done = lab.call(node, *words)
        if done.returncode == 0 and text in done.stdout:
            return done.stdout
        time.sleep(0.2)
    raise AssertionError(f"{words}: no {text!r}: {done.stdout} {done.stderr}")


@slow
@pytest.mark.parametrize(
    "flags", [("--tdf", "1"), ("--tdf", "10"), ("--rounds",)], ids=["tdf1", "tdf10", "rounds"]
)
def test_routers_of_core_converge(flags):
    """One of the three has its configuration in the file, in Quagga's language."""
    with Scenario("ospf.xml", *flags) as lab:
        assert lab.left_out == ["node n1: routing: instance-id 65"]
        assert "failed" not in lab.done.stderr and "left out" not in lab.done.stderr, lab.done
        for router in ("n1", "n3"):
            lab.converges(router, *(f"10.0.{link}.0/24" for link in (1, 2, 3, 4)))
        lab.reaches("n5", "10.0.4.10")
        # CORE leaves OSPFv3 its hellos every 10 s: too long for a test at TDF 10 or in rounds, in
        # which ospf6.xml has others.
        if flags == ("--tdf", "1"):
            lab.converges("n1", "a:4::/64", family="-6")
            lab.converges("n3", "a:1::/64", family="-6")
            lab.reaches("n5", "a:4::10")
        hello = lab.run("n3", "vtysh", "-c", "show ip ospf interface eth0 json")
        timers = json.loads(hello)["interfaces"]["eth0"]
        assert timers["networkType"] == "POINTOPOINT" and timers["timerMsecs"] == 2000


@slow
def test_routers_of_core_speak_rip():
    with Scenario("rip.xml") as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        lab.converges("r1", "10.1.2.0/24")
        lab.converges("r3", "10.1.1.0/24")
        lab.reaches("r1", "10.1.2.2")


@slow
@pytest.mark.parametrize("flags", [("--tdf", "10"), ("--rounds",)], ids=["tdf10", "rounds"])
def test_routers_of_core_speak_ospf_for_ipv6(flags):
    """The file has hellos every 2 s. The test above has those of CORE, at TDF 1."""
    with Scenario("ospf6.xml", *flags) as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        lab.converges("r1", "b:5:2::/64", family="-6")
        lab.converges("r3", "b:5:1::/64", family="-6")
        lab.reaches("r1", "b:5:2::2")
        text = lab.run("r2", "vtysh", "-c", "show ipv6 ospf6 interface eth0")
        assert re.search(r"Hello 2\b.*, Dead 6\b", text), text


@slow
@pytest.mark.parametrize("protocol, net", [("ripng", "b:2"), ("babel", "b:3")])
def test_routers_of_core_speak_a_protocol_for_ipv6(protocol, net):
    """Of the three the outer ones learn the other's network, and reach it across the middle one."""
    with Scenario(f"{protocol}.xml", rate="2") as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        lab.converges("r1", f"{net}:2::/64", family="-6")
        lab.converges("r3", f"{net}:1::/64", family="-6")
        assert f"proto {protocol}" in lab.run("r1", "ip", "-6", "route", "show", f"{net}:2::/64")
        lab.reaches("r1", f"{net}:2::2")
        if protocol == "babel":
            # It carries both families.
            lab.converges("r1", "10.3.2.0/24")
            lab.reaches("r1", "10.3.2.2")


@slow
def test_routers_of_core_find_neighbours_by_pim():
    with Scenario("pim.xml", rate="2") as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        if not Path("/proc/net/ip_mr_vif").exists():
            pytest.skip("the kernel has no multicast routing (CONFIG_IP_MROUTE)")
        found: dict = {}

        def both() -> bool:
            told = lab.run("r2", "vtysh", "-c", "show ip pim neighbor json")
            found.update(json.loads(told))
            return all(found.get(eth) for eth in ("eth0", "eth1"))

        lab.wait_until(both, "neighbours")
        assert list(found["eth0"]) == ["10.4.1.1"] and list(found["eth1"]) == ["10.4.2.2"]
        # An interface of the kernel's multicast routing for each of PIM.
        table = lab.run("r2", "cat", "/proc/net/ip_mr_vif")
        assert "eth0" in table and "eth1" in table


@slow
def test_routers_of_core_4_speak_bgp():
    """Three autonomous systems, by configurations for Quagga, which needs no policy."""
    with Scenario("bgp.imn") as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        lab.converges("n3", "192.0.2.0/24", "10.3.1.0/24")
        lab.converges("n1", "10.3.2.0/24")
        lab.reaches("n1", "10.3.2.2")


@slow
def test_routers_of_imunes_converge():
    """One of the three has a configuration by hand. Hellos come every 10 s, as there."""
    with Scenario("ospf-imunes.imn", rate="2") as lab:
        assert not lab.left_out and "failed" not in lab.done.stderr, lab.done
        lab.converges("router1", "10.4.2.0/24", "10.4.9.1")
        lab.converges("router3", "10.4.0.0/24")
        lab.reaches("pc", "10.4.9.1")


@slow
def test_servers_of_core_answer():
    with Scenario("services.xml") as lab:
        assert lab.left_out == [
            "node server: service Firewall, which has nothing to do by itself",
            "node server: service OLSR",
        ]
        assert "failed" not in lab.done.stderr, lab.done.stderr
        assert "left out on" not in lab.done.stderr, lab.done.stderr
        answers(lab, "atd", "server", "ps", "-C", "atd", "-o", "comm=")
        lab.wait_until(
            lambda: "10.2.0." in lab.run("client", "ip", "-4", "address"), "an address by DHCP"
        )
        address = re.search(r"inet 10\.2\.0\.(\d+)/24", lab.run("client", "ip", "-4", "address"))
        assert address and 128 <= int(address[1]) <= 254
        # The client sets the route after the address.
        lab.wait_until(lambda: "via 10.2.0.1" in lab.run("client", "ip", "route"), "a route")
        page = answers(lab, "Apache", "client", "curl", "-s", "-i", "http://10.2.0.1/")
        assert "server web server" in page and "10.2.0.1/24" in page and "c:1::1/64" in page
        answers(lab, "ssh-ed25519 ", "client", "ssh-keyscan", "-t", "ed25519", "10.2.0.1")
        greeting = "import socket; print(socket.create_connection(('{}', 21)).recv(99).decode())"
        answers(lab, "220 ", "client", "python3", "-c", greeting.format("10.2.0.1"))
        # The scenario's own configuration, and its own files.
        own = greeting.format("10.2.0.3")
        answers(lab, "Of the scenario", "client", "python3", "-c", own)
        assert lab.run("web", "cat", "/run/told") == "of the scenario\n"
        # Router advertisements give the client an address of its own.
        lab.wait_until(
            lambda: "c:1:" in lab.run("client", "ip", "-6", "address"), "an advertised prefix"
        )
        lab.wait_until(
            lambda: "127.0.0.254/8" in lab.run("server", "ip", "address"), "UCARP's address"
        )
        # tcpdump writes the file's head as it begins.
        answers(
            lab, "1", "server", "find", "/var/tmp/server.eth0.pcap", "-size", "+0", "-printf", "1"
        )


def without_servers(tmp_path: Path, file: str) -> tuple[Lab, Path]:
    """A copy of a scenario, whose nodes are to see the machine's own programs."""
    lab = Lab("")
    path = tmp_path / f"{lab.name}{Path(file).suffix}"
    shutil.copy(SCENARIOS / file, path)
    text = path.read_text()
    path.write_text(
        re.sub(r'<scenario name="[^"]*"|<scenario', f'<scenario name="{lab.name}"', text)
    )
    return lab, path


def test_what_is_not_installed_is_one_line(tmp_path):
    if shutil.which("zebra") or Path("/usr/lib/frr/zebra").exists():
        pytest.skip("FRR is on this machine")
    lab, path = without_servers(tmp_path, "rip.xml")
    why = "FRRzebra, FRRRIP: not installed: vtysh zebra ripd"
    try:
        done = lorentz.call("up", str(path), timeout=TIMEOUT)
        assert done.returncode == 0
        assert done.stderr == f"lorentz: {lab.name}: left out on r1, r2, r3: {why}\n"
        # The rest of the network is there.
        lab.run("r1", needs.tool("ping"), "-c", 1, "10.1.1.2")
        lorentz.ok("down", lab.name)
        failed = lorentz.json_of("up", str(path))["failed"]
        assert [(one["node"], one["left_out"], one["output"]) for one in failed] == [
            (node, True, why) for node in ("r1", "r2", "r3")
        ]
        lorentz.ok("down", lab.name)
        strict = lorentz.call("up", str(path), "--strict", timeout=TIMEOUT)
        assert strict.returncode == 1 and strict.stderr.endswith(f": node r1: {why}\n")
        assert lab.name not in str(lorentz.json_of("inspect"))
    finally:
        lab.__exit__()


def test_a_server_of_python_stands_in_for_apache(tmp_path):
    if shutil.which("apache2"):
        pytest.skip("Apache is on this machine")
    lab, path = without_servers(tmp_path, "services.xml")
    try:
        assert lorentz.call("up", str(path), timeout=TIMEOUT).returncode == 0
        code = "import urllib.request as u; print(u.urlopen('http://10.2.0.3/').read().decode())"
        lab.run("client", "ip", "address", "add", "10.2.0.20/24", "dev", "eth0")
        lab.wait_until(lambda: not refused_by(lab, code), "an answer")
        assert "web web server" in lab.python("client", code)
        assert (
            not Path("/var/www/index.html").exists()
            or "web web server" not in Path("/var/www/index.html").read_text()
        )
    finally:
        lab.__exit__()


def refused_by(lab: Lab, code: str) -> bool:
    quiet = f"try:\n    {code.replace('; ', chr(10) + '    ')}\nexcept OSError:\n    print('none')"
    return lab.python("client", quiet) == "none\n"


def test_services_do_not_reach_the_host(tmp_path):
    """A service writes into /etc and /run. A node that sees the host's files leaves it out."""
    lab, path = without_servers(tmp_path, "rip.xml")
    try:
        done = lorentz.call("up", str(path), "--on-host", timeout=TIMEOUT)
        assert done.returncode == 0
        assert "left out on r1, r2, r3: FRRzebra, FRRRIP: needs a private node\n" in done.stderr
        assert not Path("/etc/frr/frr.conf").exists()
    finally:
        lab.__exit__()


@contextlib.contextmanager
def with_servers(name: str, folder: str, *flags: str) -> Iterator[Lab]:
    """The network `name` of a lab of Kathara, on the servers' root file system."""
    lab = Lab("")
    lab.name = name
    command = ("up", str(SCENARIOS / folder), *flags, "--rootfs", str(servers.root()))
    try:
        done = lorentz.call(*command, timeout=UP_LIMIT)
        assert done.returncode == 0 and done.stderr == "", done
        yield lab
    finally:
        lab.__exit__()


@slow
def test_services_of_an_image_start_by_its_own_scripts():
    """systemctl, service and init.d, as labs of Kathara call them."""
    with with_servers("services-of-an-image", "init-scripts") as lab:
        answers(lab, "of the lab", "pc", "curl", "-s", "http://web.lab/")
        answers(lab, "ssh-ed25519 ", "pc", "ssh-keyscan", "-t", "ed25519", "10.0.0.2")
        assert "10.0.0.2" in lab.run("pc", "host", "web.lab")


@slow
def test_routers_of_an_image_start_by_its_own_scripts():
    """FRR asks for CAP_SYS_ADMIN, which no private node has, and goes on without it."""
    with with_servers("routers-that-their-own-scripts-start", "frr-scripts", "--tdf", "1") as lab:
        answers(lab, "0% packet loss", "pc1", "ping", "-c", "1", "10.3.0.2")
        # It gives root up as it does elsewhere.
        assert "frr" in lab.run("r2", "ps", "-o", "user=", "-C", "ospfd").split()


@slow
def test_services_that_have_another_name_in_an_image():
    """FRR takes Quagga's place, and Debian's named that of bind9."""
    with with_servers("services-of-other-releases", "quagga-scripts") as lab:
        answers(lab, "0% packet loss", "pc", "ping", "-c", "1", "10.6.0.2")
        # Quagga announces a network without a route to it.
        answers(lab, "10.99.0.0/16", "r1", "ip", "route")
        answers(lab, "10.4.0.2", "pc", "host", "web.lab", "10.6.0.2")


@slow
def test_containerlabs_routers_run_without_their_image():
    """FRR is that of the root file system. Without a list of daemons all that are installed run."""
    lab = Lab("")
    lab.name = "frr"
    file = SCENARIOS / "clab/frr.clab.yml"
    options = ("--ignore-images", "--tdf", "1", "--rootfs", str(servers.root()))
    try:
        done = lorentz.call("up", str(file), *options, timeout=UP_LIMIT)
        assert done.returncode == 0 and done.stderr == "", done
        answers(lab, "0% packet loss", "pc1", "ping", "-c", "1", "10.3.2.2")
        running = {
            node: lab.run(node, "ps", "-e", "-o", "comm=").split() for node in ("r1", "silent")
        }
        assert "isisd" not in running["r1"]
        assert {"zebra", "bgpd", "isisd"} < set(running["silent"])
    finally:
        lab.__exit__()
