"""Completion in shells, with the names that there are."""

from __future__ import annotations

import subprocess

import pytest
from framework import lorentz, needs
from framework.experiments import Experiment
from framework.networks import Lab, pair
from framework.running import Inside

#: Completes the words in $@, the last of which is being typed, as bash does at a press of Tab.
BASH = """
source <(lorentz generate complete-bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
_clap_complete_lorentz lorentz "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> set[str]:
    """The words that bash offers for the last of `words`."""
    binary = lorentz.session.binary
    environment = lorentz.session.environment()
    environment["PATH"] = f"{binary.parent}:{environment['PATH']}"
    command = ["bash", "-c", BASH, "bash", "lorentz", *words]
    text = subprocess.check_output(command, env=environment, text=True, timeout=30)
    return {word.strip() for word in text.splitlines() if word.strip()}


def test_verbs_and_flags():
    assert {"dilate", "freeze", "top", "why"} <= completed("")
    assert completed("dil") == {"dilate"}
    assert {"--at", "--rate", "--skip-idle"} <= completed("run", "--")
    assert "generate" not in completed("")


@pytest.mark.parametrize("verb", ["time", "freeze", "exec", "why", "rm", "adopt"])
def test_names_of_containers(verb: str):
    with Inside("cat", rate="1", stdin=True) as container:
        container.wait_until_shown()
        assert container.name in completed(verb, "")
        assert completed(verb, container.name[:-1]) >= {container.name}
        assert container.name in completed("run", "--clock", "")


def test_names_of_networks_nodes_and_interfaces():
    needs.root()
    with Lab(pair()) as lab:
        assert lab.name in completed("down", "")
        nodes = {node["name"] for node in lab.status()["nodes"]}
        assert nodes <= completed("node", "rm", "")
        assert {f"{node}:eth0" for node in nodes} <= completed("capture", "")


def test_names_of_experiments():
    needs.root()
    with Experiment() as experiment:
        assert experiment.name in completed("experiment", "status", "")
        assert experiment.name in completed("run", "--experiment", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_function(shell: str):
    text = lorentz.ok("generate", f"complete-{shell}")
    assert "lorentz" in text and "LORENTZ_COMPLETE" in text
