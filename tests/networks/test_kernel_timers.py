"""The kernel's timers of neighbours, fragments and others go by the network's clock."""

from __future__ import annotations

import pytest
from framework import lorentz
from framework.networks import Lab, pair

#: Real seconds of a round trip over LINK at TDF 50. The kernel looks for a neighbour for three
#: seconds by its own time.
ROUND_TRIP = 2 * 0.040 * 50
LINK = pair("ipv6: ['fd00::1/64', 'fd00::2/64']", "delay: 40ms")


def setting(lab: Lab, name: str) -> int:
    """A setting of node a, below /proc/sys/net."""
    return int(lab.run("a", "cat", f"/proc/sys/net/{name}"))


@pytest.mark.patient
@pytest.mark.parametrize("address", ["10.0.0.2", "fd00::2"])
def test_a_neighbour_beyond_a_slow_link_is_found(address: str):
    assert ROUND_TRIP > 3
    with Lab(f"tdf: 50\n{LINK}") as lab:
        (first,) = lab.ping("a", address, 1)
    # The question and its answer, and then the echo.
    assert 160 <= first < 1000


@pytest.mark.patient
def test_neighbours_are_found_after_a_change_of_rate():
    with Lab(LINK) as lab:
        assert setting(lab, "ipv4/neigh/eth0/retrans_time_ms") == 1000
        lorentz.ok("dilate", lab.name, "--tdf", "50")
        # The emulator writes one setting after the other.
        for name, wanted in (
            ("ipv4/neigh/eth0/retrans_time_ms", 50_000),
            ("ipv6/neigh/eth0/base_reachable_time_ms", 1_500_000),
        ):
            lab.wait_until(lambda n=name, w=wanted: setting(lab, n) == w, f"{name}: {wanted}")
        assert len(lab.ping("a", "10.0.0.2", 1)) == 1


@pytest.mark.parametrize(("pace", "factor"), [("tdf: 10", 10), ("rate: 10", 0.1)])
def test_each_timer_is_as_long_as_its_virtual_length(pace: str, factor: float):
    usual = {
        "ipv4/neigh/eth0/retrans_time_ms": 1000,
        "ipv4/neigh/eth0/gc_stale_time": 60,
        "ipv6/neigh/eth0/base_reachable_time_ms": 30_000,
        "ipv4/ipfrag_time": 30,
        "ipv6/ip6frag_time": 60,
        "ipv4/tcp_fin_timeout": 60,
        "ipv4/tcp_keepalive_time": 7200,
    }
    with Lab(f"{pace}\n{LINK}") as lab:
        for name, length in usual.items():
            assert setting(lab, name) == length * factor, name


def test_a_nodes_own_settings_stay():
    own = "sysctls: {net.ipv4.neigh.eth0.retrans_time_ms: 800, net.ipv4.ipfrag_time: 11}"
    with Lab(f"tdf: 4\n{LINK}".replace("a: {}", f"a: {{{own}}}")) as lab:
        lorentz.ok("dilate", lab.name, "--tdf", "8")
        lab.wait_until(lambda: setting(lab, "ipv6/ip6frag_time") == 480, "the new rate")
        assert setting(lab, "ipv4/neigh/eth0/retrans_time_ms") == 800
        assert setting(lab, "ipv4/ipfrag_time") == 11
