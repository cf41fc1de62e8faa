"""Nodes and links that come and go while their network runs: `link add`, `link rm`, `node add`,
`node rm`, `inspect --yaml`. Those that stay notice nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, processes
from framework.lorentz import refusal
from framework.networks import Capture, Lab, pair

#: A switch with two nodes. A node that comes is linked to it.
STAR = """\
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}}
  links:
    - {endpoints: ['a:eth0', 's:1'], ipv4: [10.0.0.1/24, null], delay: 5ms}
    - {endpoints: ['b:eth0', 's:2'], ipv4: [10.0.0.2/24, null]}
"""
#: Two switches with a spanning tree, and a node at each. Virtual time is fast: a port of a switch
#: listens and learns for 30 s before it forwards.
TREE = """\
rate: 20
topology:
  nodes: {a: {}, b: {}, s: {kind: switch, stp: true}, t: {kind: switch, stp: true}}
  links:
    - {endpoints: ['a:eth0', 's:1'], ipv4: [10.0.0.1/24, null]}
    - {endpoints: ['b:eth0', 't:1'], ipv4: [10.0.0.2/24, null]}
    - {endpoints: ['s:2', 't:2'], delay: 1ms}
"""
BROADCASTS = 20
#: Sends numbered broadcasts.
CALL = f"""
import socket, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for number in range({BROADCASTS}):
    sock.sendto(bytes([number]), ("10.0.0.255", 9))
    time.sleep(0.1)
"""
#: Prints the numbers of all broadcasts that arrive, until none has come for a while.
HEAR = """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("", 9))
print("listens", flush=True)
heard = [sock.recv(1)[0]]
sock.settimeout(20)
try:
    while True:
        heard.append(sock.recv(1)[0])
except TimeoutError:
    print(heard)
"""
#: Sends a byte over one TCP connection and waits for its echo, again and again. Prints the count
#: when its standard input ends.
TALK = """
import select, socket, sys
channel = socket.create_connection(("10.0.0.2", 7))
count = 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    channel.sendall(b"x")
    assert channel.recv(1) == b"x"
    count += 1
print(count)
"""
ECHO = """
import socket
server = socket.create_server(("", 7))
print("listens", flush=True)
channel, _ = server.accept()
while data := channel.recv(1):
    channel.sendall(data)
"""


def changed(lab: Lab, *words: object) -> None:
    """Changes the network by `lorentz WORDS`, which must succeed."""
    verb, act, *rest = map(str, words)
    lorentz.ok(verb, act, "--network", lab.name, *rest)


def wrong(lab: Lab, names: str, *words: object) -> None:
    """Checks that `lorentz WORDS` is refused in one line, and changes nothing."""
    verb, act, *rest = map(str, words)
    before = lorentz.ok("inspect", lab.name, "--yaml")
    refusal(lorentz.call(verb, act, "--network", lab.name, *rest), names)
    assert lorentz.ok("inspect", lab.name, "--yaml") == before


def nodes(lab: Lab) -> set[str]:
    return {node["name"] for node in lab.status()["nodes"]}


def ends(lab: Lab) -> set[frozenset[str]]:
    links = [link["directions"][0] for link in lab.status()["links"]]
    return {frozenset((one["from"], one["to"])) for one in links}


class Talk:
    """A TCP connection from a to b that is used all the time, as long as the block runs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def __enter__(self) -> None:
        echo = self.lab.start("b", "python3", "-u", "-c", ECHO)
        assert echo.stdout.readline() == "listens\n"
        command = self.lab.command("a", "python3", "-c", TALK)
        environment = {**lorentz.session.environment(), processes.TAG: self.lab.tag}
        self.talk = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lab.started.append(self.talk)

    def __exit__(self, *_: object) -> None:
        output, _ = self.talk.communicate(timeout=60)
        assert self.talk.returncode == 0 and int(output) > 3


@pytest.fixture
def lab():
    with Lab(pair("delay: 1ms")) as lab:
        yield lab


@pytest.fixture
def star():
    with Lab(STAR) as lab:
        yield lab


