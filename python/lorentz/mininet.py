"""Builds networks from Mininet's topologies. Mininet itself is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lorentz.networks import Network

#: Keys of a Mininet link that identify its ends.
_ENDS = {"node1", "node2", "port1", "port2"}


def build(network: Network, topo: object) -> None:
    """Adds the hosts, switches and links of a Topo to a network."""
    addresses: dict[str, str] = {}
    for number, host in enumerate(topo.hosts(), start=1):
        said = dict(topo.nodeInfo(host))
        addresses[host] = _address(said.pop("ip", None), number)
        _leave_out(network, host, said)
        network.node(host)
    for switch in topo.switches():
        _leave_out(network, switch, {**topo.nodeInfo(switch), "isSwitch": None})
        network.switch(switch)
    for a, b, said in topo.links(withInfo=True):
        # The ends in the order of addLink, to which the ports refer.
        a, b = said.get("node1", a), said.get("node2", b)
        ends = [f"{node}:{node}-eth{said[port]}" for node, port in ((a, "port1"), (b, "port2"))]
        # A host has its address on its first interface.
        ipv4 = [addresses.pop(node, None) for node in (a, b)]
        rest = {key: value for key, value in said.items() if key not in _ENDS}
        options = _options(rest)
        _leave_out(network, f"{a} - {b}", rest)
        network.link(*ends, ipv4=ipv4 if any(ipv4) else None, **options)


def _options(said: dict) -> dict:
    """Converts Mininet's link options to ours. Removes those from `said`."""
    options: dict = {}
    if (bw := said.pop("bw", None)) is not None:
        options["rate"] = round(bw * 1_000_000)
    for key in ("delay", "jitter"):
        if (value := said.pop(key, None)) is not None:
            # tc reads a number without a unit in microseconds.
            is_bare = str(value).replace(".", "", 1).isdigit()
            options[key] = f"{value}us" if is_bare else value
    if loss := said.pop("loss", None):
        options["loss"] = f"{loss}%"
    if packets := said.pop("max_queue_size", None):
        options["queue"] = {"packets": packets}
    return options


def _address(given: str | None, number: int) -> str:
    """Returns the address of a host: `given`, or that of host number `number`, from 1."""
    if given is None:
        a, b = divmod(number, 1 << 16)
        return f"10.{a}.{b >> 8}.{b & 255}/8"
    return given if "/" in given else f"{given}/8"


def _leave_out(network: Network, who: str, said: dict) -> None:
    rest = [f"{who}: {key}={value!r}" for key, value in said.items() if value is not None]
    network.left_out.extend(rest)
