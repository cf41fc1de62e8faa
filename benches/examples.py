#!/usr/bin/env python3
"""How many of a directory's scenarios of other emulators come up, and what is left out.

    benches/examples.py DIR                 prints a page about all scenarios below DIR
    benches/examples.py DIR --page FILE     writes it
    benches/examples.py DIR -- FLAG...      has each 'lorentz up' take these flags

Each scenario is read (`lorentz import`), comes up (`lorentz up`), has its neighbours ping each
other, and goes (`lorentz down`), all in a state directory of its own. Scenarios are CORE's *.xml,
*.imn, containerlab's *.clab.yml, Kathara's directories with a lab.conf, and *.py that import
mininet, which are run as programs to read them. C programs that include TimeKeeper's headers are
compiled with ours and linked to libtimekeeper. Needs root.

Where podman does not have the images of a scenario, its nodes run the programs of the host's files
in private layers (`--ignore-images`). After SIGINT or SIGTERM nothing is left.
"""

from __future__ import annotations

import argparse
import ipaddress
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import examples_page
import labs
import timekeeper_programs
from labs import LORENTZ, ROOT

#: The files that the tests use.
OUR_OWN = ROOT / "tests/networks/scenarios"
#: Time limit of a command in a node, s.
COMMAND_TIMEOUT = 20
#: Time limit of reading a scenario, s.
READ_TIMEOUT = 60
READ_MININET = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from lorentz import Network
network = Network.from_mininet_program(sys.argv[2])
print("\\n" + json.dumps({"topology": network.topology, "left_out": network.left_out}))
"""

#: A node and its interface.
End: TypeAlias = "tuple[str, str]"


@dataclass
class Scenario:
    """A file or directory, and what became of it."""

    path: Path
    format: str
    #: Number of nodes and links; None where it was not read.
    size: tuple[int, int] | None = None
    is_up: bool = False
    #: Whether its nodes had their images; None where it names none.
    has_images: bool | None = None
    #: Number of elements that are left out, of lines that failed, and of services of a node that
    #: are left out because it does not have their program.
    left_out: int = 0
    failed: int = 0
    services: int = 0
    #: The command's lines about them, without the path of the file.
    notes: list[str] = field(default_factory=list)
    #: Why it was not read or did not come up.
    error: str = ""
    #: Pairs of neighbours of whom the first reached the second, and all that were tried.
    pings: tuple[int, int] = (0, 0)

    @property
    def is_complete(self) -> bool:
        """Whether it is up, no line of it failed, and no service was left out."""
        return self.is_up and not self.failed and not self.services


def format_of(path: Path) -> str | None:
    """Returns the emulator whose file it is."""
    name = path.name
    if name == "lab.conf":
        return "Kathara"
    if name.endswith((".clab.yml", ".clab.yaml")):
        return "containerlab"
    if not name.endswith((".xml", ".imn", ".py")):
        return None
    text = path.read_text(errors="replace")
    if name.endswith(".xml"):
        return "CORE" if "<scenario" in text else None
    if name.endswith(".imn"):
        return "IMUNES" if text.lstrip().startswith("{") else "CORE 4"
    return "Mininet" if re.search(r"^\s*(from|import) mininet", text, re.M) else None


def find(folder: Path) -> Iterator[Scenario]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (format := format_of(path)):
            yield Scenario(path.parent if format == "Kathara" else path, format)


class Runner:
    """Runs scenarios one after the other."""

    def __init__(self, seconds: float, pairs: int, flags: list[str], work: Path) -> None:
        self.seconds, self.pairs, self.flags, self.work = seconds, pairs, flags, work
        self.environment = {**os.environ, "LORENTZ_STATE_DIR": str(work / "state")}
        (work / "state").mkdir(mode=0o700)
        self.network: str | None = None

    def call(self, *words: object, timeout: float) -> subprocess.CompletedProcess:
        """Runs a command. One that takes too long is ended, with status 124."""
        command = [str(word) for word in words]
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.environment,
        )
        try:
            out, err = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            program.terminate()
            try:
                out, err = program.communicate(timeout=COMMAND_TIMEOUT)
            except subprocess.TimeoutExpired:
                program.kill()
                out, err = program.communicate()
            return subprocess.CompletedProcess(command, 124, out, err)
        except BaseException:
            program.kill()
            program.wait()
            raise
        return subprocess.CompletedProcess(command, program.returncode, out, err)

    def run(self, scenario: Scenario) -> None:
        file, topology = self.read(scenario)
        if topology is None:
            return
        nodes, links = topology["topology"]["nodes"], topology["topology"].setdefault("links", [])
        scenario.size = (len(nodes), len(links))
        self.network = topology["name"]
        try:
            self.up(scenario, file, any("image" in node for node in nodes.values()))
            if scenario.is_up:
                scenario.pings = self.ping(topology)
        finally:
            self.down()

    def read(self, scenario: Scenario) -> tuple[Path, dict | None]:
        path = scenario.path
        if scenario.format == "Mininet":
            words = [sys.executable, "-c", READ_MININET, ROOT / "python", path]
        else:
            words = [LORENTZ, "import", path, "--json"]
        done = self.call(*words, timeout=READ_TIMEOUT)
        if done.returncode != 0:
            scenario.error = plain(scenario, done.stderr) or f"not read in {READ_TIMEOUT} s"
            return path, None
        read = json.loads(
            done.stdout.splitlines()[-1] if scenario.format == "Mininet" else done.stdout
        )
        scenario.left_out = len(read["left_out"])
        if scenario.format == "Mininet":
            scenario.notes = read["left_out"]
            path = self.work / "topology.yaml"
            path.write_text(json.dumps(read["topology"]))
        elif scenario.left_out:
            # In these lines elements that differ by names and values alone are one.
            done = self.call(LORENTZ, "import", path, timeout=READ_TIMEOUT)
            scenario.notes = [plain(scenario, line) for line in done.stderr.splitlines()]
        return path, read["topology"]

    def up(self, scenario: Scenario, file: Path, has_images: bool) -> None:
        words = [LORENTZ, "up", "--keep-going", "--json", *self.flags, file]
        done = self.call(*words, timeout=self.seconds)
        if has_images:
            scenario.has_images = "images that podman does not have" not in done.stderr
            if not scenario.has_images:
                done = self.call(*words, "--ignore-images", timeout=self.seconds)
        scenario.is_up = done.returncode == 0
        lines = [plain(scenario, line) for line in done.stderr.splitlines()]
        if done.returncode == 124:
            scenario.error = f"not up in {self.seconds:g} s"
        elif not scenario.is_up:
            scenario.error = lines[-1] if lines else f"exit status {done.returncode}"
        else:
            entries = json.loads(done.stdout)["failed"]
            services = [one for one in entries if one["left_out"]]
            scenario.failed = len(entries) - len(services)
            scenario.notes += services_left_out(services)
            # "DHCP, SSH: not installed: dhcpd sshd"
            names = [one["output"].partition(":")[0].split(", ") for one in services]
            scenario.services = sum(map(len, names))
        scenario.notes += [line for line in lines if ": exec: " in line]

    def ping(self, topology: dict) -> tuple[int, int]:
        """Has neighbours with addresses of the same network ping each other."""
        known: dict[str, dict] = {}
        good, tried = 0, 0
        for ends in self.neighbours(topology):
            if tried == self.pairs:
                break
            addresses = []
            for node, interface in ends:
                if node not in known:
                    known[node] = self.addresses(node)
                addresses += [(node, one) for one in known[node].get(interface, [])]
            for (a, own), (b, other) in itertools.combinations(addresses, 2):
                if a == b or own.network != other.network or tried == self.pairs:
                    continue
                tried += 1
                # The first echo may wait for an address to be resolved.
                words = ["ping", "-c", 3, "-i", 0.2, "-W", 2, other.ip]
                good += self.exec(a, *words).returncode == 0
        return good, tried

    def neighbours(self, topology: dict) -> Iterator[list[End]]:
        """Yields groups of interfaces that reach each other without a router.

        Interfaces of a wlan form pairs that are in range at the start. If nodes move, a pair that
        is out of range when its turn comes is left out.
        """
        nodes, links = topology["topology"]["nodes"], topology["topology"]["links"]
        yield from segments(nodes, links)
        moves = topology.get("mobility", {}).get("scripts") or any(
            "position" in change for change in topology.get("schedule", [])
        )
        for wlan, one, other in in_range(nodes, links):
            if not moves or other[0] in self.hears(wlan).get(one[0], []):
                yield [one, other]

    def hears(self, wlan: str) -> dict[str, list[str]]:
        """Returns, for each member of a wlan, those that it hears now."""
        done = self.call(LORENTZ, "inspect", self.network, "--json", timeout=COMMAND_TIMEOUT)
        return json.loads(done.stdout)["wlans"][wlan]["hears"] if done.returncode == 0 else {}

    def addresses(self, node: str) -> dict[str, list]:
        """Returns the addresses of each interface."""
        done = self.exec(node, "ip", "-j", "address")
        if done.returncode != 0:
            return {}
        return {
            one.get("ifname", ""): [
                ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}")
                for address in one.get("addr_info", [])
                if address.get("scope") == "global" and "local" in address
            ]
            for one in json.loads(done.stdout)
        }

    def exec(self, node: str, *words: object) -> subprocess.CompletedProcess:
        where = f"{self.network}.{node}"
        return self.call(LORENTZ, "exec", where, "--", *words, timeout=COMMAND_TIMEOUT)

    def down(self) -> None:
        if self.network is not None:
            subprocess.run(
                [LORENTZ, "down", self.network],
                capture_output=True,
                env=self.environment,
                timeout=labs.TIMEOUT,
                check=False,
            )
        self.network = None


def segments(nodes: dict, links: list[dict]) -> list[list[End]]:
    """Returns the interfaces that are on a link, or on links that switches join; not of wlans."""
    group: dict[str, str] = {}

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    for link in links:
        parts = ends_of(link)
        if any(nodes[node].get("kind") == "wlan" for node, _ in parts):
            continue
        # All ports of a switch are one.
        names = [
            node if nodes[node].get("kind") in ("switch", "hub") else f"{node}:{interface}"
            for node, interface in parts
        ]
        group[root(names[0])] = root(names[1])
    found: dict[str, list[End]] = {}
    for name in group:
        if ":" in name:
            node, interface = name.split(":", 1)
            found.setdefault(root(name), []).append((node, interface))
    return list(found.values())


def in_range(nodes: dict, links: list[dict]) -> Iterator[tuple[str, End, End]]:
    """Yields each wlan with each pair of its members that are in range by their positions."""
    members: dict[str, list[End]] = {}
    for link in links:
        one, other = ends_of(link)
        for (wlan, _), member in ((one, other), (other, one)):
            if nodes[wlan].get("kind") == "wlan":
                members.setdefault(wlan, []).append(member)
    for wlan, ends in members.items():
        for one, other in itertools.combinations(ends, 2):
            distance = math.dist(nodes[one[0]]["position"], nodes[other[0]]["position"])
            if distance <= nodes[wlan]["radio"]["range"]:
                yield wlan, one, other


def ends_of(link: dict) -> tuple[End, End]:
    """Returns the two ends of a link."""
    one, other = (tuple(end.split(":", 1)) for end in link["endpoints"])
    return one, other


def services_left_out(entries: list[dict]) -> list[str]:
    """Returns a line for each kind of service whose program is missing, with its nodes."""
    nodes: dict[str, list[str]] = {}
    for one in entries:
        nodes.setdefault(one["output"], []).append(one["node"])
    return [f"left out on {', '.join(names)}: {what}" for what, names in nodes.items()]


def plain(scenario: Scenario, text: str) -> str:
    """Returns the last line of a message, without its program and paths of this machine."""
    line = text.strip().splitlines()[-1] if text.strip() else ""
    line = re.sub(r"^(lorentz|lorentz\.\w+|\w*Error): ", "", line)
    for path in (scenario.path.absolute(), scenario.path):
        line = line.replace(f"{path}/", "").replace(f"{path}:", "")
        # The lines of a program for Mininet run in its folder.
        line = line.replace(f"cd {path.parent} && ", "").replace(f"{path.parent}/", "")
    # A program for Mininet has no lines in the topology file that was made of it.
    return re.sub(r"^\S*/topology\.yaml:\d+: ", "", line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the scenarios are")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of an 'up' (120)")
    parser.add_argument("--pairs", type=int, default=12, help="most pings of a scenario (12)")
    # argparse finds no positional arguments behind the options.
    words, flags = sys.argv[1:], []
    if "--" in words:
        at = words.index("--")
        words, flags = words[:at], words[at + 1 :]
    given = parser.parse_args(words)
    if os.geteuid() != 0:
        sys.exit("examples.py: needs root: networks do")
    if not given.folder.is_dir():
        parser.error(f"DIR: {given.folder}: expected a directory")
    labs.put_back_when_ended()
    scenarios = list(find(given.folder))
    programs = list(timekeeper_programs.find(given.folder))
    if not scenarios and not programs:
        parser.error(f"DIR: {given.folder}: expected scenarios in it; there is none")
    with tempfile.TemporaryDirectory(prefix="lorentz-examples-") as work:
        for program in programs:
            timekeeper_programs.build(program, Path(work))
        runner = Runner(given.seconds, given.pairs, flags, Path(work))
        for at, scenario in enumerate(scenarios, start=1):
            print(f"{at}/{len(scenarios)} {scenario.path}", file=sys.stderr)
            runner.run(scenario)
    is_own = given.folder.resolve() == OUR_OWN
    page = examples_page.page(scenarios, programs, given.folder, flags, is_own)
    if given.page:
        given.page.write_text(page)
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