def test_a_link_comes_and_goes_and_comes_again(lab):
    new = ("a:eth1", "b:eth1", "--delay", "20ms", "--ipv4", "10.1.0.1/24,10.1.0.2/24")
    with Talk(lab):
        for _ in range(2):
            changed(lab, "link", "add", *new)
            assert ends(lab) == {frozenset(("a:eth0", "b:eth0")), frozenset(("a:eth1", "b:eth1"))}
            assert min(lab.ping("a", "10.1.0.2", 2)) >= 40
            lab.set("a:eth1", "--delay", "5ms")
            assert 25 <= min(lab.ping("a", "10.1.0.2", 2)) < 40
            assert lab.direction("a:eth1")["counts"]["delivered"] > 0
            changed(lab, "link", "rm", "b:eth1")
            assert ends(lab) == {frozenset(("a:eth0", "b:eth0"))}
            assert lab.call("a", "ip", "link", "show", "eth1").returncode != 0


def test_a_node_comes_to_a_switch_with_its_interface_and_goes(star):
    # The program ends if its address is not there when it begins.
    bind = "import socket; s = socket.create_server(('10.0.0.3', 80))\nwhile True: s.accept()"
    link = ("--link", "eth0=s:3,10.0.0.3/24", "--delay", "10ms", "--env", "WHO=late")
    with Talk(star):
        exec_line = ("--exec", "test $WHO = late && ping -c 1 10.0.0.1")
        changed(star, "node", "add", "late", *link, *exec_line, "--", "python3", "-c", bind)
        assert nodes(star) == {"a", "b", "late"}
        assert min(star.ping("a", "10.0.0.3", 2)) >= 30
        star.python("a", "import socket; socket.create_connection(('10.0.0.3', 80))")
        container = star.container("late")
        assert container in {one["name"] for one in lorentz.ps()}
        changed(star, "node", "rm", "late")
        assert nodes(star) == {"a", "b"} and len(ends(star)) == 2
        assert container not in {one["name"] for one in lorentz.ps()}
        assert not processes.control_groups(container)


def test_a_switch_comes_and_goes(lab):
    changed(lab, "node", "add", "s", "--kind", "switch")
    for number, node in enumerate("ab", 1):
        changed(
            lab, "link", "add", f"{node}:eth1", f"s:{number}", "--ipv4", f"10.2.0.{number}/24,-"
        )
    assert len(lab.ping("a", "10.2.0.2", 2)) == 2
    changed(lab, "node", "rm", "s")
    assert ends(lab) == {frozenset(("a:eth0", "b:eth0"))} and not lab.status()["switches"]


def test_a_network_that_stands_still_is_changed_too(star):
    lorentz.ok("freeze", star.name)
    before = star.status()["virtual_ns"]
    changed(star, "node", "add", "late", "--link", "eth0=s:3,10.0.0.3/24")
    changed(star, "link", "add", "a:eth1", "late:eth1")
    assert star.status()["virtual_ns"] == before
    lorentz.ok("unfreeze", star.name)
    assert len(star.ping("late", "10.0.0.1", 2)) == 2


def test_in_rounds_a_new_link_has_its_exact_delay():
    with Lab("rounds: true\n" + pair("delay: 5ms")) as lab:
        changed(lab, "link", "add", "a:eth1", "b:eth1", "--delay", "3ms", "--ipv4",
                "10.1.0.1/24,10.1.0.2/24")  # fmt: skip
        # Addresses are learned first.
        lab.ping("a", "10.1.0.2", 1)
        capture = Capture(lab, "a:eth1")
        lab.ping("a", "10.1.0.2", 2)
        assert capture.round_trips(2) == [6_000_000] * 2
        wrong(lab, "delay", "link", "add", "a:eth2", "b:eth2")
        wrong(lab, "rounds", "node", "add", "late", "--", "sleep", "1")
        changed(lab, "link", "rm", "a:eth1")
        assert len(lab.ping("a", "10.0.0.2", 2)) == 2


