"""Completion in shells, with the names that there are."""

from __future__ import annotations

import re
import shlex
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


#: The same in zsh, whose own function for the display of choices prints them here.
ZSH = """
compdef() { : }
_describe() { shift 2; print -rl -- ${(P)1} }
source <(lorentz generate complete-zsh)
words=("$@"); CURRENT=$#
_clap_dynamic_completer_lorentz
"""
#: The same in fish.
FISH = "source (lorentz generate complete-fish | psub); complete -C $argv[1]"


def completed(*words: str, shell: str = "bash") -> set[str]:
    """The words that a shell offers for the last of `words`."""
    binary = lorentz.session.binary
    environment = lorentz.session.environment()
    environment["PATH"] = f"{binary.parent}:{environment['PATH']}"
    line = ["lorentz", *words]
    command = {
        "bash": ["bash", "-c", BASH, "bash", *line],
        "zsh": ["zsh", "-f", "-c", ZSH, "zsh", *line],
        "fish": ["fish", "--no-config", "-c", FISH, shlex.join(line[:-1]) + " " + line[-1]],
    }[shell]
    text = subprocess.check_output(command, env=environment, text=True, timeout=30)
    return {offered(line, shell) for line in text.splitlines() if line.strip()}


def offered(line: str, shell: str) -> str:
    """The word of a line, without its description."""
    if shell == "fish":
        return line.split("\t")[0]
    if shell == "zsh":
        return re.split(r"(?<!\\):", line)[0].replace("\\:", ":")
    return line.strip()


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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_offer_the_same(shell: str):
    needs.tool(shell)
    assert completed("dil", shell=shell) == {"dilate"}
    assert {"--at", "--rate", "--skip-idle"} <= completed("run", "--", shell=shell)
    with Inside("cat", rate="1", stdin=True) as container:
        container.wait_until_shown()
        assert container.name in completed("time", "", shell=shell)
        assert completed("time", container.name[:-1], shell=shell) >= {container.name}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_offer_interfaces_whose_names_have_a_colon(shell: str):
    needs.root()
    needs.tool(shell)
    with Lab(pair()) as lab:
        nodes = {node["name"] for node in lab.status()["nodes"]}
        assert {f"{node}:eth0" for node in nodes} <= completed("capture", "", shell=shell)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_function(shell: str):
    text = lorentz.ok("generate", f"complete-{shell}")
    assert "lorentz" in text and "LORENTZ_COMPLETE" in text
