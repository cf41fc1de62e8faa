"""A way out through the host, which a network here does not have."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.topolib import TreeNet

if __name__ == "__main__":
    setLogLevel("info")
    net = TreeNet(depth=1, fanout=4, waitConnected=True)
    net.addNAT().configDefault()
    net.start()
    CLI(net)
    net.stop()
