"""A topology without a word on who starts it."""

from mininet.topo import Topo


class Pair(Topo):
    def __init__(self):
        Topo.__init__(self)
        for name in ("h1", "h2"):
            self.addHost(name)
        self.addLink("h1", "h2")
