"""Hosts with hardware addresses of their own."""

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class Macs(Topo):
    def build(self):
        h1 = self.addHost("h1", mac="00:00:00:00:00:01", ip="10.0.0.1/24")
        h2 = self.addHost("h2", mac="00:00:00:00:00:02", ip="10.0.0.2/24")
        self.addLink(h1, h2)


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=Macs(), autoStaticArp=True)
    net.start()
    net.pingAll()
    net.stop()
