"""Hosts with directories of their own."""

from functools import partial

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import SingleSwitchTopo

if __name__ == "__main__":
    setLogLevel("info")
    net = Mininet(topo=SingleSwitchTopo(2), host=partial(Host, privateDirs=["/var/log"]))
    net.start()
    CLI(net)
    net.stop()
