"""Clock reads go on while the clock is changed, whatever timers are armed."""

from __future__ import annotations

import pytest
from framework import build
from framework.running import Inside

#: Changes of each kind. A change that stopped all reads did it for 50 ms.
CHANGES = 10
STOP = 0.05

VERBS = {
    "faster": ("dilate", "--rate", "5"),
    "slower": ("dilate", "--rate", "1/5"),
    "leap": ("leap", "--by", "1s"),
    "back": ("step", "--by=-1s"),
}


@pytest.mark.parametrize("kind", VERBS)
def test_reads_go_on_through_changes(kind):
    """A thread that reads the clock stands still no longer than one beside it that does not."""
    with Inside(build.c("faults/reads"), rate="1", stdin=True) as inside:
        begun = inside.line(ev="ready").at
        for _ in range(CHANGES):
            inside.dilate("1")
            inside.verb(*VERBS[kind])
        inside.close_stdin()
        end = inside.line(ev="reads")
        inside.succeed()
    a_second = end["elapsed"] / (end.at - begun)
    stalled, control = end["stalled"] / a_second, end["control"] / a_second
    assert end["reads"] > 0
    assert stalled <= 3 * control + CHANGES * STOP / 5, f"{stalled:.3f} s, beside {control:.3f} s"