def test_the_file_of_what_runs_makes_the_same_network(star, tmp_path):
    changed(star, "link", "add", "a:eth1", "b:eth1", "--rate", "2mbit", "--mtu", "1400")
    changed(star, "node", "add", "late", "--link", "eth0=s:3,10.0.0.3/24", "--", "sleep", "1000")
    star.set("a:eth0", "--loss", "3%")
    star.set("b:eth0", "--down")
    changed(star, "link", "rm", "a:eth1")
    before = star.status()
    file = tmp_path / "lab.yaml"
    file.write_text(lorentz.ok("inspect", star.name, "--yaml"))
    lorentz.ok("down", star.name)
    lorentz.ok("up", str(file))
    after = star.status()

    def shape(status: dict) -> object:
        way = ("from", "to", "impairments")
        links = [
            (
                link["up"],
                link["mtu"],
                [{key: one[key] for key in way} for one in link["directions"]],
            )
            for link in status["links"]
        ]
        return sorted(json.dumps(link) for link in links), status["switches"]

    assert shape(after) == shape(before)
    assert {one["name"] for one in after["nodes"]} == {"a", "b", "late"}


def broadcasts_heard(lab: Lab) -> list[int]:
    """Has a send broadcasts. Returns the numbers of those that arrive at b."""
    hears = lab.start("b", "python3", "-u", "-c", HEAR)
    assert hears.stdout.readline() == "listens\n"
    lab.python("a", CALL)
    return json.loads(hears.communicate(timeout=60)[0])


def carried(lab: Lab, end: str) -> int:
    """The number of frames that a link has carried, both ways."""
    ways = [link["directions"] for link in lab.status()["links"]]
    both = next(way for way in ways if end in (way[0]["from"], way[1]["from"]))
    return sum(one["counts"]["delivered"] for one in both)


def test_a_link_that_closes_a_loop_beside_a_spanning_tree_carries_no_storm():
    with Lab(TREE) as lab:
        wrong(lab, "no link ends there", "link", "rm", "s:3")
        with Talk(lab):
            changed(lab, "link", "add", "s:3", "t:3", "--delay", "1ms")
            # Longer than a port listens and learns.
            lab.run("a", "sleep", 40)
            # Each broadcast arrives, once.
            assert broadcasts_heard(lab) == list(range(BROADCASTS))
        # The tree has the older link. The new one carries hellos alone, one every 2 s.
        before = carried(lab, "s:3"), carried(lab, "s:2")
        lab.run("a", "ping", "-q", "-c", 40, "-i", 0.5, "10.0.0.2")
        assert carried(lab, "s:2") - before[1] >= 2 * 40
        assert carried(lab, "s:3") - before[0] < 40
        # Without the older link the new one has the frames.
        changed(lab, "link", "rm", "s:2")
        lab.run("a", "sleep", 60)
        assert broadcasts_heard(lab) == list(range(BROADCASTS))


def test_changes_to_come_of_a_link_go_with_it():
    schedule = "schedule: [{at: 1h, link: 'a:eth1', set: {delay: 9ms}}]\n"
    more = "    - {endpoints: ['a:eth1', 'b:eth1']}\n"
    with Lab(pair("delay: 1ms") + more + schedule) as lab:
        assert lab.status()["changes_to_come"] == 1
        changed(lab, "link", "rm", "b:eth1")
        assert lab.status()["changes_to_come"] == 0
        lorentz.ok("leap", lab.name, "--by", "2h")
        assert lab.status()["changes_refused"] == []


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("no node", ("link", "add", "a:eth1", "c:eth0")),
        ("has a link already", ("link", "add", "a:eth0", "b:eth1")),
        ("loopback", ("link", "add", "a:lo", "b:eth1")),
        ("loop of switches", ("link", "add", "s:8", "s:9")),
        ("expected an address", ("link", "add", "a:eth1", "b:eth1", "--ipv4", "10.1,-")),
        ("no link ends there", ("link", "rm", "a:eth7")),
        ("is there already", ("node", "add", "a")),
        ("no such node", ("node", "rm", "c")),
        ("no node", ("node", "add", "c", "--link", "eth0=d:1")),
        ("not found", ("node", "add", "c", "--link", "eth0=s:3", "--", "no-such-program")),
        ("runs nothing", ("node", "add", "c", "--kind", "hub", "--", "sleep", "1")),
        ("interface eth9", ("link", "add", "a:eth9", "b:eth1")),
    ],
)
def test_what_is_wrong_changes_nothing(star, names, words):
    if "a:eth9" in words:
        # A program inside has made an interface of that name.
        star.run("a", "ip", "link", "add", "eth9", "type", "veth", "peer", "name", "eth8")
    wrong(star, names, *words)
    assert len(star.ping("a", "10.0.0.2", 1)) == 1
    assert star.call("b", "ip", "link", "show", "eth1").returncode != 0


