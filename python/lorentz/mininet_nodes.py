"""Mininet's nodes and interfaces, as programs of Mininet see them where Mininet is not there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lorentz.mininet_stand_ins import Link, Mininet

#: Attributes of a node by which a program reads what runs in the node.
_OUTPUT = ("monitor", "write", "sendInt", "stdout", "stdin", "shell", "pollOut", "read", "readline")


def line_of(words: tuple[object, ...]) -> str:
    """Joins the words of a command; lists among them too. Nodes are root's, without sudo too."""
    flat = [one for word in words for one in (word if isinstance(word, list | tuple) else [word])]
    return re.sub(r"^sudo\s+(?!-)", "", " ".join(str(word) for word in flat if word is not None))


class Intf:
    """An interface of a node."""

    def __init__(
        self,
        name: str,
        node: Node | None = None,
        port: int | None = None,
        link: Link | None = None,
        ip: str | None = None,
        **_: object,
    ) -> None:
        self.name, self.node, self.port, self.link, self.ip = name, node, port, link, ip
        #: The options of its link, and the number of its end there.
        self.said: dict = {}
        self.number = 0
        if link is None and node is not None and node.net is not None:
            node.net.left_out.append(f"{node}: {name}: an interface of the host")

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def setIP(self, ip: str, prefixLen: int | None = None) -> str:
        return self.node.setIP(ip, prefixLen, self)

    def setMAC(self, mac: str) -> str:
        return self.node.setMAC(mac, self)

    def IP(self) -> str | None:
        return self.ip.split("/")[0] if self.ip else None

    def isUp(self, setUp: bool = False) -> bool:
        return True

    def cmd(self, *words: object, **_: object) -> str:
        return self.node.cmd(*words)

    def ifconfig(self, *words: object) -> str:
        return self.cmd("ifconfig", self.name, *words)

    def rename(self, name: str) -> str:
        """Gives the interface another name, in the network and in earlier commands too."""
        names = self.node.nameToIntf
        old = re.compile(rf"(?<![\w.-]){re.escape(self.name)}(?![\w-])")
        self.node.lines = [old.sub(name, line) for line in self.node.lines]
        self.node.nameToIntf = {name if one is self else key: one for key, one in names.items()}
        self.name = self.said[f"intfName{self.number}"] = name
        return ""

    def config(self, **params: object) -> dict:
        """Options of a running interface: they are not applied."""
        if params and self.node.net is not None:
            self.node.net.left_out.append(f"{self}: config({params})")
        return {}

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: ""


