"""`lorentz-cni` at the end of a chain of the reference plugins."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.latency import REMOTE, TIMEOUT, Network

PLUGINS = Path("/usr/lib/cni")
NAME = "cni0"


class Chain:
    """bridge with host-local addresses, then lorentz-cni, run by the test as an engine would."""

    def __init__(self, network, folder):
        if not (PLUGINS / "bridge").exists():
            pytest.skip("containernetworking-plugins is not installed (tests/packages.txt)")
        self.network = network
        self.folder = folder
        self.namespace = network.prefix + "n"
        network.extra.append(self.namespace)
        network.namespace(self.namespace)
        self.ours = lorentz.session.binary.with_name("lorentz-cni")
        subnet = {"subnet": "172.31.7.0/24", "routes": [{"dst": "0.0.0.0/0"}]}
        self.bridge = {
            "cniVersion": "1.0.0",
            "name": "lt",
            "type": "bridge",
            "bridge": NAME,
            "isGateway": True,
            "ipam": {"type": "host-local", "dataDir": str(folder / "ipam"), "ranges": [[subnet]]},
        }
        self.bridge["ipam"]["routes"] = subnet.pop("routes")
        self.last = {
            "cniVersion": "1.0.0",
            "name": "lt",
            "type": "lorentz-cni",
            "outer": "eth0",
            "folder": str(folder / "sockets"),
        }

    def call(self, plugin, verb, conf, **changes):
        env = {
            **lorentz.session.environment(),
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": "web-1",
            "CNI_NETNS": f"/run/netns/{self.namespace}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(PLUGINS),
            **changes,
        }
        return subprocess.run(
            self.network.command(self.network.host, plugin),
            input=json.dumps(conf),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=env,
        )

    def add(self, **changes):
        done = self.call(PLUGINS / "bridge", "ADD", self.bridge)
        assert done.returncode == 0, done
        made = {**self.last, "prevResult": json.loads(done.stdout), **changes}
        return made, self.call(self.ours, "ADD", made)


@pytest.fixture
def chain(tmp_path):
    needs.root()
    with Network() as network:
        masquerade = 'add rule ip nat out ip saddr 172.31.7.0/24 oif "eth0" masquerade'
        network.run(network.host, "nft", masquerade)
        yield Chain(network, tmp_path)


def test_a_chain_from_beginning_to_end(chain):
    made, done = chain.add()
    assert done.returncode == 0, done
    assert json.loads(done.stdout) == made["prevResult"], "passed on as it came"
    socket = chain.folder / "sockets/web-1/latency"
    assert socket.is_socket()
    assert chain.call(chain.ours, "CHECK", made).returncode == 0
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'aggregate\\n')\n"
        "print(s.makefile().readline())\n"
    )
    # ping waits for its last reply no longer than for the others: one request each.
    for _ in range(2):
        chain.network.run(chain.namespace, "ping", "-c1", REMOTE[4])
    out = chain.network.run(chain.namespace, "python3", "-c", script, socket).stdout
    rows = json.loads(out)["rows"]
    assert {row["direction"]: row["count"] for row in rows if row["protocol"] == "icmp"} == {
        "egress": 2,
        "ingress": 2,
    }
    assert chain.call(chain.ours, "DEL", made).returncode == 0
    assert chain.call(PLUGINS / "bridge", "DEL", chain.bridge).returncode == 0
    subprocess.run(["ip", "netns", "del", chain.namespace], check=True, timeout=TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while socket.exists():
        assert time.monotonic() < deadline, "the server outlives the namespace"
        time.sleep(0.1)


def test_versions(chain):
    shown = json.loads(chain.call(chain.ours, "VERSION", {}).stdout)
    assert "1.0.0" in shown["supportedVersions"]


WRONG = [
    ({"CNI_CONTAINERID": "../etc"}, {}, 4, "CNI_CONTAINERID ../etc: expected"),
    ({"CNI_NETNS": "/run/netns/none-such"}, {}, 4, "no such container or network namespace"),
    ({"CNI_COMMAND": "DANCE"}, {}, 4, "CNI_COMMAND DANCE: expected ADD"),
    ({}, {"outer": "nowhere0"}, 100, "--outer nowhere0: no such device"),
    ({}, {"cniVersion": "9.9.9"}, 1, "cniVersion 9.9.9: expected one of"),
    ({}, {"prevResult": None}, 7, "prevResult is missing"),
]


@pytest.mark.parametrize(("env", "conf", "code", "words"), WRONG)
def test_what_is_wrong_is_told_as_the_specification_has_it(chain, env, conf, code, words):
    conf = {**chain.last, "prevResult": {"cniVersion": "1.0.0"}, **conf}
    done = chain.call(chain.ours, "ADD", conf, **env)
    shown = json.loads(done.stdout)
    assert done.returncode == 1 and shown["code"] == code and words in shown["msg"], done
    assert list(chain.folder.iterdir()) == []
