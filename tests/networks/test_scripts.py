"""The lines of exec and start-up scripts: their shell, what is told of one that fails, and the
flags of `lorentz up` for every file."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.networks import TIMEOUT, Capture, Lab

TWO = "topology:\n  nodes:\n    a: {}\n    b: {}\n"

#: A lab of Kathara's with lines that fail and lines only bash knows.
LAB_CONF = """\
LAB_DESCRIPTION="one"
LAB_VERSION=2
LAB_AUTHOR="nobody"
LAB_EMAIL=none
a[0]="A"
b[0]="A"
a[mem]="64m"
b[mem]="64m"
"""
STARTUP = """\
#!/bin/bash
ip addr add 10.0.0.1/24 dev eth0
echo why >&2; (exit 3)
for x in {1..3}; do echo number $x; done

if no-such-command; then echo never; fi
no-such-command
[[ $x == 3 ]] && echo bash went on to the end
"""


class Kathara(Lab):
    """A lab of Kathara's, in a directory of its name."""

    def __init__(self, startup: str = STARTUP, flags: tuple[str, ...] = ()) -> None:
        super().__init__("")
        self.flags = flags
        self.path = Path(self.folder.name) / self.name
        self.path.mkdir()
        (self.path / "lab.conf").write_text(LAB_CONF)
        (self.path / "a.startup").write_text(startup)
        (self.path / "b.startup").write_text("ip addr add 10.0.0.2/24 dev eth0\n")

    def up(self):
        self.done = lorentz.call("up", str(self.path), *self.flags, timeout=TIMEOUT)
        return self.done


def test_a_lab_goes_on_where_lines_fail_and_tells_which():
    with Kathara() as lab:
        lines = lab.done.stderr.splitlines()
        script = f"{lab.path}/a.startup"
        prefix = f"lorentz: {script}"
        assert f"{prefix}:3: node a: exec: echo why >&2; (exit 3): exit status 3: why" in lines
        seventh = next(line for line in lines if line.startswith(f"{prefix}:7: "))
        assert "exec: no-such-command: exit status 127: " in seventh
        assert "no-such-command: command not found" in seventh
        assert len([line for line in lines if line.startswith(prefix)]) == 2
        assert lines[-1] == (
            f"lorentz: {lab.name}: 2 lines of exec failed, on a; --strict stops at the first"
        )
        output = Path(lab.status()["nodes"][0]["output"]).read_text()
        assert "number 3" in output and "bash went on to the end" in output
        assert len(lab.ping("a", "10.0.0.2", count=1)) == 1


def test_what_is_left_out_is_grouped():
    with Kathara("true\n") as lab:
        conf = f"lorentz: {lab.path}/lab.conf"
        left = [line for line in lab.done.stderr.splitlines() if "left out" in line]
        assert left == [
            f"{conf}:1:1: left out: LAB_DESCRIPTION=one; and 3 more like it, in lines 2, 3, 4",
            f"{conf}:7:1: left out: a[mem]=64m; and 1 more like it, in line 8",
        ]
        assert len(lab.status()["nodes"]) == 2


def test_strict_stops_at_the_first_line_that_fails():
    lab = Kathara(flags=("--strict",))
    done = lab.up()
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        f"{lab.path}/a.startup:3: node a: exec: echo why >&2; (exit 3): exit status 3: why" in last
    )
    assert lab.name not in str(lorentz.json_of("inspect"))
    lab.folder.cleanup()


def test_a_topology_file_is_strict_unless_told(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: strict-lab\ntopology:\n  nodes:\n    a:\n      exec:\n"
        "        - 'true'\n        - echo the reason; exit 9\n        - echo after\n"
    )
    done = lorentz.call("up", str(file), timeout=TIMEOUT)
    assert done.returncode == 1
    assert done.stderr == (
        f"lorentz: {file}:7: node a: exec: echo the reason; exit 9: exit status 9: the reason\n"
    )
    try:
        told = lorentz.json_of("up", str(file), "--keep-going")
        assert [(one["node"], one["line"], one["status"]) for one in told["failed"]] == [
            ("a", 7, 9)
        ]
        output = lorentz.json_of("inspect", "strict-lab")["nodes"][0]["output"]
        assert "after" in Path(output).read_text()
    finally:
        lorentz.call("down", "strict-lab")
    both = lorentz.call("up", str(file), "--strict", "--keep-going")
    assert both.returncode == 2 and both.stderr.count("\n") == 1


