"""`lorentz up`, or its emulator, killed at a moment of its work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from framework import lorentz, processes
from framework.networks import TIMEOUT, Lab

#: Progress of `lorentz up` when it is killed: a file below the state directory that exists by then.
#: None: the line of exec runs.
MOMENTS = {
    "the network's directory": ".networks/{name}",
    "its record": ".networks/{name}/network.json",
    "the first bundle": ".networks/{name}/a.bundle",
    "the first configuration": ".networks/{name}/a.bundle/config.json",
    "the runtime has begun": ".runtime/{name}.a",
    "the first container": ".runtime/{name}.a/state.json",
    "the second bundle": ".networks/{name}/b.bundle",
    "the last bundle": ".networks/{name}/c.bundle",
    "a line of exec": None,
}
#: A line of exec that does not end.
LINE = "sleep 1000; : line of {name}"


def _line(lab: Lab) -> str:
    return f'sh -c "{LINE.format(name=lab.name)}"'


def _own(lines: str = "", node: str = "") -> tuple[Lab, Path]:
    lab = Lab("")
    lab.text = f"""\
name: {lab.name}
isolation: private
{lines}
topology:
  nodes:
    a: {{exec: ['{_line(lab)}']{node}}}
    b: {{command: [sleep, '1000']}}
    c: {{}}
  links: [{{endpoints: ['b:eth0', 'c:eth0'], delay: 1ms}}]
"""
    lab.file.write_text(lab.text)
    return lab, lab.file


def _kathara() -> tuple[Lab, Path]:
    lab = Lab("")
    folder = Path(lab.folder.name) / lab.name
    folder.mkdir()
    machines = "".join(f'{name}[0]="A"\n' for name in "abc")
    (folder / "lab.conf").write_text(f'LAB_NAME="{lab.name}"\n{machines}')
    (folder / "a.startup").write_text(f"{_line(lab)}\n")
    return lab, folder


def _core() -> tuple[Lab, Path, str]:
    """In rounds: its link has a delay."""
    lab = Lab("")
    path = Path(lab.folder.name) / f"{lab.name}.xml"
    devices = "".join(
        f"<device id='{id}' name='{name}' type='PC'><services>"
        "<service name='UserDefined'/></services></device>"
        for id, name in enumerate("abc", start=1)
    )
    path.write_text(
        f"<scenario name='{lab.name}'><devices>{devices}</devices>"
        "<links><link node1='2' node2='3'><options delay='1000'/></link></links>"
        "<service_configurations><service name='UserDefined' node='1'><startups><startup>"
        f"{_line(lab)}"
        "</startup></startups></service></service_configurations></scenario>"
    )
    return lab, path, "--rounds"


#: Networks of private nodes a, b and c. Each returns its words for `up`: a file, and flags.
NETWORKS: dict[str, Callable[[], tuple[Lab, ...]]] = {
    "own": _own,
    "own, rounds": lambda: _own("rounds: true"),
    "Kathara": _kathara,
    "CORE, rounds": _core,
}


def with_image(image: str) -> tuple[Lab, Path]:
    """A network whose node a runs in an image."""
    return _own(node=f", image: '{image}'")


def start(lab: Lab, words: list[object]) -> subprocess.Popen:
    """Starts `lorentz up`."""
    process = subprocess.Popen(
        [*lorentz.session.command(), "up", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**lorentz.session.environment(), processes.TAG: lab.tag},
    )
    lab.started.append(process)
    return process


def kill(lab: Lab, words: list[object], moment: str, killed: str) -> None:
    """Runs `lorentz up`, and kills it at the moment; if `killed` is "emulator", that one before."""
    state = lorentz.session.state_dir()
    process = start(lab, words)
    sign = MOMENTS[moment]

    def is_there() -> bool:
        return (state / sign.format(name=lab.name)).exists() if sign else _line_runs(lab)

    lab.wait_until(lambda: is_there() or process.poll() is not None, moment)
    if killed == "emulator":
        record = state / ".networks" / lab.name / "network.json"
        lab.wait_until(record.exists, "the emulator")
        os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
    process.kill()
    process.wait(timeout=TIMEOUT)


def _line_runs(lab: Lab) -> bool:
    words = f"sh\0-c\0{LINE.format(name=lab.name)}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == words:
                return True
        except OSError:
            continue
    return False
