"""A network that is made node by node."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Controller


def empty_net():
    net = Mininet(controller=Controller, waitConnected=True)
    net.addController("c0")
    h1 = net.addHost("h1", ip="10.0.0.1")
    h2 = net.addHost("h2", ip="10.0.0.2")
    s3 = net.addSwitch("s3")
    net.addLink(h1, s3)
    net.addLink(h2, s3)
    net.start()
    CLI(net)
    net.stop()


if __name__ == "__main__":
    setLogLevel("info")
    empty_net()
