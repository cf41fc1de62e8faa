"""Switches that a controller elsewhere steers."""

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import OVSSwitch, RemoteController

if __name__ == "__main__":
    net = Mininet(controller=RemoteController, switch=OVSSwitch)
    net.addController("c0", controller=RemoteController, ip="127.0.0.1", port=6633)
    s1 = net.addSwitch("s1", protocols="OpenFlow13", dpid="0000000000000001")
    for number in (1, 2):
        net.addLink(net.addHost(f"h{number}"), s1)
    net.build()
    net.start()
    CLI(net)
    net.stop()
