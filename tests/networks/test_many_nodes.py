"""Many nodes on one switch, and the kernel's table of neighbours, which all of them share."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from framework import lorentz
from framework.networks import Lab

#: The number of neighbours for which the kernel has room, in all network namespaces together.
ROOM = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")

#: Lets a node ping each of `count` in turn, again after a second without a reply. Prints the number
#: of requests.
PING_ALL = """
import socket, struct

def request(number):
    plain = struct.pack("!BBHHH", 8, 0, 0, 4242, number)
    total = sum(struct.unpack("!4H", plain))
    return struct.pack("!BBHHH", 8, 0, 0xffff - total % 0xffff, 4242, number)

def answers(to, number):
    sock.sendto(request(number), (to, 0))
    try:
        while True:
            data, (who, _) = sock.recvfrom(2048)
            if who == to and data[20] == 0 and data[24:28] == struct.pack("!HH", 4242, number):
                return True
    except TimeoutError:
        return False

sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.settimeout(1)
requests = 0
for node in range({count}):
    to = f"10.0.{{node // 200}}.{{node % 200 + 1}}"
    for again in range(20):
        requests += 1
        if answers(to, again * 1000 + node):
            break
    else:
        raise SystemExit(f"{{to}} does not answer")
print(requests)
"""


#: A neighbour that was there lately is kept for half a minute and looked for again, and the table
#: may be too small for that: here for a second, and it is not.
FORGETFUL = """sysctls: {net.ipv4.neigh.eth0.base_reachable_time_ms: '1000',
    net.ipv4.neigh.eth0.delay_first_probe_time: '0'}"""


def on_a_switch(count: int, node: str = "") -> str:
    """Returns a topology: nodes n0, n1 and so on, each with the lines `node`, joined by one
    switch."""
    nodes = ", ".join(f"n{i}: {{{node}}}" for i in range(count))
    links = "".join(
        f"    - {{endpoints: ['n{i}:eth0', 's:{i}'], "
        f"ipv4: [10.0.{i // 200}.{i % 200 + 1}/16, null]}}\n"
        for i in range(count)
    )
    return f"topology:\n  nodes: {{{nodes}, s: {{kind: switch}}}}\n  links:\n{links}"


# Meanwhile other networks on this machine have no room for their neighbours: their frames are lost.
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_fifty_nodes_ping_all_pairs():
    """No frame is lost by a link; the kernel drops some where it has no room for a neighbour."""
    count = 50
    with Lab(on_a_switch(count, FORGETFUL)) as lab:
        code = PING_ALL.format(count=count)
        requests = sum(int(lab.python(f"n{node}", code)) for node in range(count))
        assert requests < 1.1 * count * count
        ways = [way for link in lab.status()["links"] for way in link["directions"]]
        assert len(ways) == 2 * count and all(way["counts"]["sent"] >= count for way in ways)
        lost = [way["counts"][how] for way in ways for how in ("lost", "dropped", "cut")]
        assert sum(lost) + sum(way["refused"] for way in ways) == 0


def test_up_tells_where_the_kernel_has_no_room_for_all_neighbours(tmp_path: Path):
    room = int(ROOM.read_text())
    most = (1 + math.isqrt(1 + 4 * room)) // 2
    if most > 999:
        pytest.skip(f"{ROOM} is {room}: networks have at most 1000 nodes, and need no more")
    file = tmp_path / "lab.yaml"
    for count, is_told in ((most, False), (most + 1, True)):
        file.write_text("name: lab\n" + on_a_switch(count))
        done = lorentz.call("up", "--check", str(file))
        assert done.returncode == 0 and done.stderr.count("\n") == is_told, done
        assert not is_told or f"{count * (count - 1)} neighbours" in done.stderr
        advice = json.loads(lorentz.ok("up", "--check", "--json", str(file)))["advice"]
        assert is_told == bool(advice) and f"room for {room}" in (advice or f"room for {room}")
