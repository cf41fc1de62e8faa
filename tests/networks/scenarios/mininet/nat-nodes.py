"""Two networks behind NAT."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import NAT
from mininet.topo import Topo
from mininet.util import irange


class InternetTopo(Topo):
    def build(self, n=2, **_kwargs):
        inet = self.addSwitch("s0")
        self.addLink(inet, self.addHost("h0"))
        for i in irange(1, n):
            inside, outside = f"nat{i}-eth1", f"nat{i}-eth0"
            nat = self.addNode(
                f"nat{i}", cls=NAT, subnet=f"192.168.{i}.0/24", inetIntf=outside, localIntf=inside
            )
            switch = self.addSwitch(f"s{i}")
            self.addLink(nat, inet, intfName1=outside)
            self.addLink(nat, switch, intfName1=inside, params1={"ip": f"192.168.{i}.1/24"})
            host = self.addHost(
                f"h{i}", ip=f"192.168.{i}.100/24", defaultRoute=f"via 192.168.{i}.1"
            )
            self.addLink(host, switch)


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=InternetTopo())
    net.start()
    CLI(net)
    net.stop()
