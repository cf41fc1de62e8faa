"""Commands for experiments that are killed at any of their steps: the experiment can be ended, and
its container goes on."""

from __future__ import annotations

import os

import pytest
from framework import lorentz, processes, steps
from framework.running import Inside

pytestmark = pytest.mark.patient

NAME = f"killed-experiment-{os.getpid()}"
MEMBER = f"killed-member-{os.getpid()}"

#: Each with the commands before it.
COMMANDS = {
    "create": [["create", NAME]],
    "add": [["create", NAME], ["add", NAME, MEMBER, "--tdf", "2"]],
    "synchronize": [["create", NAME], ["add", NAME, MEMBER], ["synchronize", NAME]],
    "start": [["create", NAME], ["add", NAME, MEMBER], ["synchronize", NAME], ["start", NAME]],
    "remove": [["create", NAME], ["add", NAME, MEMBER], ["remove", NAME, MEMBER]],
    "rm": [["create", NAME], ["add", NAME, MEMBER], ["rm", NAME]],
}


#: Of the scheduler, which `create` starts.
OF_SCHEDULER = ["mkdir", "bind"]
CASES = [("create", call) for call in ["openat", *OF_SCHEDULER]]
CASES += [(command, call) for command in COMMANDS for call in ["openat", "sendto"]][2:]


@pytest.mark.parametrize("command, call", CASES)
def test_a_command_of_an_experiment_that_is_killed(command, call, tmp_path):
    *before, last = (["experiment", *words] for words in COMMANDS[command])
    tag = processes.new_tag()

    def attempt(count: int) -> int:
        for words in before:
            lorentz.ok(*words)
        words = [*lorentz.session.command(), *last]
        return steps.status_at(call, count, words, tmp_path, tag, children=call in OF_SCHEDULER)

    with Inside("sleep", "100000", name=MEMBER) as inside:
        inside.wait_until_shown()
        for status in steps.until_unharmed(attempt):
            assert status in (0, steps.KILLED), (tmp_path / "log").read_text()
            done = lorentz.call("experiment", "rm", NAME)
            assert done.returncode == 0 or "no such experiment" in done.stderr, done.stderr
            processes.kill_tagged(tag)
            state = lorentz.session.state_dir()
            assert not [path for path in state.glob(".experiments/*") if NAME in path.name]
            assert lorentz.json_of("time", MEMBER)["state"] == "running"
            assert lorentz.ok("exec", MEMBER, "echo", "1") == "1\n"