def test_a_shell_of_a_node_runs_its_lines(tmp_path):
    with Lab(
        "topology:\n  nodes:\n    a: {shell: bash, exec: ['echo {x..z}']}\n"
        "    b: {shell: no-such-shell, exec: ['echo {x..z}']}\n"
    ) as lab:
        outputs = [Path(node["output"]).read_text() for node in lab.status()["nodes"]]
        assert outputs == ["x y z\n", "{x..z}\n"]
    file = tmp_path / "lab.yaml"
    file.write_text("name: l\ntopology: {nodes: {a: {shell: '-x'}}}\n")
    done = lorentz.call("up", "--check", str(file))
    assert done.returncode == 2 and "shell: " in done.stderr and "such as bash" in done.stderr


def test_tdfs_are_given_for_every_file(tmp_path):
    conf = tmp_path / "lab" / "lab.conf"
    conf.parent.mkdir()
    conf.write_text('LAB_NAME="timed"\na[0]="A"\nb[0]="A"\n')
    file = tmp_path / "lab.yaml"
    file.write_text(
        f"name: timed\n{TWO}  links: [{{endpoints: ['a:eth0', 'b:eth0'], delay: 1ms}}]\n"
    )
    told = lorentz.json_of("import", str(file), "--tdf", "5", "--rounds", "--node-tdf", "a=2")
    topology = told["topology"]
    assert (topology["tdf"], topology["rounds"]) == ("5", True)
    assert topology["topology"]["nodes"]["a"]["tdf"] == "2"
    assert "tdf" not in topology["topology"]["nodes"]["b"]
    lorentz.ok("up", str(conf), "--tdf", "5")
    try:
        assert lorentz.json_of("time", "timed.a")["tdf"] == "5"
    finally:
        lorentz.ok("down", "timed")


def tdfs_of(network: str) -> dict[str, float]:
    status = lorentz.json_of("experiment", "status", network)
    return {one["name"]: one["tdf"] for one in status["containers"]}


def test_a_network_comes_up_with_a_tdf_for_each_node(tmp_path):
    file = tmp_path / "lab.yaml"
    link = "{endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24], delay: 5ms}"
    file.write_text(f"name: mixed\n{TWO}  links: [{link}]\n")
    lorentz.ok("up", str(file), "--tdf", "3", "--rounds", "--node-tdf", "a=1")
    try:
        assert tdfs_of("mixed") == {"mixed.a": 1, "mixed.b": 3}
        text = lorentz.ok("exec", "mixed.a", "ping", "-c", "2", "-i", "0.1", "10.0.0.2")
        assert "2 received" in text
        lorentz.ok("experiment", "dilate", "mixed", "mixed.a", "--tdf", "2")
        assert tdfs_of("mixed") == {"mixed.a": 2, "mixed.b": 3}
    finally:
        lorentz.ok("down", "mixed")


def test_a_scenario_of_core_comes_up_with_a_tdf_for_each_node():
    scenario = Path(__file__).parent / "scenarios" / "core4" / "dilations.imn"
    lorentz.ok("up", str(scenario), "--rounds", "--node-tdf", "n1=2")
    try:
        assert tdfs_of("dilations") == {"dilations.n1": 2, "dilations.n2": 1}
        text = lorentz.ok("exec", "dilations.n1", "ping", "-c", "2", "-i", "0.1", "10.0.0.21")
        assert "2 received" in text
    finally:
        lorentz.ok("down", "dilations")


