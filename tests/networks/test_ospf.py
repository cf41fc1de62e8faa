"""Routing daemons, unmodified: BIRD's OSPF on a ring of routers, by the network's clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import needs
from framework.networks import Lab
from framework.oracle import HostNoise
from framework.ospf import Ring, own_address

pytestmark = pytest.mark.long

COUNT = 9
#: Virtual seconds between hellos. Two that pass each other on a link find the neighbour at the next
#: one; after that come a retransmission and an announcement put off, 5 s each. With OSPF's default
#: of 10 s these are 30 virtual seconds, a minute at TDF 2.
HELLO = 2
#: Virtual seconds without a hello after which a neighbour is dead, by OSPF's defaults.
DEAD = 40


def two_pings(lab: Lab) -> list[float]:
    """Round-trip times from n0 to n1, ms. ping waits for its last reply no longer than for the
    others: one request each."""
    return [lab.ping("n0", own_address(1), 1)[0] for _ in range(2)]


@pytest.mark.parametrize("pace", ["rate: 2", "tdf: 2"])
def test_routers_learn_all_routes_and_go_the_other_way_after_a_cut(pace: str, tmp_path: Path):
    needs.tool("bird")
    ring = Ring(COUNT, tmp_path, "5ms", HELLO)
    with HostNoise() as noise, Lab(f"{pace}\n{ring.topology()}") as lab:
        begun = lab.status()["virtual_ns"] / 1e9
        for router in range(COUNT):
            lab.wait_until(lambda at=router: ring.goes_the_shorter_way(at), f"routes in n{router}")
        # Routers exchange hellos, and tables after that; no neighbour was declared dead.
        learned = ring.settled()
        assert ring.declared_dead() == []
        assert len(two_pings(lab)) == 2

        cut = lab.status()["virtual_ns"] / 1e9
        lab.set("n0:eth0", "--down")
        for router in range(COUNT):
            lab.wait_until(lambda at=router: ring.goes_around(at), f"the other way in n{router}")
        # The routers see the carrier go, and need not wait for hellos.
        rerouted = ring.settled()
        assert ring.declared_dead() == []
        # Around the ring, and back.
        around = two_pings(lab)
    assert min(around) >= 2 * 5 * (COUNT - 1)
    # Virtual time goes on while the machine takes a processor away.
    late = noise.slack * {"rate: 2": 2, "tdf: 2": 0.5}[pace]
    assert 0 < learned < begun + DEAD + late
    assert cut < rerouted < cut + DEAD + late
