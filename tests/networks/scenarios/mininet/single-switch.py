"""Four hosts at a switch."""

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=SingleSwitchTopo(k=4))
    net.start()
    net.pingAll()
    net.stop()
