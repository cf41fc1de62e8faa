"""Wireless LANs with the basic range model: who hears whom, by positions that change in virtual
time."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.networks import TIMEOUT, Capture, Frame, Lab

SCENARIOS = Path(__file__).parent / "scenarios"
MS = 1_000_000
#: Ethernet, IP and UDP headers.
HEADERS = 14 + 20 + 8
#: The wall clock at a network's start, ns.
START = 2_147_483_640 * 1_000 * MS

#: a, b and c in a row: a and c hear b alone. Neighbours are known from the start.
ROW = """\
at: 2038-01-19T03:14:00Z
topology:
  nodes:
    a: {{position: [0, 0], exec: ["{neighbours}"]{command}}}
    b: {{position: [100, 0], exec: ["{neighbours}"]}}
    c: {{position: [200, 0], exec: ["{neighbours}"]}}
    air: {{kind: wlan, radio: {{range: 121, rate: 1mbit, delay: 5ms}}}}
  links:
    - endpoints: ['a:eth0', 'air:1']
      ipv4: [10.0.0.1/24, null]
      mac: ['02:00:00:00:00:01', null]
    - endpoints: ['b:eth0', 'air:2']
      ipv4: [10.0.0.2/24, null]
      mac: ['02:00:00:00:00:02', null]
    - endpoints: ['c:eth0', 'air:3']
      ipv4: [10.0.0.3/24, null]
      mac: ['02:00:00:00:00:03', null]
"""

#: c walks to b from the tenth second on. It is 120 from a, and hears it, 1.6 s later.
WALK = "schedule: [{at: 10s, node: c, position: [100, 0], speed: 50}]\n"
BEGINS, HEARS, ARRIVES = 10.0, 11.6, 12.0

#: Sends numbered datagrams to c until 13 s of virtual time have passed.
SENDER = (
    "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); i=0\\n"
    "while time.time() < 2147483653:\\n"
    "    s.sendto(i.to_bytes(4,'big')+bytes(96),('10.0.0.3',9)); i+=1; time.sleep(0.01)\\n"
)


def row(command: str = "") -> str:
    lines = [
        f"ip neigh replace 10.0.0.{n} lladdr 02:00:00:00:00:0{n} dev eth0 nud permanent;"
        for n in (1, 2, 3)
    ]
    quiet = "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6; "
    # A node refuses the entry of its own address.
    return ROW.format(neighbours=quiet + " ".join(lines) + " true", command=command)


def source(frame: Frame) -> int:
    """The last byte of the sender's address."""
    return frame.data[29]


def test_nodes_in_range_hear_each_other_and_others_do_not():
    size = 458
    wire = (size + HEADERS) * 8 * 1_000
    with Lab(row()) as lab:
        status = lab.status()
        assert status["switches"] == {"air": "wlan"}
        heard = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
        assert status["wlans"] == {"air": {"range": 121, "hears": heard}}
        assert "air: b at 100.0, 0.0 hears a, c" in lorentz.ok("inspect", lab.name)
        ends = [Capture(lab, f"{node}:eth0") for node in "abc"]
        lab.send("a", "10.0.0.2", 10, size)
        lab.send("b", "10.0.0.1", 10, size)
        # A node in range gets each frame, whoever it is for; it is on the air for all at once.
        a, b, c = (end.probes(count) for end, count in zip(ends, (20, 20, 10), strict=True))
    assert len(c) == 10 and {source(frame) for frame in c} == {2}
    assert [(f.number, f.at) for f in c] == [(f.number, f.at) for f in a if f.way == "in"]
    for sender, receiver in ((a, b), (b, a)):
        sent = [frame.at for frame in sender if frame.way == "out"]
        arrived = [frame.at for frame in receiver if frame.way == "in"]
        assert arrived[0] - sent[0] == wire + 5 * MS
        done = 0
        for out, at in zip(sent, arrived, strict=True):
            done = max(done, out) + wire
            assert at == done + 5 * MS


@pytest.mark.parametrize("head", ["", "rounds: true\n"], ids=["clock", "rounds"])
def test_a_node_that_walks_is_reached_from_its_virtual_instant_on(head):
    command = f', command: [python3, -c, "{SENDER}"]'
    with Lab(head + row(command) + WALK) as lab:
        ends = [Capture(lab, f"{node}:eth0") for node in "ac"]
        seen = set()

        def is_over() -> bool:
            # One answer is one instant.
            status = lab.status()
            since = status["virtual_ns"] / 1e9
            hears = status["wlans"]["air"]["hears"]
            assert ("a" in hears["c"]) == ("c" in hears["a"]) == (since >= HEARS), since
            x, y = status["positions"]["c"]
            steps = min(max(since - BEGINS, 0), ARRIVES - BEGINS) // 0.05
            assert y == 0 and x == pytest.approx(200 - 50 * 0.05 * steps, abs=2.6), since
            assert status["changes_to_come"] == (since < BEGINS)
            seen.add(since >= HEARS)
            return since > 13

        lab.wait_until(is_over, "thirteen virtual seconds")
        sent = [frame for frame in ends[0].probes(1) if frame.way == "out"]
        instants = {frame.number: frame.at - START for frame in sent}
        before = [number for number, at in instants.items() if at < HEARS * 1e9]
        after = [number for number, at in instants.items() if at >= HEARS * 1e9]
        # No frame is lost, and they keep their order.
        arrived = ends[1].probes(len(after))
    assert seen == {True, False}
    assert len(before) > 10 and len(after) > 10
    assert {frame.number for frame in arrived} >= set(after)
    assert not {frame.number for frame in arrived} & set(before)


