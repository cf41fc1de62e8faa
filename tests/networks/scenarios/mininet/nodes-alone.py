"""Nodes and links without a Mininet; one of the nodes is made a switch."""

from time import sleep

from mininet.link import Link
from mininet.net import Mininet
from mininet.node import Node
from mininet.util import quietRun

Mininet.init()
switch = Node("s0", inNamespace=False)
h1, h2 = Node("h1"), Node("h2")
Link(h1, switch)
h2.linkTo(switch)
h1.setIP("10.0.0.1/24")
h2.setIP("10.0.0.2/24")
switch.setIP("10.0.0.3/24")
switch.cmd("ovs-vsctl add-br dp0")
for intf in switch.intfs.values():
    switch.cmd("ovs-vsctl add-port dp0", intf)
while "is_connected" not in quietRun("ovs-vsctl show"):
    sleep(1)
h1.cmdPrint("ping -c1", h2.IP())
