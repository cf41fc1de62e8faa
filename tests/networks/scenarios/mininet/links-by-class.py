"""Links made by their classes, one of which sets an address."""

from mininet.cli import CLI
from mininet.link import Link, TCIntf
from mininet.net import Mininet


class SlowLink(Link):
    def __init__(self, node1, node2, port1=None, port2=None, ip1=None, **params):
        options = {"cls1": TCIntf, "cls2": TCIntf, "params1": params, "params2": params}
        super().__init__(node1, node2, port1=port1, port2=port2, **options)
        if ip1 is not None:
            self.intf1.setIP(ip1)


if __name__ == "__main__":
    net = Mininet()
    h1, h2, h3 = (net.addHost(name) for name in ("h1", "h2", "h3"))
    s1 = net.addSwitch("s1")
    Link(h1, s1)
    Link(h2, s1, intfName1="up0")
    net.addLink(h3, s1, cls=SlowLink, ip1="10.0.0.9/8", delay="2ms")
    net.build()
    s1.start([])
    for port, intf in h2.intfs.items():
        h2.cmd(f"echo {port} {intf} {h2.ports[intf]}")
    h3.defaultIntf().rename("net0")
    CLI(net)
    net.stop()