class Node:
    """A host, switch or controller. Commands for it become lines of `exec`."""

    #: The number of its first interface.
    portBase = 0

    def __init__(self, name: str, inNamespace: bool = True, **params: object) -> None:
        self.name, self.params, self.inNamespace = name, dict(params), inNamespace
        self.lines: list[str] = []
        self.nameToIntf: dict[str, Intf] = {}
        self.intfs: dict[int, Intf] = {}
        self.ports: dict[Intf, int] = {}
        self.net: Mininet | None = None
        #: Whether a command of sendCmd may still run.
        self.waiting = False
        #: Whether no Mininet has made it.
        self.is_stray = False
        self.pid = 0

    @classmethod
    def setup(cls) -> None:
        """Is called before the first node of a class is made."""

    checkSetup = setup

    def config(self, **params: object) -> dict:
        """Addresses and routes are made from the parameters: there is nothing to do."""
        return {}

    def cmd(self, *words: object, **_: object) -> str:
        line = line_of(words).strip()
        if not line:
            return ""
        if asked := re.fullmatch(r"ovs-vsctl get Interface (\S+) ofport", line):
            intf = self.nameToIntf.get(asked[1])
            return str(self.ports.get(intf, ""))
        self.lines.append(line)
        return ""

    cmdPrint = cmd

    def pexec(self, *words: object, **_: object) -> tuple[str, str, int]:
        return self.cmd(*words), "", 0

    def popen(self, *words: object, **_: object) -> Running:
        first = words[0]
        line = shlex.join(map(str, first)) if isinstance(first, list | tuple) else line_of(words)
        self.cmd(f"{line} &")
        return Running(self.net)

    def sendCmd(self, *words: object, **_: object) -> None:
        self.cmd(f"{line_of(words)} &")
        self.waiting = True

    def waitOutput(self, *_: object, **__: object) -> str:
        """Ends the program if a command of sendCmd runs; a command of cmd has ended."""
        if self.waiting and self.net:
            self.net.finish()
        return ""

    def setIP(self, ip: str, prefixLen: int | None = 8, intf: object = None, **_: object) -> str:
        address = ip if "/" in ip else f"{ip}/{prefixLen or 8}"
        at = self.intf(intf)
        if at is None:
            self.params["ip"] = address
            return ""
        at.ip = address
        is_switch = isinstance(self, Switch) and not self.is_router
        if at.said and not is_switch and not any(at.name in line for line in self.lines):
            # It has the address from the start: commands of other nodes may come first.
            params = at.said.get(f"params{at.number}") or {}
            at.said[f"params{at.number}"] = {**params, "ip": address}
            return ""
        return self.cmd(
            f"ip address flush dev {at} scope global; ip address add {address} dev {at}"
        )

    def setMAC(self, mac: str, intf: object = None) -> str:
        return self.cmd(f"ip link set {self.intf(intf)} address {mac}")

    def setARP(self, ip: str, mac: str) -> str:
        return self.cmd(f"ip neigh replace {ip} lladdr {mac} dev {self.intf()}")

    def setDefaultRoute(self, intf: object = None) -> str:
        route = str(intf or self.intf())
        return self.cmd(f"ip route replace default {route if ' ' in route else f'dev {route}'}")

    def setHostRoute(self, ip: str, intf: object) -> str:
        return self.cmd(f"ip route replace {ip} dev {intf}")

    def linkTo(self, node: Node, link: Callable | None = None) -> Link:
        from lorentz.mininet_stand_ins import Link

        return (link or Link)(self, node)

    def add(self, intf: Intf) -> None:
        """Adds an interface that a link has made."""
        self.nameToIntf[intf.name] = self.intfs[intf.port] = intf
        self.ports[intf] = intf.port

    def intf(self, intf: object = None) -> Intf | None:
        """Returns the interface of this name, or the first one."""
        if intf is not None and str(intf):
            return self.nameToIntf.get(str(intf))
        return next(iter(self.nameToIntf.values()), None)

    def defaultIntf(self) -> Intf | None:
        return self.intf()

    def intfList(self) -> list[Intf]:
        return list(self.nameToIntf.values())

    def intfNames(self) -> list[str]:
        return list(self.nameToIntf)

    def connectionsTo(self, other: Node) -> list[tuple[Intf, Intf]]:
        links = self.net.links if self.net else []
        ends = [(link.intf1, link.intf2) for link in links]
        ends += [(b, a) for a, b in ends]
        return [(a, b) for a, b in ends if a.node is self and b.node is other]

    def IP(self, intf: object = None) -> str | None:
        at = self.intf(intf)
        address = (at.ip if at else None) or self.params.get("ip")
        return str(address).split("/")[0] if address else None

    def MAC(self, intf: object = None) -> str:
        return str(self.params.get("mac") or "00:00:00:00:00:00")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _OUTPUT:
            return Running(self.__dict__.get("net"))
        return lambda *_, **__: ""


class Running:
    """Something that runs in a node. The program ends where it asks for its output."""

    def __init__(self, net: Mininet | None) -> None:
        self._net = net

    def __call__(self, *_: object, **__: object) -> None:
        if self._net is not None:
            self._net.finish()

    def __iter__(self) -> Iterator[str]:
        self()
        return iter(())

    def __getattr__(self, name: str) -> Running:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


class Host(Node):
    """A host."""


class CPULimitedHost(Host):
    """A host with a share of the processors."""


class Docker(Host):
    """A host of Containernet: a container of an image."""


class Switch(Node):
    """A switch, of whatever kind. Commands for it have no node to run in."""

    portBase = 1
    #: Whether it routes instead, by its commands.
    is_router = False


class NAT(Node):
    """A node that masquerades."""


class Controller(Node):
    """A controller: switches learn by themselves."""
