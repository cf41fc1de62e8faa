#!/usr/bin/env python3
"""Write the topology file of N machines whose network is simulated by ns-3.

    ./lab.py csma 10 --tdf 4 > lab.yaml
    ./lab.py wifi 4 --rounds --tdf 2 --sim-tdf 5 -- --hardLimit=100 > lab.yaml

Words behind `--` go to the simulation. The machines are n1, n2, ... at 10.0.0.1, 10.0.0.2,
...; the simulation is the node sim. It is what TimeKeeper's tap-csma-creator.py made for LXC.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: A hardware address ends with the machine's number, an interface of the simulation has it.
MOST = 250


def topology(arguments: argparse.Namespace, flags: list[str]) -> str:
    """Returns the file's text."""
    program = f"{arguments.programs}/{arguments.network} --machines={arguments.machines}"
    command = " ".join([program, f"--seconds={arguments.seconds}", *flags])
    own = f", tdf: {arguments.sim_tdf}" if arguments.sim_tdf else ""
    delay = ", delay: 1ms" if arguments.rounds else ""
    lines = [f"name: {arguments.name}", f"tdf: {arguments.tdf}"]
    lines += ["rounds: true"] * arguments.rounds
    lines += ["topology:", "  nodes:", f"    sim: {{command: '{command}'{own}}}"]
    lines += [f"    n{at + 1}: {{}}" for at in range(arguments.machines)]
    lines += ["  links:"]
    lines += [
        f"    - {{endpoints: ['n{at + 1}:eth0', 'sim:eth{at}'], ipv4: [10.0.0.{at + 1}/24, null], "
        f"mac: ['02:00:00:00:01:{at:02x}', null]{delay}}}"
        for at in range(arguments.machines)
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=["csma", "wifi"], help="a bus, or a wireless network")
    parser.add_argument("machines", type=int, help=f"number of machines, 2 to {MOST}")
    parser.add_argument("--name", default="lab", help="of the network (default: lab)")
    parser.add_argument("--tdf", default="1", help="of all nodes (default: 1)")
    parser.add_argument("--rounds", action="store_true", help="nodes in rounds; links take 1 ms")
    parser.add_argument("--sim-tdf", help="of the simulation alone, with --rounds")
    parser.add_argument("--seconds", type=float, default=3600, help="of the simulation")
    parser.add_argument("--programs", default=str(HERE), help="folder with csma and wifi")
    parser.epilog = "Behind -- stand flags of the simulation."
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:at])
    if not 2 <= arguments.machines <= MOST:
        parser.error(f"machines {arguments.machines}: expected 2 to {MOST}")
    if arguments.sim_tdf and not arguments.rounds:
        parser.error("--sim-tdf: expected --rounds, without which all nodes are on one clock")
    sys.stdout.write(topology(arguments, sys.argv[at + 1 :]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
