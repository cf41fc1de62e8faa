"""As for `mn --custom custom-topos.py --topo mytopo`."""

from mininet.topo import Topo


class MyTopo(Topo):
    "Two hosts and two switches."

    def build(self):
        left, right = self.addHost("h1"), self.addHost("h2")
        left_switch, right_switch = self.addSwitch("s3"), self.addSwitch("s4")
        self.addLink(left, left_switch)
        self.addLink(left_switch, right_switch)
        self.addLink(right_switch, right)


topos = {"mytopo": (lambda: MyTopo())}
