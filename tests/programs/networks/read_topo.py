"""Prints what programs for Mininet build, as Mininet itself sees it: a list in JSON. Starts none.

    python3 read_topo.py PROGRAM...

Mininet is that of PyPI. Each option must be an argument that Mininet's own class has.
"""

from __future__ import annotations

import inspect
import json
import runpy
import sys

from mininet.link import Intf, Link, TCIntf
from mininet.node import Node, OVSBridge, OVSSwitch, Switch

#: Options that Topo itself adds to a node or a link.
OF_TOPO = {"isSwitch", "cls", "node1", "node2", "port1", "port2"}


def arguments(*functions: object) -> set[str]:
    """Names of the arguments that at least one of the functions has by itself."""
    return {name for one in functions for name in inspect.signature(one).parameters}


def check(options: dict, known: set[str]) -> dict:
    own = {key: value for key, value in options.items() if key not in OF_TOPO}
    unknown = set(own) - known
    assert not unknown, f"Mininet has no option {unknown}"
    return own


def datapath(name: str, dpid: str | None) -> str:
    """The id that Mininet gives a switch. A switch that is made would start a shell."""
    switch = object.__new__(OVSBridge)
    switch.name, switch.terminate = name, lambda: None
    return Switch.defaultDpid(switch, dpid)


def read(program: str) -> dict:
    made: list[tuple] = []

    class Noted(runpy.run_path(program)["topos"]["network"]):
        """Notes the order of links, which Mininet does not keep."""

        def addLink(self, node1: str, node2: str, **options: object) -> object:
            key = super().addLink(node1, node2, **options)
            made.append((node1, node2, key))
            return key

    topo = Noted()
    assert len(topo.links()) == len(made)
    hosts = {}
    for name in topo.hosts():
        info = topo.nodeInfo(name)
        assert issubclass(info.get("cls", Node), Node)
        options = check(info, arguments(Node.__init__, Node.config))
        hosts[name] = {**options, "router": "cls" in info}
    switches = {}
    for name in topo.switches():
        info = topo.nodeInfo(name)
        assert issubclass(info["cls"], OVSBridge)
        options = check(info, arguments(OVSSwitch.__init__, Switch.__init__))
        switches[name] = {**options, "datapath": datapath(name, info.get("dpid"))}
    links = []
    for link in made:
        info = topo.linkInfo(*link)
        check(info, arguments(Link.__init__))
        ends = []
        for side in ("1", "2"):
            params = info.get(f"params{side}", {})
            check(params, arguments(TCIntf.config, Intf.config))
            node, port = info[f"node{side}"], info[f"port{side}"]
            name = info.get(f"intfName{side}", f"{node}-eth{port}")
            ends.append({"node": node, "name": name, "mac": info.get(f"addr{side}"), **params})
        links.append(ends)
    return {"hosts": hosts, "switches": switches, "links": links}


if __name__ == "__main__":
    json.dump([read(program) for program in sys.argv[1:]], sys.stdout)
