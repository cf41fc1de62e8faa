"""Hosts whose class makes an interface of a VLAN."""

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import Topo


class VLANHost(Host):
    def config(self, vlan=100, **params):
        result = super().config(**params)
        intf = self.defaultIntf()
        self.cmd(f"ip link add link {intf} name {intf}.{vlan} type vlan id {vlan}")
        self.cmd(f"ip address add {params['ip']} dev {intf}.{vlan}")
        intf.name = f"{intf}.{vlan}"
        self.nameToIntf[intf.name] = intf
        return result


class VLANStar(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        for name in ("h1", "h2"):
            self.addLink(self.addHost(name, cls=VLANHost, vlan=100), s1)


hosts = {"vlan": VLANHost}


if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=VLANStar())
    net.start()
    CLI(net)
    net.stop()
