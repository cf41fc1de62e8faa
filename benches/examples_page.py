"""The page about scenarios of other emulators that `benches/examples.py` writes."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timekeeper_programs import Program

    from examples import Scenario

#: Where each project publishes its examples.
PUBLISHED = {
    "CORE": "<https://github.com/coreemu/core>, `daemon/core/gui/data/xmls` and `package`",
    "CORE 4": "<https://github.com/coreemu/core>, `gui/configs` of release 4.8",
    "IMUNES": "<https://github.com/imunes/imunes-examples>",
    "Kathara": "<https://github.com/KatharaFramework/Kathara-Labs>",
    "containerlab": "<https://github.com/srl-labs/containerlab>, `lab-examples`",
    "Mininet": "<https://github.com/mininet/mininet>, `examples` and `custom`",
    "TimeKeeper": "<https://github.com/Vignesh2208/TimeKeeper>, `dilation-code/scripts` and "
    "`dilation-code/ns-3`",
}

HEAD = """\
# Scenarios of other emulators, tried

How many scenarios of CORE, IMUNES, containerlab, Kathara and Mininet come up, and what is left
out? `benches/examples.py DIR` answers that for the scenarios in a directory, and writes this page.
It reads each, has it come up within a time limit, has neighbours ping each other, and takes it
down. It compiles programs for TimeKeeper.
"""

EXPLAINED = """\
- A scenario is *up* when `lorentz up --keep-going` has made its nodes and links. It is *up without
  a failed line* if also each line of `exec` and of start-up scripts succeeded, and no service was
  left out for want of its program.
- *Without images* are those whose images podman does not have here: their nodes ran the host's
  programs in private layers, so lines that need a program of the image fail.
- *Left out* counts elements that have no place in Lorentz, *services left out* the services of
  nodes that do not have the program, *lines failed* all other lines that failed.
- *Pings* are pairs of neighbours with addresses in one network, of whom the first reached the
  second. Neighbours on a wireless LAN are those in range at the start, unless they have moved out
  of range before their ping.
"""

OWN = """\
These files are our own, those of `tests/networks/scenarios`. Each is small and holds one thing that
published examples have, among it what Lorentz leaves out, and lines that have to fail."""

NOT_OURS = """\
The examples of these projects are theirs, and are not copied here. To try them, clone the
repository and give its directory to `benches/examples.py`.
"""


#: The root file system of tests/framework/servers.py.
SERVERS = "build/tests/servers"

PROGRAMS = """\
## TimeKeeper

C programs that include `TimeKeeper_functions.h` or `utility_functions.h`, compiled with the headers
of Lorentz by `gcc -Wall -Wextra`, and linked to `libtimekeeper`. They are not run here. Programs
beside them that include neither, such as `reader.c`, are not counted.
"""


def page(
    scenarios: list[Scenario],
    programs: list[Program],
    folder: Path,
    flags: list[str],
    is_own: bool,
) -> str:
    """Returns the page about `scenarios` and `programs`, which are below `folder`.

    flags: flags of each `lorentz up`; is_own: the files are those of the tests.
    """
    day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    tried = [f"Tried on {day}."]
    if flags:
        tried.append(f"Each `lorentz up` had the flags `{' '.join(flags)}`.")
    if SERVERS in flags:
        tried.append(
            "The tests make that root file system by debootstrap; Debian's servers are in it."
        )
    if is_own:
        tried.append(OWN)
    parts = [HEAD, " ".join(tried) + "\n", EXPLAINED]
    groups = {
        name: list(group)
        for name, group in itertools.groupby(
            sorted(scenarios, key=lambda one: list(PUBLISHED).index(one.format)),
            key=lambda one: one.format,
        )
    }
    if groups:
        parts.append(totals(groups))
    if programs:
        parts.append(program_totals(programs))
    for name, group in groups.items():
        parts.append(f"## {name}\n")
        parts.append(table(group, folder))
        if notes := notes_of(group, folder):
            parts.append(notes)
    if programs:
        parts += [PROGRAMS, program_table(programs, folder)]
    parts.append(published())
    return "\n".join(parts)


TOTALS = (
    *("format", "files", "read", "up", "up without a failed line", "without images"),
    *("left out", "services left out", "lines failed", "pings"),
)
COLUMNS = ("file", "read", "up", "left out", "services left out", "lines failed", "pings")


def totals(groups: dict[str, list[Scenario]]) -> str:
    rows = [
        (
            name,
            len(group),
            sum(one.size is not None for one in group),
            sum(one.is_up for one in group),
            sum(one.is_complete for one in group),
            sum(one.has_images is False for one in group),
            sum(one.left_out for one in group),
            sum(one.services for one in group),
            sum(one.failed for one in group),
            f"{sum(one.pings[0] for one in group)} of {sum(one.pings[1] for one in group)}",
        )
        for name, group in groups.items()
    ]
    return lines_of(TOTALS, rows)


def table(group: list[Scenario], folder: Path) -> str:
    rows = [
        (
            f"`{one.path.relative_to(folder)}`",
            "no" if one.size is None else f"{one.size[0]} nodes, {one.size[1]} links",
            ("yes" if one.is_up else "no")
            + (", without images" if one.has_images is False else ""),
            one.left_out or "-",
            one.services or "-",
            one.failed or "-",
            f"{one.pings[0]} of {one.pings[1]}" if one.pings[1] else "-",
        )
        for one in group
    ]
    return lines_of(COLUMNS, rows)


def program_totals(programs: list[Program]) -> str:
    total = (
        len(programs),
        sum(one.is_compiled for one in programs),
        sum(one.is_linked for one in programs),
        sum(one.warnings for one in programs),
    )
    head = ("format", "programs", "compile", "link", "warnings")
    return lines_of(head, [("TimeKeeper", *total)])


def program_table(programs: list[Program], folder: Path) -> str:
    rows = [
        (
            f"`{one.path.relative_to(folder)}`",
            "yes" if one.is_compiled else "no",
            "yes" if one.is_linked else "no",
            one.warnings or "-",
        )
        for one in programs
    ]
    notes = [
        f"- `{one.path.relative_to(folder)}`: `{one.error.replace('`', chr(39))}`\n"
        for one in programs
        if one.error
    ]
    return "\n".join([lines_of(("file", "compiles", "links", "warnings"), rows), *notes])


def lines_of(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """Returns a table, with an empty line behind it."""
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows), ""])


def row(cells: tuple[object, ...]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def notes_of(group: list[Scenario], folder: Path) -> str:
    """Lists the command's own lines."""
    lines = []
    for one in group:
        for text in [one.error] * bool(one.error) + one.notes:
            # A line that opens with a place in the file.
            text = text.replace("`", "'")
            lines.append(f"- `{one.path.relative_to(folder)}`: `{text}`")
    return "\n".join([*lines, ""]) if lines else ""


def published() -> str:
    rows = [f"| {name} | {where} |" for name, where in PUBLISHED.items()]
    head = ["| of | where |", "|---|---|"]
    return "\n".join(["## Where examples are published\n", NOT_OURS, *head, *rows, ""])
