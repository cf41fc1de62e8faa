"""Hosts are set up once the network is there."""

from mininet.cli import CLI
from mininet.net import Mininet


def start():
    net = Mininet()
    h1, h2, r = net.addHost("h1"), net.addHost("h2"), net.addHost("r")
    net.addLink(h1, r)
    net.addLink(h2, r)
    net.start()
    h1.setIP("10.1.0.2", 24)
    h2.cmd("ifconfig h2-eth0 10.2.0.2 netmask 255.255.255.0")
    r.cmd("ip address flush dev r-eth0; ip address add 10.1.0.1/24 dev r-eth0")
    r.cmd("ip address add 10.2.0.1/24 dev r-eth1")
    r.cmd("sysctl -w net.ipv4.ip_forward=1")
    h1.cmd("ip route replace default via 10.1.0.1")
    h2.cmd("ip route replace default via 10.2.0.1")
    CLI(net)
    net.stop()


if __name__ == "__main__":
    start()
