"""Random programs of sleeps and messages do what a simulation says, at the times it says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from framework import real
from framework.running import Inside

Step = tuple[str, float]

#: Virtual seconds by which a step may be late: the real time of the steps before it.
LATE = 5.0


def random_scripts(rng: random.Random, workers: int, steps: int) -> list[list[Step]]:
    """Returns scripts without deadlock: in the order of writing they can be carried out."""
    scripts: list[list[Step]] = [[] for _ in range(workers)]
    for _ in range(steps):
        me = rng.randrange(workers)
        if rng.random() < 0.5:
            scripts[me].append(("sleep", rng.randrange(10, 5_000)))
        else:
            other = rng.choice([i for i in range(workers) if i != me])
            scripts[me].append(("send", other))
            scripts[other].append(("receive", me))
    return scripts


def simulate(scripts: list[list[Step]]) -> list[list[float]]:
    """Returns the time of each step if nothing but sleeping takes time."""
    done: list[list[float]] = [[] for _ in scripts]
    sent: dict[tuple[int, int], list[float]] = {}
    received: dict[tuple[int, int], int] = {}
    while any(len(d) < len(s) for d, s in zip(done, scripts, strict=True)):
        for me, script in enumerate(scripts):
            while len(done[me]) < len(script):
                what, argument = script[len(done[me])]
                now = done[me][-1] if done[me] else 0.0
                if what == "sleep":
                    done[me].append(now + argument)
                elif what == "send":
                    sent.setdefault((me, int(argument)), []).append(now)
                    done[me].append(now)
                else:
                    channel = (int(argument), me)
                    taken = received.get(channel, 0)
                    if taken == len(sent.get(channel, [])):
                        break
                    received[channel] = taken + 1
                    done[me].append(max(now, sent[channel][taken]))
    return done


def check(seed: int) -> None:
    rng = random.Random(seed)
    scripts = random_scripts(rng, workers=rng.randrange(2, 6), steps=40)
    program = Path(__file__).parent / "messages.py"
    with Inside(real.python(), program, json.dumps(scripts), options=["--skip-idle"]) as inside:
        inside.succeed(timeout=60)
        event = {line["who"]: line["done"] for line in inside.lines(ev="worked")}
    for me, expected in enumerate(simulate(scripts)):
        assert len(event[me]) == len(expected), f"seed {seed}"
        for step, (at, due) in enumerate(zip(event[me], expected, strict=True)):
            # A leap beyond a deadline would show as lateness.
            assert due <= at < due + LATE, f"seed {seed}: step {step} of {me}: {scripts[me][step]}"


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_behave_as_a_simulation_says(seed):
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000, 2_000))
def test_a_thousand_random_programs_behave_as_a_simulation_says(seed):
    check(seed)
