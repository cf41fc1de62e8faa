"""Hosts with a share of a processor."""

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import CPULimitedHost
from mininet.topo import Topo


class Limited(Topo):
    def build(self, n=2):
        switch = self.addSwitch("s1")
        for h in range(n):
            host = self.addHost(f"h{h + 1}", cpu=0.5 / n, cores=0)
            self.addLink(
                host, switch, bw=10, delay="5ms", loss=0, max_queue_size=1000, use_htb=True
            )


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=Limited(), host=CPULimitedHost)
    net.start()
    net.pingAll()
    net.stop()
