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
_MEANS |= {"inNamespace"}
_MEANS |= {"txo", "txo1", "txo2", "rxo", "rxo1", "rxo2", "gro", "intf", "isSwitch"}

#: Options of a switch that tell how OpenFlow reaches it. Lorentz's switches learn by themselves.
_OF_SWITCHES = {"dpid", "protocols", "failMode", "datapath", "listenPort", "reconnectms", "batch"}
#: A line that changes its shell, or tells its jobs apart.
_IN_ONE_SHELL = re.compile(
    r"(^|[;&|]\s*)(cd|export|source|\.|alias|umask|ulimit|unset|set)\s|\$!"
    r"|\b(kill|wait|fg|disown)\s+(-\S+\s+)?%"
)
#: Classes of hosts that configure nothing.
_PLAIN = ("Host", "Node", "CPULimitedHost", "Docker")
_FORWARDING = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}


def build(network: Network, topo: object) -> None:
    """Adds the hosts, switches and links of a Topo to a network."""
    addresses: dict[str, str | None] = {}
    macs: dict[str, str] = {}
    links = list(topo.links(withInfo=True))
    is_private = network.topology.get("isolation") == "private"
    for number, host in enumerate(topo.hosts(), start=1):
        said = dict(topo.nodeInfo(host))
        # Mininet gives a host whose ip is None no address.
        addresses[host] = _address(said.pop("ip", ""), number)
        if mac := said.pop("mac", None):
            macs[host] = mac
        exec = [*_private_directories(host, said, is_private), *said.pop("exec", ())]
        sysctls = _class(network, host, said, exec)
        if route := said.pop("defaultRoute", None):
            way = route if " " in route else f"dev {route}"
            exec.insert(0, f"ip route replace default {way}")
        options = {**_image(said), **_shell(exec)}
        _leave_out(network, host, said)
        if any(re.search(r"\bmount\b", line) for line in exec) and not is_private:
            # With a bind a node has mounts of its own, as a node of Mininet has.
            options.setdefault("binds", []).append("/dev/null:/dev/null")
        network.node(host, sysctls=sysctls, **{"exec": exec, **options})
    switches = list(topo.switches())
    has_loop = _has_loop(switches, [(a, b) for a, b, _ in links])
    for switch in switches:
        said = dict(topo.nodeInfo(switch))
        stp = bool(said.pop("stp", False))
        _leave_out(network, switch, {key: said[key] for key in said if key not in _OF_SWITCHES})
        network.switch(switch, stp=has_loop or stp)
    for a, b, said in links:
        _link(network, (said.get("node1", a), said.get("node2", b)), dict(said), addresses, macs)
    for host in topo.hosts():
        said = topo.nodeInfo(host)
        ends = [end for link in links for end in link[:2]]
        if _is_nat(said.get("cls")) and ends.count(host) < 2:
            network.left_out.append(f"{host}: its way out of the network")


def _class(network: Network, host: str, said: dict, exec: list[str]) -> dict[str, int]:
    """Takes a host's class and its parameters. Returns its sysctls, and adds to its lines."""
    cls = said.pop("cls", None)
    if _is_nat(cls):
        subnet = said.pop("subnet", None) or "10.0.0.0/8"
        if subnet == "10.0/8":
            subnet = "10.0.0.0/8"
        for key in ("inetIntf", "localIntf", "flush"):
            said.pop(key, None)
        # By networks and not by interfaces: the rest of the network may be at any of them.
        masquerade = "iptables -t nat -A POSTROUTING"
        exec.append(f"{masquerade} -s {subnet} ! -d {subnet} -j MASQUERADE")
        return dict(_FORWARDING)
    if cls is None or getattr(cls, "__name__", "") in _PLAIN:
        return {}
    if _forwards(cls):
        return dict(_FORWARDING)
    network.left_out.append(f"{host}: cls={getattr(cls, '__name__', cls)}")
    return {}


def _private_directories(host: str, said: dict, is_private: bool) -> list[str]:
    """Takes the directories that a host has for itself. Returns the lines that mount them."""
    lines = []
    for one in said.pop("privateDirs", None) or []:
        if is_private:
            # A private node has all files for itself.
            lines.append(f"mkdir -p {one if isinstance(one, str) else one[0]}")
        elif isinstance(one, str):
            lines.append(f"mkdir -p {one} && mount -n -t tmpfs tmpfs {one}")
        else:
            target, source = one[0], one[1] % {**said, "name": host}
            lines.append(f"mkdir -p {source} {target} && mount --bind {source} {target}")
    return lines


def _shell(exec: list[str]) -> dict:
    """Returns options of a node whose lines need one shell for all, as Mininet has; else none."""
    if not any(_IN_ONE_SHELL.search(line) for line in exec):
        return {}
    return {"exec": ["\n".join(exec)], "shell": "bash"}


def _image(said: dict) -> dict:
    """Takes the parameters of a container of Containernet. Returns options of a node."""
    if not (image := said.pop("dimage", None)):
        return {}
    options: dict = {"image": image}
    if command := said.pop("dcmd", None):
        options["command"] = command
    if env := said.pop("environment", None):
        options["env"] = {key: str(value) for key, value in env.items()}
    if volumes := said.pop("volumes", None):
        options["binds"] = [one.removesuffix(":rw") for one in volumes]
    return options


def _is_nat(cls: object) -> bool:
    return any(one.__name__ == "NAT" for one in getattr(cls, "__mro__", ()))


def _link(
    network: Network,
    nodes: tuple[str, str],
    said: dict,
    addresses: dict[str, str | None],
    macs: dict[str, str],
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
        mac.append(given["addr"] or params.pop("mac", None) or macs.pop(node, None))
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
    if said.pop("enable_ecn", False):
        # Mininet's is RED that marks.
        queue |= {"discipline": "red", "ecn": True}
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
    """Returns the address of a host: `given`; where it is empty, that of host `number`, from 1."""
    if given is None:
        return None
    if not given:
        a, b = divmod(number, 1 << 16)
        return f"10.{a}.{b >> 8}.{b & 255}/8"
    return given if "/" in given else f"{given}/8"


def _leave_out(network: Network, who: str, said: dict) -> None:
    rest = {key: value for key, value in said.items() if key not in _MEANS}
    network.left_out.extend(
        f"{who}: {key}={value!r}" for key, value in rest.items() if value is not None
    )
