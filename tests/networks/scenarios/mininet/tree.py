"""A tree of switches."""

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import OVSBridge
from mininet.topolib import TreeTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=TreeTopo(depth=2, fanout=2), switch=OVSBridge)
    net.start()
    net.pingAll()
    net.stop()
