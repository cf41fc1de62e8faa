"""Lines of `shutdown`, which run in the nodes when their network goes down."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from framework import lorentz
from framework.networks import TIMEOUT, Lab


def lab(isolation: str, folder: Path, lines: list[str]) -> Lab:
    return Lab(
        f"""\
isolation: {isolation}
tdf: 2
topology:
  nodes:
    a:
      output: {folder}/out
      env: {{WORD: bye}}
      exec: ['echo hello > /tmp/state']
      shutdown: {lines}
    b: {{}}
"""
    )


def down(network: Lab, *flags: str):
    return lorentz.call("down", network.name, *flags, timeout=TIMEOUT)


@pytest.mark.parametrize("isolation", ["host", "private"])
def test_lines_run_in_the_node_and_those_that_fail_are_told(isolation, tmp_path):
    with lab(isolation, tmp_path, ["cat /tmp/state; echo $WORD", "echo why; exit 3"]) as network:
        done = down(network)
    assert done.returncode == 0
    line = f"{network.file}:10: node a: shutdown: echo why; exit 3: exit status 3: why"
    assert done.stderr == f"lorentz: {line}\n"
    assert (tmp_path / "out").read_text() == "hello\nbye\nwhy\n"


def test_a_line_that_does_not_end_is_killed(tmp_path):
    with lab("host", tmp_path, ["sleep 1000", "echo next"]) as network:
        begun = time.monotonic()
        done = down(network)
        assert time.monotonic() - begun > 9
    assert done.stderr.endswith("shutdown: sleep 1000: exit status 124\n")
    assert (tmp_path / "out").read_text() == "next\n"


def test_nothing_runs_without_the_emulator(tmp_path):
    with lab("host", tmp_path, ["echo bye"]) as network:
        emulator = network.status()["pid"]
        os.kill(emulator, signal.SIGKILL)
        network.wait_until(lambda: not Path(f"/proc/{emulator}").exists(), "the emulator's end")
        done = down(network)
    assert done.returncode == 0 and done.stderr == ""
    assert (tmp_path / "out").read_text() == ""


def test_katharas_scripts_run_at_the_end(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "lab.conf").write_text("a[0]=A\nb[0]=A\n")
    (folder / "a.shutdown").write_text("cat /proc/sys/net/ipv4/ip_forward\n\nfalse\n")
    (folder / "shared.shutdown").write_text("hostname >&2; exit 5\n")
    network = Lab("")
    (folder / "lab.conf").write_text(f"LAB_NAME={network.name}\n" + "a[0]=A\nb[0]=A\n")
    lorentz.ok("up", str(folder), timeout=TIMEOUT)
    try:
        output = Path(network.status()["nodes"][0]["output"])
        kept = tmp_path / "kept"
        # The directory of the network goes with it; a second name keeps the file.
        kept.hardlink_to(output)
    finally:
        done = down(network, "--json")
    failed = json.loads(done.stdout)["failed"]
    assert [
        (one["node"], Path(one["file"]).name, one["line"], one["status"]) for one in failed
    ] == [
        ("a", "a.shutdown", 3, 1),
        ("a", "shared.shutdown", 1, 5),
        ("b", "shared.shutdown", 1, 5),
    ]
    assert kept.read_text().splitlines() == ["1", "lorentz: exec line 3: exit status 1", "a"]
