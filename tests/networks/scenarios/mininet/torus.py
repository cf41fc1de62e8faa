"""A torus: its switches form loops."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topolib import TorusTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=TorusTopo(3, 3))
    net.start()
    CLI(net)
    net.stop()
