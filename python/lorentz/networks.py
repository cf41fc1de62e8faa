"""Networks: nodes on one clock, joined by links that keep its time."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lorentz import _native
from lorentz.clock_options import NetworkClockOptions
from lorentz.clock_texts import clock_texts
from lorentz.containers import Container
from lorentz.experiments import Compute
from lorentz.status import html_table
from lorentz.times import Duration, nanoseconds
from lorentz.topology_places import place_of_line

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Bits per second, a whole number from 8 to 10**12; or text: "10mbit", "2.5gbit", "none".
Rate: TypeAlias = "str | int"

#: A position, to the right and down: two numbers from -10**9 to 10**9, in any unit of distance.
Position: TypeAlias = "Sequence[float]"


class Node(Container):
    """A node of a network: a container. `popen` and `run` run commands in it."""

    def __init__(self, network: Network, name: str) -> None:
        super().__init__(f"{network.name}.{name}")
        #: The node's name in its network; `name` is that of its container.
        self.node = name
        self._network = network

    def _check_is_there(self) -> None:
        try:
            super()._check_is_there()
        except _native.NotFoundError:
            what = f"node {self.node!r}: does not run in network {self._network.name!r}"
            raise _native.NotFoundError(f"{what}; expected one that 'up' has created") from None


class Link:
    """A link of a network."""

    def __init__(self, network: Network, ends: tuple[str, str]) -> None:
        self._network = network
        #: The link's ends, "NODE:INTERFACE" each.
        self.ends = ends

    def set(
        self,
        sender: Node | str | None = None,
        *,
        rate: Rate | None = None,
        delay: Duration | None = None,
        jitter: Duration | None = None,
        loss: str | None = None,
        duplicate: str | None = None,
        reorder: str | None = None,
        corrupt: str | None = None,
        queue_packets: int | None = None,
        queue_bytes: str | int | None = None,
        up: bool | None = None,
    ) -> None:
        """Changes the given properties, all of them between the same two frames.

        `sender`: change only the direction in which this node or end sends; default: both. `up` is
        always for both. The network must be up. Raises WrongInputError for values that contradict
        each other or those in force; nothing has changed then.
        """
        flags = {
            "rate": _rate(rate),
            "delay": _duration(delay),
            "jitter": _duration(jitter),
            "loss": loss,
            "duplicate": duplicate,
            "reorder": reorder,
            "corrupt": corrupt,
            "queue-packets": queue_packets,
            "queue-bytes": queue_bytes,
        }
        words = [f"--{key}={value}" for key, value in flags.items() if value is not None]
        if up is not None:
            words.append("--up" if up else "--down")
        if sender is None:
            words.append("--both")
        self._call("set", self._end(sender), *words)

    def show(self) -> dict:
        """Returns `up`, `mtu`, and the `impairments` and `counts` of both `directions`.

        The form is that of `lorentz link show --json`.
        """
        return self._call("show", self.ends[0])[0]

    def _end(self, sender: Node | str | None) -> str:
        if sender is None:
            return self.ends[0]
        wanted = _name(sender)
        for end in self.ends:
            if wanted in (end, end.split(":")[0]):
                return end
        raise _native.WrongInputError(f"sender {wanted!r}: expected one of {self.ends}")

    def _call(self, verb: str, *words: str) -> list | dict:
        flags = ["--network", self._network.name, "--json"]
        return json.loads(_native.call(["link", verb, *words, *flags]))

    def __repr__(self) -> str:
        return f"Link{self.ends!r}"


class Network:
    """A network. A program builds it, then `up` creates it; a `with` block calls `up` and `down`.

    network = Network(tdf=10)
    a, b = network.node("a"), network.node("b")
    link = network.link(a, b, rate="10gbit", delay="5ms", ipv4=("10.0.0.1/24", "10.0.0.2/24"))
    with network:
        a.run(["ping", "-c", "3", "10.0.0.2"])
        link.set(delay="20ms")
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        rounds: bool = False,
        compute: Compute | None = None,
        seed: int = 0,
        isolation: str | None = None,
        **clock: Unpack[NetworkClockOptions],
    ) -> None:
        """`clock`: options of the network's clock: `tdf` (default 1), `rate`, and `at`, the wall
        clock's date at the start, as "2038-01-19T03:14:00Z".

        `rounds`: each node has a clock of its own. The clocks advance together, and frames arrive
        at their exact virtual instants. All links need a delay then.

        `compute`: in rounds, "none" has clocks stand while programs compute, so that results
        repeat.

        `isolation`: "host" (the default) or "private", how nodes are separated from the host.
        """
        self.name = name or f"net-{os.urandom(4).hex()}"
        #: The topology, as docs/networks.md describes it.
        self.topology: dict = {
            "name": self.name,
            **clock_texts(clock, NetworkClockOptions),
            "seed": seed,
            "topology": {"nodes": {}, "links": []},
        }
        if rounds:
            self.topology["rounds"] = True
        if compute is not None:
            self.topology["compute"] = compute
        if isolation is not None:
            self.topology["isolation"] = isolation
        #: Elements of the imported file or topology that this network leaves out, one text each.
        self.left_out: list[str] = []
        #: Whether `up` goes on if a line of `exec` fails, as other emulators do.
        self.keep_going = False

    @classmethod
    def from_file(cls, path: str | PathLike[str], name: str | None = None) -> Network:
        """Reads a topology file, or a scenario of another emulator.

        `left_out` has the elements that are not supported. `keep_going` is set for a scenario of
        another emulator. Raises WrongInputError with line and column for a wrong file.
        """
        imported = json.loads(_native.call(["import", os.fspath(path), "--json"]))
        network = cls(name or imported["topology"]["name"])
        network.topology = {**imported["topology"], "name": network.name}
        # Scripts are relative to the file that names them.
        for script in network.topology.get("mobility", {}).get("scripts", []):
            script["file"] = str(Path(path).absolute().parent / script["file"])
        place = "{file}:{line}:{column}: {what}"
        network.left_out = [place.format(**one) for one in imported["left_out"]]
        network.keep_going = imported["format"] != "lorentz"
        return network

    @classmethod
    def from_mininet(cls, topo: object, name: str | None = None, **options: object) -> Network:
        """Makes a network from a Mininet `Topo`, or an object with its methods. Options as for
        Network.

        Interfaces have the names that Mininet gives them. Hosts have Mininet's addresses: their
        `ip`, or else 10.0.0.1/8 and on. A host whose `cls` switches IP forwarding on is a router.
        A host whose `cls` is NAT masquerades what its `subnet` sends elsewhere in the network.
        Links keep bw, delay, jitter, loss, max_queue_size, latency_ms and enable_red. The rest is
        in `left_out`.
        """
        from lorentz.mininet import build

        network = cls(name, **options)
        build(network, topo)
        return network

    @classmethod
    def from_mininet_program(
        cls,
        path: str | PathLike[str],
        name: str | None = None,
        *,
        topo: str | None = None,
        arguments: Sequence[str] = (),
        **options: object,
    ) -> Network:
        """Makes a network from a program in Python that uses Mininet. Mininet is not needed.

        The program runs in this process up to its first use of the running network, as `CLI(net)`
        or `net.pingAll()`, against classes that note what it builds. Commands that it has given to
        nodes until then become their `exec`; its commands of the host do not run. `topo`: instead
        one of its `topos`, as `mn --custom FILE --topo NAME,4` takes it. `arguments`: those of the
        program. `keep_going` is set. Unless `isolation` says otherwise, each node has a private
        layer over the host's files, and the program's folder. Raises WrongInputError with the line
        if the program fails or makes no network.
        """
        from lorentz.mininet_programs import read

        options.setdefault("isolation", "private")
        made, left_out = read(path, topo, arguments)
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", Path(path).stem).lstrip("._-")
        network = cls.from_mininet(made, name or stem[:60] or None, **options)
        network.left_out += left_out
        network.keep_going = True
        if options["isolation"] == "private":
            _share(network, Path(path).absolute().parent)
        return network

    # ---------------------------------------------------------------------------- building it

    def node(
        self,
        name: str,
        command: str | Sequence[str] | None = None,
        *,
        exec: Iterable[str] = (),
        shutdown: Iterable[str] = (),
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        sysctls: Mapping[str, object] | None = None,
        output: str | PathLike[str] | None = None,
        image: str | None = None,
        rootfs: str | PathLike[str] | None = None,
        user: str | None = None,
        binds: Iterable[str] = (),
        isolation: str | None = None,
        files: str | PathLike[str] | None = None,
        args: Sequence[str] = (),
        network_of: Node | str | None = None,
        position: Position | None = None,
        compute: Compute | None = None,
        parallel: int | None = None,
        **clock: Unpack[NetworkClockOptions],
    ) -> Node:
        """Adds a node; docs/networks.md describes the parameters. Options of a `clock` of its own
        need a network with rounds: `tdf` or `rate`, and `at`, a date of its own.

        `position`: needed by a node that is a member of a wlan; `picture` draws the node there.
        """
        said = {
            **clock_texts(clock, NetworkClockOptions),
            "command": command if command is None or isinstance(command, str) else list(command),
            "exec": list(exec),
            "shutdown": list(shutdown),
            "shell": shell,
            "env": dict(env or {}),
            "sysctls": {key: str(value) for key, value in (sysctls or {}).items()},
            "output": None if output is None else os.fspath(output),
            "image": image,
            "rootfs": None if rootfs is None else os.fspath(rootfs),
            "user": user,
            "binds": list(binds),
            "isolation": isolation,
            "files": None if files is None else os.fspath(files),
            "args": list(args),
            "compute": compute,
            "parallel": parallel,
            "network-of": None if network_of is None else _name(network_of),
            "position": _position(position),
        }
        self._add(name, {key: value for key, value in said.items() if value})
        return Node(self, name)

    def switch(self, name: str, *, stp: bool = False, position: Position | None = None) -> str:
        """Adds a learning switch. Returns its name, for `link`.

        stp: it takes part in a spanning tree, so that links between switches may form loops.
        """
        return self._add(name, _given(kind="switch", stp=stp or None, position=_position(position)))

    def hub(self, name: str, *, position: Position | None = None) -> str:
        """Adds a hub. Returns its name, for `link`."""
        return self._add(name, _given(kind="hub", position=_position(position)))

    def wlan(
        self,
        name: str,
        *,
        range: float,
        position: Position | None = None,
        rate: Rate | None = None,
        delay: Duration | None = None,
        jitter: Duration | Mapping | None = None,
        **others: object,
    ) -> str:
        """Adds a wireless LAN. Returns its name, for `link`: a link makes a node its member.

        `range`: the greatest distance between two members that hear each other, in the unit of
        positions, above 0, at most 10**9. Every member needs a position; that of the wlan itself is
        for `picture` alone. The other keywords are those of `link` for impairments: rate, delay,
        jitter, loss, duplicate, reorder, corrupt, queue. They are for the frames that each member
        receives. A link to a wlan has none of its own.
        """
        radio = _given(range=range, rate=rate, delay=delay, jitter=jitter, **others)
        return self._add(name, _given(kind="wlan", radio=radio, position=_position(position)))

    def _add(self, name: str, said: dict) -> str:
        nodes = self.topology["topology"]["nodes"]
        if name in nodes:
            raise _native.WrongInputError(f"node {name!r}: is there already")
        nodes[name] = said
        return name

    def link(
        self,
        a: Node | str,
        b: Node | str,
        *,
        rate: Rate | None = None,
        delay: Duration | None = None,
        jitter: Duration | Mapping | None = None,
        **others: object,
    ) -> Link:
        """Joins two ends: a node, a switch, a wlan, or "NODE:INTERFACE".

        For a node alone, the link takes the next of its interfaces eth0, eth1 and so on. The
        keywords are those of a link in a topology file (docs/networks.md): rate, delay (one way),
        jitter, loss, duplicate, reorder, corrupt, queue, mtu, state, and ipv4, ipv6, mac with one
        value for each end. `from_` maps an end to the properties that differ for the frames it
        sends.
        """
        first = self._end(a)
        ends = (first, self._end(b, first))
        said = _given(endpoints=list(ends), rate=rate, delay=delay, jitter=jitter, **others)
        self.topology["topology"]["links"].append(said)
        return Link(self, ends)

    def _end(self, end: Node | str, *taken: str) -> str:
        name = _name(end)
        if ":" in name:
            return name
        links = self.topology["topology"]["links"]
        used = {*taken, *(one for link in links for one in link["endpoints"])}
        return next(one for at in itertools.count() if (one := f"{name}:eth{at}") not in used)

    def schedule(
        self,
        at: Duration,
        *,
        node: Node | str | None = None,
        position: Position | None = None,
        speed: float | None = None,
        link: str | None = None,
        set: Mapping[str, object] | None = None,
        both: bool = False,
        state: str | None = None,
        clock: Node | str | Sequence[Node | str] | None = None,
        fault: Mapping[str, object] | None = None,
    ) -> None:
        """Adds a change of a node's position, of a link or of clocks, `at` a virtual time since the
        start.

        `node` goes to `position`: in a straight line with `speed`, in units of distance per virtual
        second, above 0, at most 10**9; at once without it.

        `link`: an end, "NODE:INTERFACE". `set` has the impairments that change, with the keywords
        of `Network.link`, for the frames that this end sends; `both`: in the other direction too.
        `state`: "up" or "down".

        `clock`: in rounds, a node, several, or "all". `fault` has what their clocks do, with the
        keys of a topology file: {"bump": "-90s"}, {"drift": "+200ppm", "for": "10m"}, {"suspend":
        "2h"}.

        For a network that is up, `update` takes changes of links and clocks over.
        """
        clocks = [clock] if isinstance(clock, (Node, str)) else clock
        change = _given(
            at=at,
            node=None if node is None else _name(node),
            position=_position(position),
            speed=speed,
            link=link,
            set=None if set is None else _given(**set),
            both=both or None,
            state=state,
            clock=None if clocks is None else [_name(one) for one in clocks],
            **(fault or {}),
        )
        self.topology.setdefault("schedule", []).append(change)

    def mobility(
        self,
        file: str | PathLike[str] | None = None,
        *,
        start: Duration | None = None,
        loop: bool = False,
        map: Mapping[int, Node | str] | None = None,
        refresh: Duration | None = None,
    ) -> None:
        """Adds a mobility script in the format of ns-2, or sets `refresh` for all walks, or both.

        `file`: the script. `start`: virtual time from the network's start to the script's, default
        0. `loop`: it begins anew when all its walks have arrived. `map`: nodes by their numbers in
        the script; other numbers are ignored. Without it number 3 is the node 3 or n3. `refresh`:
        virtual time between two steps of a walk, 1 ms or more, default 50 ms.
        """
        mobility = self.topology.setdefault("mobility", {})
        if refresh is not None:
            mobility["refresh"] = _duration(refresh)
        if file is not None:
            nodes = None if map is None else {str(key): _name(node) for key, node in map.items()}
            script = _given(
                file=str(Path(file).absolute()),
                start=start,
                loop=loop or None,
                map=nodes,
            )
            mobility.setdefault("scripts", []).append(script)

    # ---------------------------------------------------------------------------- its life

    def up(self) -> None:
        """Creates the network. Returns when its time runs and every line of `exec` has succeeded.

        Raises WrongInputError if the topology is wrong, FailedError if the machine refuses; nothing
        is left then. Warns if the kernel has no room for all neighbours, and of each line of `exec`
        that failed if `keep_going` is set.
        """
        self._up()

    def update(self) -> None:
        """Has the network, which is up, go over to what was added since: nodes, links and scheduled
        changes of links and clocks come, and those that are no longer in `topology` go. All others
        notice nothing.

        Raises WrongInputError if something is wrong with it, and nothing changes then. Links that
        stay keep the settings in force. In rounds nodes cannot come and go.
        """
        self._up("--update")

    def _up(self, *flags: str) -> None:
        policy = "--keep-going" if self.keep_going else "--strict"
        answer = json.loads(self._call_with_topology("up", "--json", policy, *flags))
        failed = [
            f"node {one['node']}: exec: {one['text']}: exit status {one['status']}: {one['output']}"
            for one in answer["failed"]
        ]
        for what in [*([answer["advice"]] if answer["advice"] else []), *failed]:
            warnings.warn(f"{self.name}: {what}", RuntimeWarning, stacklevel=2)

    def _call_with_topology(self, *words: str) -> str:
        """Runs a command whose next argument is a topology file. Returns its output."""
        with tempfile.TemporaryDirectory(prefix="lorentz-") as folder:
            file = Path(folder) / "topology.yaml"
            text = json.dumps(self.topology, indent=1)
            file.write_text(text)
            try:
                return _native.call([*words, str(file), "--format", "lorentz"])
            except _native.WrongInputError as error:
                # The error's line and column are of a file that the user has not written.
                found = re.match(re.escape(str(file)) + r":(\d+):\d+: (.*)", str(error))
                if not found:
                    raise
                line, what = int(found[1]), found[2]
                keys = place_of_line(text, line)
                # Many messages begin with the last of these keys.
                where = itertools.takewhile(lambda key: not what.startswith(f"{key}:"), keys)
                raise _native.WrongInputError(": ".join([*where, what])) from None

    def down(self) -> None:
        """Ends all programs of the network, and removes it."""
        _native.call(["down", self.name])

    def status(self) -> dict:
        """Returns the network's status, as `lorentz inspect --json` prints it."""
        return json.loads(_native.call(["inspect", self.name, "--json"]))

    @property
    def clock(self) -> Container:
        """The container with the network's clock: `dilate`, `freeze`, `leap` and `time` are for all
        nodes."""
        return Container(self.name)

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes that can run commands, by name."""
        all_nodes = self.topology["topology"]["nodes"]
        hosts = [n for n, said in all_nodes.items() if said.get("kind", "process") == "process"]
        return {name: Node(self, name) for name in hosts}

    @property
    def links(self) -> list[Link]:
        """The links, in the order in which they were added."""
        return [Link(self, tuple(one["endpoints"])) for one in self.topology["topology"]["links"]]

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def __repr__(self) -> str:
        return f"Network({self.name!r})"

    def picture(self) -> str:
        """Returns a drawing of the network as built, whether it is up or not: an SVG file's text.

        Raises WrongInputError if the topology is wrong.
        """
        return self._call_with_topology("graph", "--file")

    def _repr_html_(self) -> str:
        """Formats the network for notebooks: its nodes and links, and a drawing."""
        described = self.topology["topology"]
        nodes = [
            [name, said.get("kind", "process"), said.get("image") or said.get("rootfs") or ""]
            for name, said in described["nodes"].items()
        ]
        links = [
            [*one["endpoints"], ", ".join(f"{key} {one[key]}" for key in one if key != "endpoints")]
            for one in described["links"]
        ]
        try:
            drawing = self.picture()
        except _native.LorentzError as error:
            drawing = f"<p>{html.escape(str(error))}</p>"
        tables = html_table(["node", "kind", "files"], nodes) + html_table(
            ["from", "to", "link"], links
        )
        return f"<p>{html.escape(self.name)}</p>{tables}{drawing}"


def _given(**values: object) -> dict:
    """Returns the values other than None as a topology file has them, by its keys."""
    texts = {"rate": _rate, "at": _duration, "start": _duration, "delay": _duration}
    texts["jitter"] = lambda jitter: jitter if isinstance(jitter, Mapping) else _duration(jitter)
    return {
        key.rstrip("_"): texts[key](value) if key in texts else value
        for key, value in values.items()
        if value is not None
    }


def _name(node: Node | str) -> str:
    return node.node if isinstance(node, Node) else node


def _position(position: Position | None) -> list[float] | None:
    return None if position is None else list(position)


def _rate(rate: Rate | None) -> str | None:
    return f"{rate}bit" if isinstance(rate, int) else rate


def _duration(duration: Duration | None) -> str | None:
    return None if duration is None else f"{nanoseconds(duration)}ns"


def _share(network: Network, folder: Path) -> None:
    """Gives the private nodes of a network a folder of the host, in which their lines run."""
    for node in network.topology["topology"]["nodes"].values():
        if "kind" not in node and "image" not in node:
            node.setdefault("binds", []).append(f"{folder}:{folder}")
            into = f"cd {shlex.quote(os.fspath(folder))} && "
            if "exec" in node:
                node["exec"] = [into + line for line in node["exec"]]
