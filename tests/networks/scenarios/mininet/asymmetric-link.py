"""Options of one end alone."""

from mininet.link import TCLink
from mininet.net import Mininet


def intf_options():
    net = Mininet(link=TCLink)
    s1 = net.addSwitch("s1")
    h1, h2 = net.addHost("h1"), net.addHost("h2")
    net.addLink(h1, s1, params1={"bw": 1, "delay": "15ms"})
    net.addLink(h2, s1)
    net.start()
    net.iperf()
    net.stop()


if __name__ == "__main__":
    intf_options()
