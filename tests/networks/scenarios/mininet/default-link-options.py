"""Options of all links."""

from functools import partial

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=SingleSwitchTopo(2), link=partial(TCLink, delay="7ms", bw=10))
    net.start()
    net.pingAll()
    net.stop()
