"""Mininet's topologies, as programs of Mininet see them where Mininet is not there."""

from __future__ import annotations

import re


def natural(text: object) -> list:
    """Returns a key by which h10 is behind h9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(text))]


class Topo:
    """A topology."""

    def __init__(self, *arguments: object, **params: object) -> None:
        self._info: dict[str, dict] = {}
        self._links: list[dict] = []
        self._ports: dict[str, int] = {}
        self.hopts = params.pop("hopts", {})
        self.sopts = params.pop("sopts", {})
        self.lopts = params.pop("lopts", {})
        self.build(*arguments, **params)

    def build(self, *_: object, **__: object) -> None:
        """Is the program's."""

    def addNode(self, name: str, **options: object) -> str:
        self._info[name] = options
        return name

    def addHost(self, name: str, **options: object) -> str:
        return self.addNode(name, **(options or dict(self.hopts)))

    def addSwitch(self, name: str, **options: object) -> str:
        return self.addNode(name, isSwitch=True, **(options or dict(self.sopts)))

    def addLink(
        self,
        node1: str,
        node2: str,
        port1: int | None = None,
        port2: int | None = None,
        key: object = None,
        **options: object,
    ) -> dict:
        said = {**(options or self.lopts), "node1": node1, "node2": node2}
        said["port1"], said["port2"] = self._port(node1, port1), self._port(node2, port2)
        self._links.append(said)
        return said

    # Names of Mininet 1.
    add_host, add_switch, add_link = addHost, addSwitch, addLink

    def removeLink(self, said: dict) -> None:
        self._links = [one for one in self._links if one is not said]

    def removeNode(self, name: str) -> None:
        del self._info[name]

    def firstPort(self, name: str, port: int) -> None:
        """Sets the number of a node's first interface, where links give none."""
        self._ports.setdefault(name, port)

    def _port(self, node: str, given: int | None) -> int:
        port = self._ports.get(node, int(self.isSwitch(node))) if given is None else given
        self._ports[node] = max(self._ports.get(node, 0), port + 1)
        return port

    def isSwitch(self, name: str) -> bool:
        return bool(self._info[name].get("isSwitch"))

    def nodes(self, sort: bool = True) -> list[str]:
        return sorted(self._info, key=natural) if sort else list(self._info)

    def hosts(self, sort: bool = True) -> list[str]:
        return [name for name in self.nodes(sort) if not self.isSwitch(name)]

    def switches(self, sort: bool = True) -> list[str]:
        return [name for name in self.nodes(sort) if self.isSwitch(name)]

    def links(self, *_: object, withInfo: bool = False, **__: object) -> list[tuple]:
        ends = [(one["node1"], one["node2"], one) for one in self._links]
        return ends if withInfo else [one[:2] for one in ends]

    iterLinks = links

    def port(self, a: str, b: str) -> tuple[int, int]:
        """Returns the ports of the first link of two nodes, that of `a` first."""
        said = self.linkInfo(a, b)
        ports = said["port1"], said["port2"]
        return ports if said["node1"] == a else ports[::-1]

    def nodeInfo(self, name: str) -> dict:
        return self._info[name]

    def setNodeInfo(self, name: str, info: dict) -> None:
        self._info[name] = info

    def linkInfo(self, a: str, b: str, key: object = None) -> dict:
        return next(one for one in self._links if {one["node1"], one["node2"]} == {a, b})


class SingleSwitchTopo(Topo):
    """Hosts at one switch."""

    def build(self, k: int = 2, **_: object) -> None:
        switch = self.addSwitch("s1")
        for number in range(1, k + 1):
            self.addLink(self.addHost(f"h{number}"), switch)


class SingleSwitchReversedTopo(Topo):
    """Hosts at one switch, the first one at its last port."""

    def build(self, k: int = 2) -> None:
        switch = self.addSwitch("s1")
        for number in range(1, k + 1):
            self.addLink(self.addHost(f"h{number}"), switch, port1=0, port2=k - number + 1)


class LinearTopo(Topo):
    """A row of switches with hosts at each."""

    def build(self, k: int = 2, n: int = 1, **_: object) -> None:
        last = None
        for at in range(1, k + 1):
            switch = self.addSwitch(f"s{at}")
            for number in range(1, n + 1):
                name = f"h{at}" if n == 1 else f"h{number}s{at}"
                self.addLink(self.addHost(name), switch)
            if last:
                self.addLink(switch, last)
            last = switch


class TreeTopo(Topo):
    """A tree of switches with hosts as its leaves."""

    def build(self, depth: int = 1, fanout: int = 2) -> None:
        self._tree(depth, fanout, {"s": 0, "h": 0})

    def _tree(self, depth: int, fanout: int, counts: dict[str, int]) -> str:
        kind = "s" if depth else "h"
        counts[kind] += 1
        name = f"{kind}{counts[kind]}"
        if not depth:
            return self.addHost(name)
        self.addSwitch(name)
        for _ in range(fanout):
            self.addLink(name, self._tree(depth - 1, fanout, counts))
        return name


class TorusTopo(Topo):
    """A grid of switches, each with `n` hosts, whose borders are joined."""

    def build(self, x: int = 3, y: int = 3, n: int = 1) -> None:
        places = [(i, j) for i in range(x) for j in range(y)]
        names = {(i, j): self.addSwitch(f"s{i + 1}x{j + 1}") for i, j in places}
        for (i, j), switch in names.items():
            for number in range(1, n + 1):
                name = f"h{i + 1}x{j + 1}" + (f"x{number}" if n > 1 else "")
                self.addLink(self.addHost(name), switch)
        for (i, j), switch in names.items():
            self.addLink(switch, names[i, (j + 1) % y])
            self.addLink(switch, names[(i + 1) % x, j])


#: Stand-ins for the classes of Mininet that have the same names.
CLASSES = (Topo, SingleSwitchTopo, SingleSwitchReversedTopo, LinearTopo, TreeTopo, TorusTopo)