def test_rounds_give_delays_to_links_of_every_file(tmp_path):
    """Kathara's links have no delay."""
    with Kathara(flags=("--rounds",)) as lab:
        note = "--rounds: links without a delay have 1ms, one way: 1"
        assert f"lorentz: {lab.name}: {note}" in lab.done.stderr.splitlines()
        assert min(lab.ping("a", "10.0.0.2", count=3)) >= 2
        # ping counts its own work too. On the wire the delay is exact.
        ends = [Capture(lab, "a:eth0"), Capture(lab, "b:eth0")]
        lab.send("a", "10.0.0.2", 1, 100)
        (sent,), (arrived,) = (end.probes(1) for end in ends)
        assert arrived.at - sent.at == 1_000_000


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tdf", "fast"], "--tdf"),
        (["--node-tdf", "a"], "NODE=N"),
        (["--node-tdf", "a=2"], "--node-tdf a=2: expected --rounds"),
        (["--rounds", "--node-tdf", "c=2"], 'no node "c"; expected one of a, b'),
    ],
)
def test_wrong_tdfs_are_one_line(flags, words, tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: l\n{TWO}")
    for verb in ("up", "import"):
        done = lorentz.call(verb, str(file), *flags)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr


def test_a_terminal_shows_the_progress_and_a_pipe_does_not():
    text = "topology:\n  nodes:\n    a: {exec: ['sleep 0.3', 'true']}\n    b: {}\n"
    text += "  links: [{endpoints: ['a:1', 'b:1']}, {endpoints: ['a:2', 'b:2']}]\n"
    with Lab(text) as lab:
        lorentz.ok("down", lab.name)
        own, its = pty.openpty()
        program = subprocess.Popen(
            [*lorentz.session.command(), "up", str(lab.file)],
            stdout=subprocess.PIPE,
            stderr=its,
            stdin=subprocess.DEVNULL,
            env={**lorentz.session.environment(), "TERM": "xterm"},
        )
        os.close(its)
        shown = b""
        while program.poll() is None or select.select([own], [], [], 0)[0]:
            if select.select([own], [], [], 0.1)[0]:
                try:
                    shown += os.read(own, 65536)
                except OSError:
                    break
        os.close(own)
        assert program.wait(timeout=TIMEOUT) == 0, shown
        program.stdout.close()
        text = shown.decode(errors="replace")
        assert re.search(r"nodes [012]/2, links [02]/2", text), text
        assert re.search(r"exec [012]/2", text), text
        lorentz.ok("down", lab.name)
        done = lab.up()
        assert done.returncode == 0 and "nodes" not in done.stderr


RING = """\
topology:
  nodes: {a: {}, b: {}, s1: {kind: switch, stp: true}, s2: {kind: switch, stp: true},
          s3: {kind: switch, stp: true}}
  links:
    - {endpoints: ['a:eth0', 's1:1'], ipv4: [10.0.0.1/24, null]}
    - {endpoints: ['b:eth0', 's2:1'], ipv4: [10.0.0.2/24, null]}
    - {endpoints: ['s1:2', 's2:2'], delay: 1ms}
    - {endpoints: ['s2:3', 's3:2'], delay: 1ms}
    - {endpoints: ['s3:3', 's1:3'], delay: 1ms}
"""


def check_three_pings(lab: Lab) -> None:
    """Checks that b answers each of three requests of a. Their addresses must be known: at rate 20
    the kernel asks for them for 0.15 s only."""
    # ping waits for its last reply no longer than for the others: one request each.
    ping = (needs.tool("ping"), "-c", 1, "-W", 100, "10.0.0.2")
    for _ in range(3):
        lab.run("a", *ping)


@pytest.mark.parametrize("silence", [55, 95])
@pytest.mark.parametrize("rounds", ["", "rounds: true\n"])
def test_a_ring_of_switches_heals_in_virtual_time(rounds, silence):
    """Also for those who say nothing until the switches remember addresses for five minutes again:
    35 s after the other way is open."""
    text = rounds + RING
    if rounds:
        text = text.replace("null]}", "null], delay: 1ms}")
    with Lab("rate: 20\n" + text) as lab:
        lab.learn()
        check_three_pings(lab)
        lab.set("s1:2", "--down")
        # 30 virtual seconds until the other way is open, 20 at most until the loss is known.
        lab.run("a", "sleep", silence)
        check_three_pings(lab)


def test_bpdus_are_frames_on_the_links(tmp_path):
    with Lab("rate: 20\n" + RING) as lab:
        before = lab.direction("s1:1")["counts"]["sent"]
        lab.run("a", "sleep", 10)
        assert lab.direction("s1:1")["counts"]["sent"] - before >= 4
