"""The page about scenarios of other emulators that `benches/examples.py` writes."""

from __future__ import annotations

import datetime
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples import Scenario

#: Where each project publishes its examples.
PUBLISHED = {
    "CORE": "<https://github.com/coreemu/core>, `daemon/core/gui/data/xmls` and `package`",
    "CORE 4": "<https://github.com/coreemu/core>, `gui/configs` of release 4.8",
    "IMUNES": "<https://github.com/imunes/imunes-examples>",
    "Kathara": "<https://github.com/KatharaFramework/Kathara-Labs>",
    "containerlab": "<https://github.com/srl-labs/containerlab>, `lab-examples`",
    "Mininet": "<https://github.com/mininet/mininet>, `examples` and `custom`",
}

HEAD = """\
# Scenarios of other emulators, tried

How many scenarios of CORE, IMUNES, containerlab, Kathara and Mininet come up, and what is left
out? `benches/examples.py DIR` answers that for the scenarios in a directory, and writes this page.
It reads each, has it come up within a time limit, has neighbours ping each other, and takes it
down.
"""

EXPLAINED = """\
A scenario is *up* when `lorentz up` has made all of it. *Without images* are those whose images
podman does not have here: their nodes ran the host's programs in private layers, so lines that need
a program of the image fail. *Left out* counts elements that have no place in Lorentz, *lines
failed* those of `exec` and of start-up scripts. *Pings* are pairs of neighbours with addresses in
one network, of whom the first reached the second. Neighbours on a wireless LAN are those in range
at the start, unless they have moved out of range before their ping.
"""

OWN = """\
These files are our own, those of `tests/networks/scenarios`. Each is small and holds one thing that
published examples have, among it what Lorentz leaves out, and lines that have to fail."""

NOT_OURS = """\
The examples of these projects are theirs, and are not copied here. To try them, clone the
repository and give its directory to `benches/examples.py`.
"""


def page(scenarios: list[Scenario], folder: Path, is_own: bool) -> str:
    """Returns the page about `scenarios`, which are below `folder`; `is_own`: the tests' files."""
    day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    parts = [HEAD, f"Tried on {day}. {OWN if is_own else ''}\n", EXPLAINED]
    groups = {
        name: list(group)
        for name, group in itertools.groupby(
            sorted(scenarios, key=lambda one: list(PUBLISHED).index(one.format)),
            key=lambda one: one.format,
        )
    }
    parts.append(totals(groups))
    for name, group in groups.items():
        parts.append(f"## {name}\n")
        parts.append(table(group, folder))
        if notes := notes_of(group, folder):
            parts.append(notes)
    parts.append(published())
    return "\n".join(parts)


def totals(groups: dict[str, list[Scenario]]) -> str:
    rows = [
        (
            name,
            len(group),
            sum(one.size is not None for one in group),
            sum(one.is_up for one in group),
            sum(one.has_images is False for one in group),
            sum(count_of(one.left_out) for one in group),
            sum(len(one.failed) for one in group),
            f"{sum(one.pings[0] for one in group)} of {sum(one.pings[1] for one in group)}",
        )
        for name, group in groups.items()
    ]
    head = "| format | files | read | up | without images | left out | lines failed | pings |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *map(row, rows), ""])


def table(group: list[Scenario], folder: Path) -> str:
    rows = [
        (
            f"`{one.path.relative_to(folder)}`",
            "no" if one.size is None else f"{one.size[0]} nodes, {one.size[1]} links",
            ("yes" if one.is_up else "no")
            + (", without images" if one.has_images is False else ""),
            count_of(one.left_out) or "-",
            len(one.failed) or "-",
            f"{one.pings[0]} of {one.pings[1]}" if one.pings[1] else "-",
        )
        for one in group
    ]
    head = "| file | read | up | left out | lines failed | pings |"
    return "\n".join([head, "|---|---|---|---|---|---|", *map(row, rows), ""])


def row(cells: tuple[object, ...]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def count_of(lines: list[str]) -> int:
    """Returns how many elements the lines tell of: one line may stand for several."""
    more = sum(int(one) for line in lines for one in re.findall(r"; and (\d+) more like it", line))
    return len(lines) + more


def notes_of(group: list[Scenario], folder: Path) -> str:
    """Lists the command's own lines."""
    lines = []
    for one in group:
        for text in [one.error] * bool(one.error) + one.left_out + one.failed:
            # A line that opens with a place in the file.
            text = text.replace("`", "'")
            lines.append(f"- `{one.path.relative_to(folder)}`: `{text}`")
    return "\n".join([*lines, ""]) if lines else ""


def published() -> str:
    rows = [f"| {name} | {where} |" for name, where in PUBLISHED.items()]
    head = ["| of | where |", "|---|---|"]
    return "\n".join(["## Where examples are published\n", NOT_OURS, *head, *rows, ""])
