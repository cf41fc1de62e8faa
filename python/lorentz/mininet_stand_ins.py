"""Mininet's networks and links, as programs of Mininet see them where Mininet is not there: they
note what the program builds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

from lorentz.mininet_nodes import (
    NAT,
    Controller,
    CPULimitedHost,
    Docker,
    Host,
    Intf,
    Node,
    Switch,
)
from lorentz.mininet_topologies import Topo

#: How many equal lines at the end of a node's are those of a loop that waits for the network.
_LOOP_LINES = 10


class Finished(BaseException):
    """The program has come to where it uses its network. No `except Exception` of it gets that."""

    def __init__(self, net: Mininet) -> None:
        super().__init__()
        self.net = net


class Link:
    """A link. It adds itself to the network of its nodes."""

    def __init__(
        self,
        node1: object,
        node2: object,
        port1: int | None = None,
        port2: int | None = None,
        intfName1: str | None = None,
        intfName2: str | None = None,
        addr1: str | None = None,
        addr2: str | None = None,
        net: Mininet | None = None,
        **options: object,
    ) -> None:
        given = {"intfName1": intfName1, "intfName2": intfName2, "addr1": addr1, "addr2": addr2}
        options.update({key: value for key, value in given.items() if value is not None})
        net = net or node1.net or node2.net or Mininet.without_a_class()
        self.intf1, self.intf2 = net.note(self, (node1, node2), (port1, port2), options)

    def __str__(self) -> str:
        return f"{self.intf1}<->{self.intf2}"

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: ""


class Mininet:
    """A network. It is noted as a Topo and the lines of its nodes."""

    #: The first network that the program has started.
    started: Mininet | None = None
    #: The first network that the program has built, if it has started none.
    built: Mininet | None = None
    #: The network of nodes that the program has linked without a Mininet.
    loose: Mininet | None = None

    def __init__(
        self,
        topo: Topo | None = None,
        switch: Callable = Switch,
        host: Callable = Host,
        controller: object = None,
        link: Callable | None = None,
        intf: Callable | None = None,
        ipBase: str = "10.0.0.0/8",
        autoSetMacs: bool = False,
        **_: object,
    ) -> None:
        self.topo = Topo()
        self.nodes: dict[str, Node] = {}
        self.links: list[Link] = []
        self.terms: list = []
        self.left_out: list[str] = []
        self.ipBase, self._macs = ipBase, autoSetMacs
        self._host, self._switch, self._link = host, switch, link
        # Such as custom(TCIntf, bw=10).
        self._link_options = dict(getattr(intf, "keywords", {}))
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

    @classmethod
    def init(cls) -> None:
        """Is called before nodes are made without a Mininet."""

    @classmethod
    def without_a_class(cls) -> Mininet:
        """Returns the network of nodes that no Mininet has made."""
        Mininet.loose = Mininet.loose or Mininet()
        return Mininet.loose

    def build(self) -> None:
        """Configures hosts by what their classes say."""
        for node in self.hosts if not self._configured else []:
            if type(node).config is not Node.config:
                self._call(node, node.config, node.params)
        self._configured = True
        Mininet.built = Mininet.built or self

    def _call(self, node: Node, method: Callable, params: dict, *words: object) -> None:
        """Has a class of the program configure a node."""
        try:
            method(*words, **params)
        except (Exception, Finished) as error:
            self.left_out.append(f"{node}: cls={type(node).__name__}: {error!r}")

    @property
    def hosts(self) -> list[Node]:
        return [node for node in self.nodes.values() if not isinstance(node, Switch)]

    @property
    def switches(self) -> list[Node]:
        return [node for node in self.nodes.values() if isinstance(node, Switch)]

    @property
    def nameToNode(self) -> dict[str, Node]:
        return self.nodes

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

    def addSwitch(self, name: str, cls: Callable | None = None, **params: object) -> Node:
        make = cls or self._switch
        if (node := _router(make, name, params)) is not None:
            # Mininet configures no switch: it has the addresses that its commands give it.
            node.params = {**params, **node.params, "ip": None}
            return self._add(node, make)
        return self._add(Switch(name, **params), None)

    def addDocker(self, name: str, cls: Callable = Docker, **params: object) -> Node:
        """Adds a host of Containernet."""
        return self.addHost(name, cls=cls, **params)

    def _add(self, node: Node, make: object) -> Node:
        self.nodes[node.name] = node
        node.net = self
        said = {"isSwitch": True} if isinstance(node, Switch) and not node.is_router else {}
        self.topo.addNode(node.name, **said)
        self.topo.firstPort(node.name, node.portBase)
        node.made_by = make
        return node

    def addController(self, name: object = "c0", controller: object = None, **_: object) -> Node:
        if "Remote" in getattr(controller, "__name__", "") or "Remote" in type(name).__name__:
            self.left_out.append(f"{name}: a remote controller: switches learn by themselves")
        return Controller(str(name))

    def addLink(
        self,
        node1: object,
        node2: object,
        port1: int | None = None,
        port2: int | None = None,
        cls: Callable | None = None,
        **options: object,
    ) -> Link:
        ends = [self.nodes.get(one, one) for one in (node1, node2)]
        make = cls or self._link
        kind = getattr(make, "func", make)
        is_link = isinstance(kind, type) and issubclass(kind, Link)
        given = {**self._link_options, **getattr(make, "keywords", {}), **options}
        given.update({"port1": port1, "port2": port2})
        # A class of the program's may have its own idea of what there is between two nodes.
        return (kind if is_link else Link)(*ends, **given)

    def note(
        self,
        link: Link,
        ends: tuple[object, object],
        ports: tuple[int | None, int | None],
        options: dict,
    ) -> list[Intf]:
        """Adds a link. Returns its interfaces."""
        for node in ends:
            if isinstance(node, Node) and node.name not in self.nodes:
                # Such as the host itself, made by Node("root", inNamespace=False).
                self._add(node, type(node))
                node.is_stray = True
        names = [str(node) for node in ends]
        said = self.topo.addLink(*names, *ports, **options)
        made = []
        for number, name in enumerate(names, start=1):
            node = self.nodes[name]
            params = said.get(f"params{number}") or {}
            port = said[f"port{number}"]
            own = said.get(f"intfName{number}") or f"{name}-eth{port}"
            ip = params.get("ip") or (None if node.nameToIntf else node.params.get("ip"))
            intf = Intf(own, node, port, link, ip)
            intf.said, intf.number = said, number
            node.add(intf)
            made.append(intf)
        self.links.append(link)
        return made

    def linksBetween(self, node1: object, node2: object) -> list[Link]:
        ends = {str(node1), str(node2)}
        return [one for one in self.links if {one.intf1.node.name, one.intf2.node.name} == ends]

    def delLink(self, link: Link) -> None:
        self.links.remove(link)
        self.topo.removeLink(link.intf1.said)
        for intf in (link.intf1, link.intf2):
            node = intf.node
            node.nameToIntf = {key: one for key, one in node.nameToIntf.items() if one is not intf}

    def delLinkBetween(
        self, node1: object, node2: object, index: int = 0, allLinks: bool = False
    ) -> None:
        found = self.linksBetween(node1, node2)
        for link in found if allLinks else found[index : index + 1]:
            self.delLink(link)

    def delNode(self, node: Node, *_: object) -> None:
        for link in [one for one in self.links if node in (one.intf1.node, one.intf2.node)]:
            self.delLink(link)
        del self.nodes[node.name]
        self.topo.removeNode(node.name)

    delHost = delSwitch = delNode

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
        for node in self.switches:
            if node.is_router:
                self._call(node, node.start, {}, [])

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

    pingAll = ping = pingPair = pingAllFull = pingFull = pingPairFull = iperf = finish
    run = stop = interact = configLinkStatus = runCpuLimitTest = monitor = finish

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name in ("nodes", "topo"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def as_topo(self) -> Topo:
        """Returns the network as a Topo whose nodes have their lines as `exec`."""
        self.build()
        for node in self.nodes.values():
            said = self.topo.nodeInfo(node.name)
            if self is Mininet.loose and _is_made_a_switch(node):
                said["isSwitch"] = True
                for intf in node.intfList():
                    (intf.said.get(f"params{intf.number}") or {}).pop("ip", None)
                continue
            if node.is_stray:
                # Nobody gives it an address but its own commands.
                node.params.setdefault("ip", None)
                if not node.inNamespace:
                    self.left_out.append(f"{node}: inNamespace=False: it is a host")
            if isinstance(node, Switch) and not node.is_router:
                said.update({k: v for k, v in node.params.items() if k != "ip"})
                self.left_out.extend(f"{node}: {line}" for line in node.lines)
                continue
            own = _own_parameters(type(node))
            said.update({key: node.params[key] for key in node.params if key not in own})
            # The settings of a class of the program's are among its lines.
            made_by = node.made_by
            is_node = isinstance(made_by, type) and issubclass(made_by, Node)
            if isinstance(node, NAT) or not is_node:
                said["cls"] = made_by
            said["exec"] = _without_a_loop(node.lines)
        return self.topo


class Containernet(Mininet):
    """A network of Containernet, a Mininet whose hosts may be containers of images."""


def _router(make: Callable, name: str, params: dict) -> Switch | None:
    """Makes a switch by a class of the program's, if that class puts it into a namespace of its
    own: it then routes by its commands, as the routers of BGP exercises do."""
    kind = getattr(make, "func", make)
    if not isinstance(kind, type) or not any(map(_says_in_namespace, kind.__mro__)):
        return None
    try:
        node = make(name, **{"inNamespace": False, **params})
    except (Exception, SystemExit):
        return None
    if not isinstance(node, Switch) or not node.inNamespace:
        return None
    node.is_router = True
    return node


def _says_in_namespace(kind: type) -> bool:
    """Whether the code of a class of the program's has the word `inNamespace`."""
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return kind not in CLASSES and code is not None and "inNamespace" in str(code.co_consts)


def _own_parameters(kind: type) -> set[str]:
    """Returns the parameters that a class of the program's names: it has used them."""
    own = {*inspect.signature(kind.config).parameters}
    for one in kind.__mro__:
        if one in CLASSES:
            break
        if "__init__" in vars(one):
            own.update(inspect.signature(one.__init__).parameters)
    return own - {"ip", "mac", "defaultRoute", "inNamespace"}


def _is_made_a_switch(node: Node) -> bool:
    """Whether the commands of a plain node have it switch."""
    commands = re.compile(r"\b(ovs-vsctl add-br|ovs-dpctl add-dp|ofdatapath)\b")
    return type(node) is Node and any(map(commands.search, node.lines))


def _without_a_loop(lines: list[str]) -> list[str]:
    """Returns the lines, of which many equal ones at the end are one."""
    end = len(lines)
    while end > 1 and lines[end - 2] == lines[-1]:
        end -= 1
    return lines[:end] if len(lines) - end >= _LOOP_LINES else lines


#: Stand-ins for the classes of Mininet that have the same names.
CLASSES = (
    Node,
    Host,
    CPULimitedHost,
    Docker,
    Switch,
    NAT,
    Controller,
    Intf,
    Link,
    Mininet,
    Containernet,
)
