"""examples/print_time: a computation whose TDF changes while it runs (TimeKeeper, figure 2.1)."""

from __future__ import annotations

import re
import subprocess
import sys

from framework import build, lorentz
from framework.needs import tool

COMMAND = build.REPO / "examples" / "print_time" / "run"
FACTORS = {"4": 4.0, "1/4": 0.25}
LINE = re.compile(r"Took (\d+):(\d+) virtual time or (\d+):(\d+) real time")


def test_each_factor_is_measured():
    """A line whose computation has begun under the factor before is no measure: the first."""
    tool("cc")
    env = {**lorentz.session.environment(), "LORENTZ": lorentz.session.binary}
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--loops", "4", "--tdf", *FACTORS],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("Changing the time dilation factor to ")[1:]
    assert [part.split()[0] for part in parts] == list(FACTORS)
    for part, factor in zip(parts, FACTORS.values(), strict=True):
        times = [tuple(map(int, found)) for found in LINE.findall(part)]
        assert len(times) == 4
        ratios = [
            (real_s * 10**6 + real_us) / (virtual_s * 10**6 + virtual_us)
            for virtual_s, virtual_us, real_s, real_us in times[1:]
        ]
        # The real time is that of the reader, which a busy machine wakes late.
        assert sorted(ratios)[1] / factor < 1.5 and sorted(ratios)[1] / factor > 1 / 1.5, ratios
