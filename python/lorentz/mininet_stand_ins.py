"""Mininet's networks and nodes, as programs of Mininet see them where Mininet is not there: they
note what the program builds."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator

from lorentz.mininet_topologies import Topo


class Finished(BaseException):
    """The program has come to where it uses its network. No `except Exception` of it gets that."""

    def __init__(self, net: Mininet) -> None:
        super().__init__()
        self.net = net


def _line(words: tuple[object, ...]) -> str:
    flat = [one for word in words for one in (word if isinstance(word, list | tuple) else [word])]
    return " ".join(str(word) for word in flat if word is not None)


class Intf:
    """An interface of a node."""

    def __init__(self, name: str, node: Node, ip: str | None = None) -> None:
        self.name, self.node, self.ip, self.link = name, node, ip, None

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def setIP(self, ip: str, prefixLen: int | None = None) -> str:
        return self.node.setIP(ip, prefixLen, self)

    def setMAC(self, mac: str) -> str:
        return self.node.setMAC(mac, self)

    def IP(self) -> str | None:
        return self.ip.split("/")[0] if self.ip else None

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: ""


class Node:
    """A host, switch or controller. Commands for it become lines of `exec`."""

    def __init__(self, name: str, inNamespace: bool = True, **params: object) -> None:
        self.name, self.params, self.inNamespace = name, dict(params), inNamespace
        self.lines: list[str] = []
        self.nameToIntf: dict[str, Intf] = {}
        self.net: Mininet | None = None

    def config(self, **params: object) -> dict:
        """Addresses and routes are made from the parameters: there is nothing to do."""
        return {}

    def cmd(self, *words: object, **_: object) -> str:
        if line := _line(words).strip():
            self.lines.append(line)
        return ""

    cmdPrint = cmd

    def pexec(self, *words: object, **_: object) -> tuple[str, str, int]:
        return self.cmd(*words), "", 0

    def popen(self, *words: object, **_: object) -> _Running:
        first = words[0]
        line = shlex.join(map(str, first)) if isinstance(first, list | tuple) else _line(words)
        self.cmd(f"{line} &")
        return _Running(self.net)

    def sendCmd(self, *words: object, **_: object) -> None:
        self.cmd(f"{_line(words)} &")

    def setIP(self, ip: str, prefixLen: int | None = 8, intf: object = None) -> str:
        address = ip if "/" in ip else f"{ip}/{prefixLen or 8}"
        at = self.intf(intf)
        if at is None:
            self.params["ip"] = address
            return ""
        at.ip = address
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

    @property
    def pid(self) -> int:
        return 0

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in ("waitOutput", "monitor", "write", "sendInt") and self.net:
            return self.net.finish
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: ""


class _Running:
    """A command that runs. The program ends where it asks for more."""

    def __init__(self, net: Mininet | None) -> None:
        self._net = net

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or self._net is None:
            raise AttributeError(name)
        return self._net.finish


class Host(Node):
    """A host."""


class CPULimitedHost(Host):
    """A host with a share of the processors."""


class Switch(Node):
    """A switch, of whatever kind. Commands for it have no node to run in."""


class NAT(Node):
    """A node that masquerades."""


class Controller(Node):
    """A controller: switches learn by themselves."""


class _Link:
    """A link of a network."""

    def __init__(self, intf1: Intf, intf2: Intf) -> None:
        self.intf1, self.intf2 = intf1, intf2
        intf1.link = intf2.link = self


class Mininet:
    """A network. It is noted as a Topo and the lines of its nodes."""

    #: The first network that the program has started.
    started: Mininet | None = None

    def __init__(
        self,
        topo: Topo | None = None,
        host: Callable = Host,
        link: Callable | None = None,
        intf: Callable | None = None,
        ipBase: str = "10.0.0.0/8",
        autoSetMacs: bool = False,
        **_: object,
    ) -> None:
        self.topo = Topo()
        self.nodes: dict[str, Node] = {}
        self.links: list[_Link] = []
        self.left_out: list[str] = []
        self.ipBase, self._macs, self._host = ipBase, autoSetMacs, host
        # Such as partial(TCLink, delay="5ms"), or custom(TCIntf, bw=10).
        self._link_options = {**getattr(intf, "keywords", {}), **getattr(link, "keywords", {})}
        self._configured = False
        if topo is not None:
            for name in topo.hosts():
                self.addHost(name, **topo.nodeInfo(name))
            for name in topo.switches():
                said = topo.nodeInfo(name)
                self.addSwitch(name, **{key: said[key] for key in said if key != "isSwitch"})
            for a, b, said in topo.links(withInfo=True):
                given = {key: said[key] for key in said if key not in ("node1", "node2")}
                self.addLink(said.get("node1", a), said.get("node2", b), **given)
            self.build()

    def build(self) -> None:
        """Configures hosts by what their classes say."""
        for node in self.hosts if not self._configured else []:
            if type(node).config is not Node.config:
                try:
                    node.config(**node.params)
                except Exception as error:
                    self.left_out.append(f"{node}: cls={type(node).__name__}: {error!r}")
        self._configured = True

    @property
    def hosts(self) -> list[Node]:
        return [node for node in self.nodes.values() if not isinstance(node, Switch)]

    @property
    def switches(self) -> list[Node]:
        return [node for node in self.nodes.values() if isinstance(node, Switch)]

    @property
    def controllers(self) -> list[Node]:
        return []

    def addHost(self, name: str, cls: Callable | None = None, **params: object) -> Node:
        make = cls or self._host
        options = dict(getattr(make, "keywords", {}))
        make = getattr(make, "func", make)
        number = len(self.hosts) + 1
        net = self.ipBase.split("/")
        base = [int(part) for part in (net[0].split(".") + ["0"] * 4)[:4]]
        value = sum(part << 8 * (3 - at) for at, part in enumerate(base)) + number
        address = ".".join(str(value >> 8 * (3 - at) & 255) for at in range(4))
        params = {"ip": f"{address}/{net[1] if len(net) > 1 else 8}", **options, **params}
        if self._macs:
            params.setdefault(
                "mac", ":".join(f"{number >> 8 * at & 255:02x}" for at in range(5, -1, -1))
            )
        is_node = isinstance(make, type) and issubclass(make, Node)
        node = (make if is_node else Node)(name, **params)
        node.params = {**params, **node.params}
        return self._add(node, make)

    def addSwitch(self, name: str, cls: object = None, **params: object) -> Node:
        return self._add(Switch(name, **params), None)

    def _add(self, node: Node, make: object) -> Node:
        self.nodes[node.name] = node
        node.net = self
        said = {"isSwitch": True} if isinstance(node, Switch) else {}
        self.topo.addNode(node.name, **said)
        node.made_by = make
        return node

    def addController(self, name: object = "c0", controller: object = None, **_: object) -> Node:
        if "Remote" in getattr(controller, "__name__", "") or "Remote" in type(name).__name__:
            self.left_out.append(f"{name}: a remote controller: switches learn by themselves")
        return Controller(str(name))

    def addLink(self, node1: object, node2: object, *ports: object, **options: object) -> _Link:
        for node in (node1, node2):
            if isinstance(node, Node) and node.name not in self.nodes:
                # Such as the host itself, made by Node("root", inNamespace=False).
                self.left_out.append(f"{node}: inNamespace={node.inNamespace}: it is a host")
                self._add(node, type(node))
        names = [str(node1), str(node2)]
        cls = options.pop("cls", None)
        given = {**self._link_options, **getattr(cls, "keywords", {}), **options}
        for key, port in zip(("port1", "port2"), ports, strict=False):
            given.setdefault(key, port)
        said = self.topo.addLink(*names, **given)
        made = []
        for number, name in enumerate(names, start=1):
            node = self.nodes[name]
            params = said.get(f"params{number}") or {}
            own = said.get(f"intfName{number}") or f"{name}-eth{said[f'port{number}']}"
            ip = params.get("ip") or (None if node.nameToIntf else node.params.get("ip"))
            node.nameToIntf[own] = Intf(own, node, ip)
            made.append(node.nameToIntf[own])
        self.links.append(_Link(*made))
        return self.links[-1]

    def addNAT(self, name: str = "nat0", connect: object = True, **params: object) -> Node:
        params.pop("inNamespace", None)
        nat = self.addHost(name, cls=NAT, **{"subnet": self.ipBase, **params})
        if connect:
            self.addLink(nat, self.switches[0] if connect is True else connect)
            for host in self.hosts:
                if host is not nat:
                    host.params["defaultRoute"] = f"via {nat.IP()}"
        return nat

    def configDefault(self, **_: object) -> None:
        """Is called on what `addNAT` returns."""

    def start(self) -> None:
        self.build()
        Mininet.started = Mininet.started or self

    def get(self, *names: str) -> Node | list[Node]:
        found = [self.nodes[name] for name in names]
        return found[0] if len(found) == 1 else found

    getNodeByName = __getitem__ = get

    def __contains__(self, name: object) -> bool:
        return str(name) in self.nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def keys(self) -> list[str]:
        return list(self.nodes)

    def values(self) -> list[Node]:
        return list(self.nodes.values())

    def items(self) -> list[tuple[str, Node]]:
        return list(self.nodes.items())

    def finish(self, *_: object, **__: object) -> None:
        """Ends the program: it uses its network from here on."""
        raise Finished(self)

    pingAll = ping = pingPair = pingAllFull = iperf = run = stop = interact = finish
    configLinkStatus = runCpuLimitTest = monitor = finish

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name in ("nodes", "topo"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def as_topo(self) -> Topo:
        """Returns the network as a Topo whose nodes have their lines as `exec`."""
        self.build()
        for node in self.nodes.values():
            said = self.topo.nodeInfo(node.name)
            if isinstance(node, Switch):
                said.update({k: v for k, v in node.params.items() if k != "ip"})
                self.left_out.extend(f"{node}: {line}" for line in node.lines)
                continue
            # The program's class has used the parameters that it names.
            own = inspect.signature(type(node).config).parameters
            said.update({key: node.params[key] for key in node.params if key not in own})
            # The settings of a class of the program's are among its lines.
            made_by = node.made_by
            is_node = isinstance(made_by, type) and issubclass(made_by, Node)
            if isinstance(node, NAT) or not is_node:
                said["cls"] = made_by
            said["exec"] = node.lines
        return self.topo


#: Stand-ins for the classes of Mininet that have the same names.
CLASSES = (Node, Host, CPULimitedHost, Switch, NAT, Controller, Intf, Mininet)
