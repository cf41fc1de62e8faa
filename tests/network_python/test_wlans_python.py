"""Wireless LANs from Python: their members, movements of nodes, and what is wrong with them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from framework import needs
from framework.linked import in_this_process
from framework.networks import TIMEOUT
from lorentz import Network, Node, WrongInputError


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_this_process(monkeypatch, "taps", "inspect"):
        yield


def row(**options: object) -> tuple[Network, list[Node]]:
    """Three nodes in a row: the first and the last hear that in the middle alone."""
    network = Network(**options)
    air = network.wlan("air", range=121, rate="54mbit", delay="5ms", position=(100, 100))
    nodes = [network.node(name, position=(x, 0)) for x, name in ((0, "a"), (100, "b"), (200, "c"))]
    for at, node in enumerate(nodes, start=1):
        network.link(node, air, ipv4=[f"10.0.0.{at}/24", None])
    return network, nodes


def reaches(node: Node, last: int) -> bool:
    """Whether one of three echoes to 10.0.0.LAST comes back."""
    words = [needs.tool("ping"), "-c", "3", "-i", "0.2", "-W", "2", f"10.0.0.{last}"]
    return node.run(words, capture_output=True).returncode == 0


def heard(network: Network, member: str) -> list[str]:
    return network.status()["wlans"]["air"]["hears"][member]


def wait_until_heard(network: Network, member: str, expected: list[str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while (found := heard(network, member)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.parametrize("rounds", [False, True], ids=["clock", "rounds"])
def test_members_in_range_reach_each_other_and_others_do_not(rounds):
    network, (a, b, _) = row(rounds=rounds)
    with network:
        assert heard(network, "b") == ["a", "c"]
        assert reaches(a, 2) and reaches(b, 3)
        assert not reaches(a, 3)
        positions = network.status()["positions"]
        assert positions == {"a": [0, 0], "b": [100, 0], "c": [200, 0], "air": [100, 100]}


def test_nodes_move_by_the_schedule():
    network, (a, _, c) = row()
    link = network.links[1]
    network.schedule("1s", node=c, position=(100, 0), speed=50)
    network.schedule(2, node="b", position=(0, 500))
    network.schedule(2, link=link.ends[1], set={"delay": 0.5, "rate": 10**6})
    network.mobility(refresh="100ms")
    with network:
        wait_until_heard(network, "a", ["c"])
        assert reaches(a, 3) and not reaches(a, 2)
        wait_until_heard(network, "b", [])
        impairments = [way["impairments"] for way in link.show()["directions"]]
        assert [(one.get("delay"), one.get("rate")) for one in impairments] == [
            (None, None),
            ("500ms", "1mbit"),
        ]


@pytest.mark.parametrize("how", ["built", "file"])
def test_nodes_move_by_a_script(how, tmp_path, monkeypatch):
    """A script's name is relative to the working directory, or to the file that names it."""
    (tmp_path / "walk.ns2").write_text('$ns_ at 0.5 "$node_(7) setdest 100.0 0.0 100.0"\n')
    if how == "built":
        monkeypatch.chdir(tmp_path)
        network, (*_, c) = row()
        network.mobility("walk.ns2", start="500ms", map={7: c}, refresh=0.1)
    else:
        (tmp_path / "lab.yaml").write_text(
            "name: wlan-python\ntopology:\n  nodes:\n    a: {position: [0, 0]}\n"
            "    n7: {position: [200, 0]}\n    air: {kind: wlan, radio: {range: 121}}\n"
            "  links: [{endpoints: ['a:eth0', 'air:1']}, {endpoints: ['n7:eth0', 'air:2']}]\n"
            "mobility: {scripts: [{file: walk.ns2, start: 500ms}]}\n"
        )
        network = Network.from_file(tmp_path / "lab.yaml")
    with network:
        wait_until_heard(network, "a", ["b", "c"] if how == "built" else ["n7"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"range": 0}, "node air: radio: range: 0: expected a distance above 0"),
        ({"range": "far"}, "node air: radio: range: "),
        ({"rate": "fast"}, "node air: radio: rate: "),
        ({"colour": "red"}, "node air: radio: colour: unknown field"),
        ({"position": [1]}, "node air: position: "),
    ],
)
def test_what_is_wrong_with_a_wlan_names_the_key(options, words):
    network = Network()
    network.wlan("air", **{"range": 100, **options})
    with pytest.raises(WrongInputError) as raised:
        network.up()
    assert str(raised.value).startswith(words), raised.value


def test_a_member_needs_a_position():
    network = Network()
    network.link(network.node("a"), network.wlan("air", range=100))
    with pytest.raises(WrongInputError, match="^node a: a member of the wlan air; expected a posi"):
        network.up()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"node": "d", "position": (0, 0)}, "schedule: node: d: no such node"),
        ({"node": "a"}, "schedule: node a: expected a position"),
        ({"node": "a", "position": (0, 0), "speed": 0}, "schedule: speed: 0: "),
        ({"node": "a", "position": (0, 0), "speed": "fast"}, "schedule: speed: "),
        ({"link": "a:eth0", "set": {"loss": 1}}, "schedule: set: loss: "),
        ({"link": "a:eth9", "state": "up"}, "schedule: link: a:eth9: no link ends there"),
    ],
)
def test_what_is_wrong_with_a_change_names_the_key(change, words):
    network, _ = row()
    network.schedule("1s", **change)
    with pytest.raises(WrongInputError) as raised:
        network.up()
    assert str(raised.value).startswith(words), raised.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"refresh": 0}, "mobility: refresh: 0s: expected a duration of 1ms or more"),
        ({"file": "gone.ns2"}, "mobility: scripts: file: "),
        ({"file": __file__}, f"{__file__}:1:1: no movement in it"),
    ],
)
def test_what_is_wrong_with_a_script_names_it(options, words):
    network, _ = row()
    network.mobility(**options)
    with pytest.raises(WrongInputError) as raised:
        network.up()
    assert str(raised.value).startswith(words), raised.value
