"""Routing daemons, unmodified: BIRD's OSPF on a ring of routers, by the network's clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import needs
from framework.networks import Lab
from framework.ospf import Ring, own_address

pytestmark = pytest.mark.long

COUNT = 9


def two_pings(lab: Lab) -> list[float]:
    """Round-trip times from n0 to n1, ms. ping waits for its last reply no longer than for the
    others: one request each."""
    return [lab.ping("n0", own_address(1), 1)[0] for _ in range(2)]


@pytest.mark.parametrize("pace", ["rate: 2", "tdf: 2"])
def test_routers_learn_all_routes_and_go_the_other_way_after_a_cut(pace: str, tmp_path: Path):
    needs.tool("bird")
    ring = Ring(COUNT, tmp_path, "5ms")
    with Lab(f"{pace}\n{ring.topology()}") as lab:
        for router in range(COUNT):
            lab.wait_until(lambda at=router: ring.knows_all(at), f"all routes in n{router}")
        # Hellos come every 10 virtual seconds; 40 without one mean that the neighbour is dead.
        assert ring.declared_dead() == []
        assert ring.routes(0)[own_address(1)][1] == "eth0"
        assert len(two_pings(lab)) == 2

        cut = lab.status()["virtual_ns"] / 1e9
        lab.set("n0:eth0", "--down")
        for router in range(COUNT):
            lab.wait_until(lambda at=router: ring.goes_around(at), f"the other way in n{router}")
        # The routers see the carrier go, and need not wait for hellos.
        assert ring.settled() > cut
        assert ring.declared_dead() == []
        # Around the ring, and back.
        around = two_pings(lab)
    assert min(around) >= 2 * 5 * (COUNT - 1)
