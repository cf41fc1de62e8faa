"""ns-3, unmodified, between two nodes: its real-time simulator runs on the network's clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.networks import Lab

SOURCES = Path(__file__).parents[2] / "examples" / "ns3"

#: The program is the node between; its stations have the addresses of those they stand for.
TOPOLOGY = """\
topology:
  nodes:
    a: {{}}
    b: {{}}
    sim: {{command: '{program} --left=eth0 --right=eth1 --seconds=1000'}}
  links:
    - endpoints: ['a:eth0', 'sim:eth0']
      ipv4: [10.0.0.1/24, null]
      mac: ['02:00:00:00:00:0a', null]
    - endpoints: ['b:eth0', 'sim:eth1']
      ipv4: [10.0.0.2/24, null]
      mac: ['02:00:00:00:00:0b', null]
"""


#: The compiler reads all of ns-3's headers: on a busy machine that takes a minute or more.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of examples/ns3."""
    needs.tool("make")
    if not Path("/usr/include/ns3/fd-net-device.h").exists():
        needs.tool("libns3-dev")
    folder = tmp_path_factory.mktemp("ns3")
    command = ["make", "-C", str(SOURCES), f"OUT={folder}", "CXXFLAGS=-O0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def pings(lab: Lab) -> list[float]:
    """Returns round-trip times through the simulator, ms, once it has begun."""
    ping = (needs.tool("ping"), "-c", 1, "-W", 1, "10.0.0.2")
    lab.wait_until(lambda: lab.call("a", *ping).returncode == 0, "the simulator")
    return lab.ping("a", "10.0.0.2", 20, 0.1)


@pytest.mark.parametrize("tdf", [1, 4])
@pytest.mark.parametrize(
    ("program", "least"), [("csma --delay=5ms", 10), ("wifi", 0.1)], ids=["csma", "wifi"]
)
def test_a_ping_through_the_simulator(programs: Path, program: str, least: float, tdf: int):
    with Lab(f"tdf: {tdf}\n" + TOPOLOGY.format(program=programs / program)) as lab:
        times = pings(lab)
    assert len(times) >= 5
    # Never early; what is more is real time, and how busy the machine is.
    assert least <= min(times) < least + 20


def lab_py(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SOURCES / "lab.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("network", ["csma", "wifi"])
@pytest.mark.parametrize(
    ("time", "tdfs"),
    [
        (("--tdf", 2), None),
        (("--rounds", "--sim-tdf", 4), {"sim": 4, "n1": 1}),
    ],
    ids=["one clock", "rounds"],
)
def test_machines_reach_each_other_through_a_written_lab(programs: Path, network, time, tdfs):
    """Five machines on one network of ns-3's; in rounds the simulation has a TDF of its own."""
    written = lab_py(network, 5, *time, "--programs", programs, "--seconds", 1000)
    assert written.returncode == 0, written.stderr
    with Lab(written.stdout.split("\n", 1)[1]) as lab:
        if tdfs:
            status = lorentz.json_of("experiment", "status", lab.name)
            shown = {one["name"].split(".")[1]: one["tdf"] for one in status["containers"]}
            assert {name: shown[name] for name in tdfs} == tdfs
        ping = (needs.tool("ping"), "-c", 1, "-W", 1, "10.0.0.5")
        lab.wait_until(lambda: lab.call("n1", *ping).returncode == 0, "the simulator")
        for node, address in (("n2", "10.0.0.3"), ("n5", "10.0.0.1")):
            assert len(lab.ping(node, address, 5, 0.1)) >= 3


def test_an_event_beyond_the_hard_limit_ends_the_simulation(programs: Path):
    """ns-3's own rule: no event of a real-time simulation may be later. 1 us is too short."""
    words = ["run", "--tdf", "2", "--", str(programs / "csma"), "--stations=2", "--seconds=0.5"]
    done = lorentz.call(*words, "--hardLimit=60000", timeout=60)
    assert done.returncode == 0, done.stderr
    done = lorentz.call(*words, "--hardLimit=0.001", timeout=60)
    assert done.returncode != 0
    assert "Hard real-time limit exceeded" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("csma", 1), "machines 1: expected 2 to 250"),
        (("token-ring", 3), "invalid choice: 'token-ring'"),
        (("wifi", 3, "--sim-tdf", 2), "--sim-tdf: expected --rounds"),
    ],
)
def test_a_lab_that_cannot_be_is_one_line(words, told):
    done = lab_py(*words)
    assert done.returncode == 2 and not done.stdout
    assert told in done.stderr.splitlines()[-1]


#: The same by ns-3's TapBridge, at tap devices that the kernel's bridges join to the interfaces.
BRIDGED = """\
topology:
  nodes:
    a: {{}}
    b: {{}}
    sim:
      env: {{LD_PRELOAD: {folder}/creator.so}}
      command: |
        for side in 0 1; do
          ip tuntap add tap$side mode tap && ip link add br$side type bridge || exit 1
          for port in tap$side eth$side; do ip link set $port master br$side up || exit 1; done
          ip link set br$side up || exit 1
        done
        exec {folder}/csma --bridge --left=tap0 --right=tap1 --delay=5ms --seconds=1000
  links:
    - {{endpoints: ['a:eth0', 'sim:eth0'], ipv4: [10.0.0.1/24, null]}}
    - {{endpoints: ['b:eth0', 'sim:eth1'], ipv4: [10.0.0.2/24, null]}}
"""


@pytest.mark.parametrize("tdf", [1, 4])
def test_a_ping_through_tap_bridges(programs: Path, tdf: int):
    if not Path("/usr/libexec/ns3/ns3.37-tap-creator").exists():
        needs.tool("ns3's tap-creator")
    with Lab(f"tdf: {tdf}\n" + BRIDGED.format(folder=programs)) as lab:
        times = pings(lab)
    assert len(times) >= 5
    assert 10 <= min(times) < 30


def median_late(program: Path, tdf: int) -> float:
    command = ["run", "--tdf", str(tdf), "--", str(program), "--stations=2", "--seconds=1"]
    done = lorentz.call(*command, timeout=120)
    assert done.returncode == 0, done.stderr
    late = json.loads(done.stdout)
    assert late["events"] >= 990
    return late["median_us"]


@pytest.mark.alone
def test_events_are_the_less_late_the_greater_the_tdf(programs: Path):
    assert median_late(programs / "csma", 10) < median_late(programs / "csma", 1) / 2
