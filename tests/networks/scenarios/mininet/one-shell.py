"""Commands of a host that need the shell of the commands before them."""

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

if __name__ == "__main__":
    net = Mininet(topo=SingleSwitchTopo(2))
    net.start()
    h1 = net.get("h1")
    h1.cmd("cd /etc")
    h1.cmd("test -f passwd")
    h1.cmd("NUMBER=5; sleep 1000 &")
    h1.cmd("test $NUMBER = 5 && kill %sleep")
    CLI(net)
    net.stop()