def test_a_node_whose_lines_fail_does_not_stay(star):
    before = lorentz.ok("inspect", star.name, "--yaml")
    late = ("node", "add", "--network", star.name, "late", "--link", "eth0=s:3", "--exec", "false")
    failed = lorentz.call(*late)
    assert failed.returncode != 0 and "exec" in failed.stderr
    assert lorentz.ok("inspect", star.name, "--yaml") == before
    assert nodes(star) == {"a", "b"}


def test_clients_that_change_a_network_at_once_wait_for_each_other(star):
    def add(number: int) -> subprocess.Popen:
        late = ("node", "add", "--network", star.name, f"n{number}", "--link", f"eth0=s:{number}")
        return star.popen([*lorentz.session.command(), *late])

    clients = [add(number) for number in range(10, 18)]
    assert [client.wait(60) for client in clients] == [0] * 8
    assert len(nodes(star)) == 10 and len(ends(star)) == 10


def test_a_private_node_comes_and_goes(star, tmp_path):
    changed(star, "node", "add", "late", "--private", "--link", "eth0=s:3,10.0.0.3/24")
    assert len(star.ping("a", "10.0.0.3", 1)) == 1
    trace = Path(f"/var/tmp/{star.name}")
    star.run("late", "touch", trace)
    assert not trace.exists()
    changed(star, "node", "rm", "late")
    assert nodes(star) == {"a", "b"}


def test_a_changed_file_is_applied_as_a_whole(star):
    star.file.write_text(
        star.text.replace("b: {}", "late: {command: [sleep, '1000']}, t: {kind: switch}").replace(
            "    - {endpoints: ['b:eth0', 's:2'], ipv4: [10.0.0.2/24, null]}",
            "    - {endpoints: ['late:eth0', 't:1'], ipv4: [10.0.0.3/24, null]}\n"
            "    - {endpoints: ['t:2', 's:2'], delay: 10ms}",
        )
    )
    star.set("a:eth0", "--delay", "20ms")
    lorentz.ok("up", "--update", str(star.file))
    assert nodes(star) == {"a", "late"} and set(star.status()["switches"]) == {"s", "t"}
    # The link that stays has kept its setting: 5 and 20, and 20 for the way between the switches.
    assert min(star.ping("a", "10.0.0.3", 2)) >= 45
    lorentz.ok("up", "--update", str(star.file))
    star.file.write_text(star.file.read_text().replace("'1000'", "'2000'"))
    refusal(lorentz.call("up", "--update", str(star.file)), "differs from the one that runs")
    star.file.write_text(star.file.read_text().replace("topology:", "tdf: 7\ntopology:"))
    refusal(lorentz.call("up", "--update", str(star.file)), "tdf: differs")
    star.file.write_text(star.text.replace("name: ", "name: no-"))
    refusal(lorentz.call("up", "--update", str(star.file)), "no such network")


def test_timers_of_new_interfaces_follow_the_clock():
    """The kernel gives a new interface the host's."""
    with Lab("tdf: 10\n" + pair("delay: 1ms")) as lab:
        changed(lab, "link", "add", "a:eth1", "b:eth1")
        changed(lab, "node", "add", "late", "--link", "eth0=a:eth2")
        file = "/proc/sys/net/ipv4/neigh/{}/retrans_time_ms"
        for node, interface in (("a", "eth0"), ("a", "eth1"), ("a", "eth2"), ("late", "eth0")):
            assert lab.run(node, "cat", file.format(interface)) == "10000\n", (node, interface)


# Changes to come of a network that runs

LATER = "{at: 1h, link: a:eth0, state: down}"


def to_come(lab: Lab) -> list[str]:
    return lorentz.ok("schedule", "show", "--network", lab.name).splitlines()


