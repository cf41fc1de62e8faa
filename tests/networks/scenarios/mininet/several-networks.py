"""A test of several networks: the first one counts."""

from mininet.net import Mininet
from mininet.topo import LinearTopo, SingleSwitchTopo

if __name__ == "__main__":
    for topo in (SingleSwitchTopo(2), LinearTopo(4)):
        net = Mininet(topo)
        net.start()
        net.pingAll()
        net.stop()