#: Sends one datagram just before c is in range, one at that instant, and one just after.
AT_THE_STEP = (
    "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\\n"
    "t=2147483640*10**9 + 11_600_000_000\\n"
    "for i, at in enumerate((t - 1, t, t + 1)):\\n"
    "    time.sleep(max(at - time.time_ns(), 0) / 1e9)\\n"
    "    s.sendto(i.to_bytes(4,'big')+bytes(96),('10.0.0.3',9))\\n"
    "time.sleep(1000)\\n"
)


def test_a_frame_of_the_instant_of_a_step_finds_the_node_there():
    """Computing takes no time here, so that the program sends at exactly that instant."""
    head = "rounds: true\ncompute: none\n"
    with Lab(head + row(f', command: [python3, -c, "{AT_THE_STEP}"]') + WALK) as lab:
        ends = [Capture(lab, f"{node}:eth0") for node in "ac"]
        lab.wait_until(lambda: lab.status()["virtual_ns"] > 13e9, "thirteen virtual seconds")
        sent = {frame.number: frame.at - START for frame in ends[0].probes(3)}
        arrived = {frame.number for frame in ends[1].probes(2)}
    step = int(HEARS * 1e9)
    assert sent == {0: step - 1, 1: step, 2: step + 1}
    assert arrived == {1, 2}


class Scenario(Lab):
    """A scenario of CORE, with the files beside it, under a name of its own."""

    def __init__(self, name: str) -> None:
        super().__init__("")
        folder = Path(self.folder.name)
        for file in (SCENARIOS / "wlan").iterdir():
            (folder / file.name).write_text(file.read_text())
        self.path = folder / f"{self.name}.xml"
        (folder / f"{name}.xml").rename(self.path)

    def up(self):
        self.done = lorentz.call("up", str(self.path), timeout=TIMEOUT)
        return self.done


def test_a_scenario_of_core_moves_by_its_script():
    with Scenario("beach") as lab:
        assert "left out" not in lab.done.stderr
        seen = set()

        def is_over() -> bool:
            status = lab.status()
            since, air = status["virtual_ns"] / 1e9, status["wlans"]["air"]
            # The script begins at 2 s, the walk a second later; 1.6 s later it is 120 from the
            # tower.
            assert ("swimmer" in air["hears"]["tower"]) == (since >= 4.6), since
            seen.add(since >= 4.6)
            return since > 5.2

        lab.wait_until(is_over, "the end of the walk")
        assert True in seen
        assert lab.status()["positions"]["swimmer"] == [100, 50]
        # ping waits for its last reply no longer than for the others: one request each.
        times = [lab.ping("tower", "10.0.0.3", 1)[0] for _ in range(2)]
        assert min(times) >= 8


def test_the_import_of_a_wlan():
    told = lorentz.json_of("import", str(SCENARIOS / "wlan" / "beach.xml"))
    topology = told["topology"]
    air = topology["topology"]["nodes"]["air"]
    assert air["kind"] == "wlan"
    assert air["radio"] == {"range": 121.0, "rate": "54mbit", "delay": "4ms"}
    script = topology["mobility"]["scripts"][0]
    assert script == {
        "file": str((SCENARIOS / "wlan" / "beach.scen").resolve()),
        "start": "2s",
        "map": {"3": "swimmer"},
    }
    assert topology["mobility"]["refresh"] == "100ms" and told["left_out"] == []


def test_a_wrong_script_is_one_line_with_its_place(tmp_path):
    needs.root()
    (tmp_path / "walk.ns2").write_text('$ns_ at 1.0 "$node_(1) setdest 1 2 fast"\n')
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: wrong-script\ntopology: {nodes: {n1: {}}}\nmobility: {scripts: [{file: walk.ns2}]}\n"
    )
    done = lorentz.call("up", str(file))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert f'{tmp_path}/walk.ns2:1:36: "fast\\"": expected a speed' in done.stderr
    assert "wrong-script" not in str(lorentz.json_of("inspect"))