def test_changes_are_scheduled_while_it_runs(lab):
    """They come at their instants, beside those that were there, and stand in the file."""
    changed(lab, "schedule", "add", LATER)
    soon = "{at: 300ms, link: 'a:eth0', set: {delay: 20ms}, both: true}"
    changed(lab, "schedule", "add", "--from-now", soon)
    first, last = to_come(lab)
    assert "both: true" in first and "delay: 20ms" in first and last == LATER
    assert "state: down" in lorentz.ok("inspect", lab.name, "--yaml")
    lab.wait_until(lambda: lab.status()["changes_to_come"] == 1, "the first change")
    assert 40 <= min(lab.ping("a", "10.0.0.2", 2)) < 60
    assert to_come(lab) == [LATER]
    changed(lab, "schedule", "add", LATER.replace("1h", "2h"))
    changed(lab, "schedule", "rm", "{at: 60m, state: down, link: 'a:eth0'}")
    assert to_come(lab) == [LATER.replace("1h", "2h")]
    changed(lab, "schedule", "move", LATER.replace("1h", "2h"), "3h")
    assert to_come(lab) == [LATER.replace("1h", "3h")]
    wrong(lab, "at 1ms: is past", "schedule", "move", LATER.replace("1h", "3h"), "1ms")
    wrong(lab, "no such change", "schedule", "rm", LATER)
    changed(lab, "schedule", "clear")
    assert to_come(lab) == []
    assert lab.status()["changes_refused"] == []


def test_a_schedule_comes_in_the_place_of_another(lab, tmp_path):
    """Changes that have come stay in the file, and do not come again."""
    changed(lab, "schedule", "add", "--from-now", "{at: 100ms, link: 'a:eth0', set: {delay: 5ms}}")
    changed(lab, "schedule", "add", LATER)
    lab.wait_until(lambda: lab.status()["changes_to_come"] == 1, "the first change")
    lab.set("a:eth0", "--delay", "2ms")
    file = tmp_path / "other.yaml"
    file.write_text("name: x\nschedule: [{at: 2h, link: 'b:eth0', set: {loss: 10%}}]\n")
    changed(lab, "schedule", "set", file)
    assert to_come(lab) == ["{at: 2h, link: b:eth0, set: {loss: 10%}}"]
    assert "delay: 5ms" in lorentz.ok("inspect", lab.name, "--yaml")
    assert lab.direction("a:eth0")["impairments"]["delay"] == "2ms"
    lorentz.ok("leap", lab.name, "--by", "2h")
    lab.wait_until(lambda: lab.direction("b:eth0")["impairments"].get("loss"), "the loss")
    assert lab.link()["up"]


def test_an_update_takes_the_schedule_over(lab):
    text = lorentz.ok("inspect", lab.name, "--yaml")
    lab.file.write_text(f"{text}schedule: [{LATER}]\n")
    lorentz.ok("up", "--update", str(lab.file))
    assert to_come(lab) == [LATER]
    lab.file.write_text(text)
    lorentz.ok("up", "--update", str(lab.file))
    assert to_come(lab) == []
    lab.file.write_text(f"{text}schedule: [{LATER}, {{at: 1ms, link: 'a:eth0', state: down}}]\n")
    refusal(lorentz.call("up", "--update", str(lab.file)), "at 1ms: is past")
    assert to_come(lab) == []


@pytest.mark.parametrize(
    ("names", "change"),
    [
        ("at 1ms: is past", "{at: 1ms, link: 'a:eth0', state: down}"),
        ("no link ends there", "{at: 1h, link: 'a:eth7', state: down}"),
        ("movements", "{at: 1h, node: a, position: [1, 2]}"),
        ("changes nothing", "{at: 1h, link: 'a:eth0'}"),
        ("rounds: true", "{at: 1h, clock: a, bump: +90s}"),
        ("field `at`", "{link: 'a:eth0', state: down}"),
        ("CHANGE", "soon"),
        ("1d", "{at: 2d, link: 'a:eth0', state: down}"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(lab, names, change):
    wrong(lab, names, "schedule", "add", LATER, change)
    assert to_come(lab) == []


def test_clocks_are_scheduled_while_rounds_run():
    """At their very instant: a bump of 90 s, and the truth."""
    with Lab("rounds: true\nrate: 4\n" + pair("delay: 1ms")) as lab:
        changed(lab, "schedule", "add", "--from-now", "{at: 2s, clock: a, bump: +90s}")
        lab.wait_until(lambda: lab.status()["changes_to_come"] == 0, "the bump")
        assert lab.status()["changes_refused"] == []
        shown = lorentz.json_of("clock", "show", lab.container("a"))
        assert shown["offset_ns"] == 90_000_000_000
        assert lorentz.json_of("clock", "show", lab.container("b"))["offset_ns"] == 0
