"""Links whose options are those of an interface, after a look at the host."""

from mininet.cli import CLI
from mininet.link import TCIntf
from mininet.net import Mininet
from mininet.topolib import TreeTopo
from mininet.util import custom, errFail, quietRun


def run():
    quietRun("modprobe sch_htb")
    mounts, _errors, _status = errFail("cat /proc/mounts")
    print(len(mounts.split("\n")), "mounts")
    net = Mininet(topo=TreeTopo(depth=1, fanout=2), intf=custom(TCIntf, bw=5, delay="3ms"))
    net.start()
    CLI(net)
    net.stop()


if __name__ == "__main__":
    run()
