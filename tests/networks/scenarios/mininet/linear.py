"""A row of switches."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import LinearTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=LinearTopo(k=3))
    net.start()
    CLI(net)
    net.stop()
