"""Wrong files and flags: one line with place, value and what is accepted; nothing is made."""

from __future__ import annotations

import pytest
from framework import lorentz
from framework.networks import Lab, pair

NODES = "topology:\n  nodes: {a: {}, b: {}}\n  links:\n"

#: The file without its first line, the line and column told, and words that must be.
FILES = {
    "unknown key": ("topology: {nodes: {a: {imge: x}}}\n", (2, 24), "imge"),
    "not YAML": ("topology: [\n", (2, 11), "expected"),
    "twice a key": ("topology: {nodes: {a: {}, a: {}}}\n", (2, 27), "duplicate"),
    "no nodes": ("seed: 1\n", (2, 1), "topology"),
    "rate 0": ("rate: 0\ntopology: {nodes: {a: {}}}\n", (2, 7), "above 0"),
    "link rate 0": (f"{NODES}    - {{endpoints: ['a:e', 'b:e'], rate: 0}}\n", (5, 41), "8bit"),
    "bare loss": (f"{NODES}    - {{endpoints: ['a:e', 'b:e'], loss: 3}}\n", (5, 41), "percent"),
    "endpoint twice": (
        f"{NODES}    - endpoints: ['a:e', 'b:e']\n    - endpoints: ['a:f', 'b:e']\n",
        (6, 26),
        "line 5",
    ),
    "unknown node": (f"{NODES}    - endpoints: ['a:e', 'c:e']\n", (5, 26), "one of a, b"),
    "no delay in rounds": (
        f"rounds: true\n{NODES}    - endpoints: ['a:e', 'b:e']\n",
        (6, 7),
        "in rounds each frame is on its way for 1us at least",
    ),
    "overtaking in rounds": (
        f"rounds: true\n{NODES}    - {{endpoints: ['a:e', 'b:e'], delay: 1s, reorder: 1%}}\n",
        (6, 7),
        "no reorder",
    ),
    "a schedule without delay": (
        f"rounds: true\n{NODES}    - {{endpoints: ['a:e', 'b:e'], delay: 1s}}\n"
        "schedule:\n  - {at: 1s, link: 'a:e', set: {delay: 0}}\n",
        (8, 5),
        "schedule: in rounds",
    ),
    "rounds": ("rounds: 3ms\ntopology: {nodes: {a: {}}}\n", (2, 9), "boolean"),
    "a TDF of one node": ("topology: {nodes: {a: {tdf: 3}}}\n", (2, 29), "rounds: true"),
    "TDF 0 of a node": (
        "rounds: true\ntopology: {nodes: {a: {tdf: 0}}}\n",
        (3, 29),
        "above 0",
    ),
    "TDF of a switch": (
        "rounds: true\ntopology: {nodes: {a: {}, s: {kind: switch, tdf: 2}}}\n",
        (3, 30),
        "runs nothing",
    ),
    "one end": (f"{NODES}    - endpoints: ['a:e']\n", (5, 7), "two"),
}


@pytest.mark.parametrize("case", FILES)
def test_wrong_files_are_pointed_at(case, tmp_path):
    text, (line, column), words = FILES[case]
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: wrong-{case.replace(' ', '-')}\n{text}")
    done = lorentz.call("up", str(file))
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1
    assert f"{file}:{line}:{column}: " in done.stderr and words in done.stderr, done.stderr
    assert not [e for e in lorentz.ps() + lorentz.json_of("inspect") if "wrong" in e["name"]]


def refused(*words: str) -> str:
    done = lorentz.call(*words)
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_no_such_file_or_network():
    assert "no-such.yaml" in refused("up", "/no-such.yaml")
    for verb in (["down"], ["inspect"], ["graph"], ["link", "show", "--network"]):
        assert "no such network" in refused(*verb, "nowhere")


def test_a_command_that_is_not_there(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("name: wrong\ntopology: {nodes: {a: {command: [no-such-program]}}}\n")
    assert "node a: command: no-such-program: not found" in refused("up", str(file))
    assert lorentz.json_of("inspect") == [] or "wrong" not in str(lorentz.json_of("inspect"))


def test_only_root_makes_networks(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("name: wrong\ntopology: {nodes: {a: {}}}\n")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    done = lorentz.call("up", str(file), unprivileged=True)
    assert done.returncode == 2 and "root" in done.stderr, done.stderr
    # Checking a file needs nothing.
    assert lorentz.call("up", "--check", str(file), unprivileged=True).returncode == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["a:eth0", "--delay", "-1ms"], "duration from 0"),
        (["a:eth0", "--rate", "0"], "8bit to 1tbit"),
        (["a:eth0", "--loss", "0.5"], "percentage"),
        (["a:eth0", "--loss", "101%"], "percentage"),
        (["a:eth0"], "nothing to change"),
        (["a", "--delay", "1ms"], "NODE:INTERFACE"),
        (["a:eth7", "--delay", "1ms"], "no link ends there"),
        (["a:eth0", "--reorder", "1%"], "delay above 0"),
        (["a:eth0", "--up", "--down"], "exclude"),
        (["a:eth0", "--queue-packets", "0"], "--queue-packets"),
    ],
)
def test_wrong_settings_change_nothing(flags, words, lab):
    before = lab.link()["directions"]
    assert words in refused("link", "set", *flags, "--network", lab.name)
    after = lab.link()["directions"]
    assert [way["impairments"] for way in before] == [way["impairments"] for way in after]


def test_a_capture_of_nothing(lab):
    assert "no such interface" in refused("capture", "a:eth7", "--network", lab.name)


def test_one_of_two_networks_has_to_be_named(lab):
    with Lab(pair()):
        assert "expected one of" in refused("link", "show")


@pytest.fixture(scope="module")
def lab():
    with Lab(pair("rate: 10mbit")) as one:
        yield one
