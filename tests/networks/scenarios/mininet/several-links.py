"""Two links between the same nodes."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class MultiLink(Topo):
    def build(self, n=2, **_kwargs):
        h1, h2, s1 = self.addHost("h1"), self.addHost("h2"), self.addSwitch("s1")
        for _ in range(n):
            self.addLink(s1, h1)
            self.addLink(s1, h2)


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=MultiLink(n=2))
    net.start()
    CLI(net)
    net.stop()
