"""Places in a topology: the keys that lead to a line of its JSON text."""

from __future__ import annotations

import re


def place_of_line(text: str, line: int) -> list[str]:
    """Returns the keys of a line of `json.dumps(topology, indent=1)` and of what encloses it.

    A node or link stands in place of the keys that lead to it.
    """
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return []
    keys: list[str] = []
    ends: list[str] = []
    depth = len(text)
    for at in range(line - 1, 0, -1):
        own = len(lines[at]) - len(lines[at].lstrip())
        if own >= depth:
            continue
        depth = own
        if key := re.match(r'\s*"([^"]+)":', lines[at]):
            keys.insert(0, key[1])
        elif depth == 3:
            # A link's ends are in the two lines after its "endpoints".
            ends = re.findall(r'"([^"]+:[^"]+)"', "".join(lines[at + 1 : at + 5]))[:2]
    if keys[:2] == ["topology", "nodes"] and len(keys) > 2:
        return [f"node {keys[2]}", *keys[3:]]
    if keys[:2] == ["topology", "links"] and len(ends) == 2:
        return [f"link {' - '.join(ends)}", *keys[2:]]
    return keys
