"""Routers whose class is a switch with a namespace of its own, as in exercises about BGP."""

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import Switch
from mininet.topo import Topo


class Router(Switch):
    def __init__(self, name, **kwargs):
        kwargs["inNamespace"] = True
        Switch.__init__(self, name, **kwargs)

    @staticmethod
    def setup():
        return

    def start(self, controllers):
        self.cmd("sysctl -w net.ipv4.ip_forward=1")
        self.waitOutput()

    def stop(self):
        self.deleteIntfs()


class TwoNetworks(Topo):
    def build(self):
        r1 = self.addSwitch("R1")
        for number in (1, 2):
            address, route = f"10.{number}.0.1/24", f"via 10.{number}.0.254"
            self.addLink(r1, self.addHost(f"h{number}", ip=address, defaultRoute=route))


if __name__ == "__main__":
    net = Mininet(topo=TwoNetworks(), switch=Router)
    net.start()
    for router in net.switches:
        for number, intf in enumerate(router.intfList(), start=1):
            router.cmd(f"ip address add 10.{number}.0.254/24 dev {intf}")
    CLI(net)
    net.stop()
