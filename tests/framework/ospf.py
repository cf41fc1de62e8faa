"""Rings of routers that run BIRD's OSPF, as topology files; and the routers' answers.

Router `n0` is linked by its eth0 to eth1 of `n1`, and so on around. Each has an address of its own,
which all others have to learn a route to.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

#: Date of the nodes' wall clocks at the start, and the same in seconds.
START, START_SECONDS = "2030-01-01T00:00:00Z", 1_893_456_000

#: Seconds between hellos, OSPF's own default.
HELLO = 10

#: A neighbour is dead after 40 s, OSPF's own default.
CONFIG = """\
log "{log}" all;
debug protocols {{ events }};
router id {own};
timeformat route "%s.%6f";
protocol device {{}}
protocol kernel {{ ipv4 {{ import none; export all; }}; }}
protocol ospf v2 {{
  ipv4 {{ import all; export none; }};
  area 0 {{
    interface "eth*" {{ type ptp; hello {hello}; dead 40; }};
    interface "lo" {{ stub; }};
  }};
}}
"""


def own_address(router: int) -> str:
    return f"10.255.{router >> 8}.{router & 255}"


def link_address(link: int, side: int) -> str:
    """The addresses of a link are those of a /30."""
    first = 4 * link
    return f"10.{first >> 16}.{first >> 8 & 255}.{(first & 255) + 1 + side}"


class Ring:
    """A ring of `count` routers, whose files lie in `folder`. A router says hello every `hello`
    virtual seconds."""

    def __init__(self, count: int, folder: Path, delay: str, hello: int = HELLO) -> None:
        self.count, self.folder, self.delay, self.hello = count, folder, delay, hello

    def topology(self) -> str:
        """Returns its part of a topology file. Writes the routers' configurations."""
        nodes, links = [], []
        for router in range(self.count):
            files = self.folder / f"n{router}"
            config = CONFIG.format(own=own_address(router), log=f"{files}.log", hello=self.hello)
            files.with_suffix(".conf").write_text(config)
            bird = f"exec bird -f -c {files}.conf -s {files}.ctl -P {files}.pid"
            command = f"'ip addr add {own_address(router)}/32 dev lo && {bird}'"
            sysctls = "{net.ipv4.ip_forward: 1}"
            nodes.append(f"    n{router}: {{command: {command}, sysctls: {sysctls}}}\n")
            ends = f"['n{router}:eth0', 'n{(router + 1) % self.count}:eth1']"
            ipv4 = f"[{link_address(router, 0)}/30, {link_address(router, 1)}/30]"
            links.append(f"    - {{endpoints: {ends}, ipv4: {ipv4}, delay: {self.delay}}}\n")
        head = f"at: {START}\ntopology:\n  nodes:\n"
        return head + "".join(nodes) + "  links:\n" + "".join(links)

    def ask(self, router: int, command: str) -> str:
        """Returns BIRD's answer to a command at its control socket; an empty one if BIRD does not
        listen there yet."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(60)
            try:
                stream.connect(str(self.folder / f"n{router}.ctl"))
            except (FileNotFoundError, ConnectionRefusedError):
                return ""
            lines = stream.makefile("rw")
            answer = [lines.readline()]
            lines.write(f"{command}\n")
            lines.flush()
            # The last line of an answer has a code and a space; the others have a dash.
            while not (len(answer) > 1 and re.match(r"\d{4} ", answer[-1])):
                line = lines.readline()
                assert line, f"n{router}: {command}: {answer}"
                answer.append(line)
        return "".join(answer[1:])

    def routes(self, router: int) -> dict[str, tuple[float, str]]:
        """Returns, for each router's address, the time at which the route there was learned, in
        virtual seconds since the start, and its interface."""
        route = re.compile(
            r"(10\.255\.\d+\.\d+)/32 +unicast \[ospf1 ([\d.]+)\].*\n.*(?:via \S+ on|dev) (\S+)"
        )
        found = route.findall(self.ask(router, "show route protocol ospf1"))
        return {to: (float(at) - START_SECONDS, way) for to, at, way in found}

    def knows_all(self, router: int) -> bool:
        return len(self.routes(router)) == self.count

    def goes_the_shorter_way(self, router: int) -> bool:
        """Whether it has all routes of a ring of an odd number, each the shorter way around. Before
        two routers have exchanged their tables, they reach each other the other way."""
        return self._leads(router, lambda other: (other - router) % self.count <= self.count // 2)

    def goes_around(self, router: int) -> bool:
        """Whether all its routes lead as they must when the link between n0 and n1 is cut: what was
        a ring is a chain from n1 to n0."""
        here = (router - 1) % self.count
        return self._leads(router, lambda other: (other - 1) % self.count > here)

    def _leads(self, router: int, by_eth0: Callable[[int], bool]) -> bool:
        """Whether it has routes to all others, by eth0 or eth1 as `by_eth0` says of each."""
        others = (other for other in range(self.count) if other != router)
        wanted = {own_address(other): "eth0" if by_eth0(other) else "eth1" for other in others}
        ways = {to: way for to, (_, way) in self.routes(router).items()}
        return {**ways, **wanted} == ways

    def settled(self) -> float:
        """Returns the time at which the last route of all was learned."""
        every = (route for router in range(self.count) for route in self.routes(router).values())
        return max(at for at, _ in every)

    def declared_dead(self) -> list[str]:
        """Returns the lines of all routers' logs that say that a neighbour was silent for too
        long."""
        logs = ((self.folder / f"n{router}.log").read_text() for router in range(self.count))
        return [line for log in logs for line in log.splitlines() if "Inactivity" in line]
