"""All options of a TCLink."""

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo


class Slow(Topo):
    def build(self):
        h1, h2, s1 = self.addHost("h1"), self.addHost("h2"), self.addSwitch("s1")
        self.addLink(
            h1, s1, cls=TCLink, bw=10, delay="5ms", loss=1, max_queue_size=1000, use_htb=True
        )
        self.addLink(
            h2, s1, cls=TCLink, bw=5, jitter="1ms", delay="3ms", enable_red=True, use_tbf=True
        )


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=Slow(), link=TCLink)
    net.start()
    net.iperf()
    net.stop()
