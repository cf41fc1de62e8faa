"""Builds networks from Mininet's topologies. Mininet itself is not needed."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lorentz.networks import Network

#: Keys of a Mininet link that identify its ends, and its own options of each end.
_ENDS = ("node", "port", "intfName", "addr", "params")
#: Options that say by which queueing discipline, offload or class tc does what the others ask for.
_MEANS = {"cls", "cls1", "cls2", "use_htb", "use_hfsc", "use_tbf", "burst", "speedup", "fast"}
_MEANS |= {"txo", "txo1", "txo2", "rxo", "rxo1", "rxo2", "gro", "intf", "isSwitch"}


def build(network: Network, topo: object) -> None:
    """Adds the hosts, switches and links of a Topo to a network."""
    addresses: dict[str, str | None] = {}
    links = list(topo.links(withInfo=True))
    for number, host in enumerate(topo.hosts(), start=1):
        said = dict(topo.nodeInfo(host))
        addresses[host] = _address(said.pop("ip", None), number)
        sysctls, exec = {}, []
        if (cls := said.pop("cls", None)) is not None:
            if _forwards(cls):
                sysctls = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}
            elif cls.__name__ not in ("Host", "Node", "CPULimitedHost"):
                network.left_out.append(f"{host}: cls={cls.__name__}")
        if route := said.pop("defaultRoute", None):
            way = route if " " in route else f"dev {route}"
            exec.append(f"ip route replace default {way}")
        _leave_out(network, host, said)
        network.node(host, sysctls=sysctls, exec=exec)
    switches = list(topo.switches())
    has_loop = _has_loop(switches, [(a, b) for a, b, _ in links])
    for switch in switches:
        _leave_out(network, switch, topo.nodeInfo(switch))
        network.switch(switch, stp=has_loop)
    for a, b, said in links:
        _link(network, (said.get("node1", a), said.get("node2", b)), dict(said), addresses)


def _link(
    network: Network, nodes: tuple[str, str], said: dict, addresses: dict[str, str | None]
) -> None:
    """Adds a link. Its ends are in the order of addLink, to which the numbers of keys refer."""
    ends, ipv4, mac, own = [], [], [], []
    for number, node in enumerate(nodes, start=1):
        given = {key: said.pop(f"{key}{number}", None) for key in _ENDS}
        params = dict(given["params"] or {})
        name = given["intfName"] or params.pop("intfName", None) or f"{node}-eth{given['port']}"
        ends.append(f"{node}:{name}")
        # A host has its address on its first interface, unless the link says another.
        first = addresses.pop(node, None)
        ipv4.append(params.pop("ip", None) or first)
        mac.append(given["addr"] or params.pop("mac", None))
        own.append(params)
    options = _options(said)
    from_ = {}
    for end, params in zip(ends, own, strict=True):
        if different := _options(params):
            from_[end] = {key: _text(value) for key, value in different.items()}
        _leave_out(network, end, params)
    _leave_out(network, " - ".join(nodes), said)
    network.link(
        *ends,
        ipv4=ipv4 if any(ipv4) else None,
        mac=mac if any(mac) else None,
        from_=from_ or None,
        **options,
    )


def _options(said: dict) -> dict:
    """Converts Mininet's link options to ours. Removes those from `said`."""
    options: dict = {}
    bw = said.pop("bw", None)
    if bw is not None:
        options["rate"] = round(bw * 1_000_000)
    for key in ("delay", "jitter"):
        if (value := said.pop(key, None)) is not None:
            # tc reads a number without a unit in microseconds.
            is_bare = str(value).replace(".", "", 1).isdigit()
            options[key] = f"{value}us" if is_bare else value
    if loss := said.pop("loss", None):
        options["loss"] = f"{loss}%"
    queue: dict = {}
    if packets := said.pop("max_queue_size", None):
        queue["packets"] = packets
    if (latency := said.pop("latency_ms", None)) and bw:
        # tbf queues as much as the rate sends in this time.
        queue["bytes"] = max(1, round(bw * 1_000_000 / 8 * latency / 1000))
    if said.pop("enable_red", False):
        queue["discipline"] = "red"
    if queue:
        options["queue"] = queue
    return options


def _text(value: object) -> object:
    """Returns a rate as a topology file has it; other values as they are."""
    return f"{value}bit" if isinstance(value, int) else value


def _forwards(cls: type) -> bool:
    """Whether a class of nodes switches IP forwarding on, as routers of Mininet's examples do."""
    for one in getattr(cls, "__mro__", (cls,)):
        try:
            if re.search(r"\bip_forward\b", inspect.getsource(one)):
                return True
        except (OSError, TypeError):
            continue
    return "router" in cls.__name__.lower()


def _has_loop(switches: list[str], pairs: list[tuple[str, str]]) -> bool:
    """Whether links between switches form a loop."""
    group = {name: name for name in switches}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for a, b in pairs:
        if a in group and b in group:
            if root(a) == root(b):
                return True
            group[root(a)] = root(b)
    return False


def _address(given: str | None, number: int) -> str | None:
    """Returns the address of a host: `given`, or that of host number `number`, from 1."""
    if given is None:
        a, b = divmod(number, 1 << 16)
        return f"10.{a}.{b >> 8}.{b & 255}/8"
    return given if "/" in given else f"{given}/8"


def _leave_out(network: Network, who: str, said: dict) -> None:
    rest = {key: value for key, value in said.items() if key not in _MEANS}
    network.left_out.extend(
        f"{who}: {key}={value!r}" for key, value in rest.items() if value is not None
    )
