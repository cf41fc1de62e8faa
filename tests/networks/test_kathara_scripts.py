"""The start-up scripts of Kathara's machines, and the directory that they share."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import lorentz
from framework.networks import TIMEOUT, Lab


class Machines(Lab):
    """A lab of Kathara's in a directory of its own."""

    def __init__(self, folder: Path, files: dict[str, str], *flags: str) -> None:
        super().__init__("")
        self.lab, self.flags = folder, flags
        files = {**files, "lab.conf": f"LAB_NAME={self.name}\n{files['lab.conf']}"}
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def up(self):
        self.done = lorentz.call("up", str(self.lab), *self.flags, timeout=TIMEOUT)
        assert self.done.returncode == 0, self.done.stderr
        return self.done

    def output(self, machine: str) -> str:
        nodes = {one["name"]: one for one in self.status()["nodes"]}
        return Path(nodes[machine]["output"]).read_text()


def test_scripts_may_wait_for_each_other(tmp_path):
    wait = "ip address add 10.0.0.{}/24 dev eth0\nuntil ping -c 1 -W 1 10.0.0.{}; do :; done\n"
    wait += "echo met\n"
    files = {
        "lab.conf": "a[0]=A\nb[0]=A\nb[exec]='echo behind'\n",
        "a.startup": wait.format(1, 2),
        "b.startup": wait.format(2, 1),
    }
    with Machines(tmp_path, files) as lab:
        assert lab.done.stderr == ""
        assert lab.output("a").splitlines()[-1] == "met"
        # The lines of one machine keep their order.
        assert lab.output("b").splitlines()[-2:] == ["met", "behind"]


@pytest.mark.patient
def test_a_script_that_does_not_end_goes_on(tmp_path):
    files = {
        "lab.conf": "a[0]=A\na[exec]='echo behind'\nb[0]=A\n",
        "a.startup": "false\nsleep 1000000\n",
        "b.startup": "echo done\n",
    }
    with Machines(tmp_path, files) as lab:
        told = lab.done.stderr.splitlines()
        assert told[0].endswith("a.startup:1: node a: exec: false: exit status 1")
        assert told[1].endswith(
            "a.startup:1: node a: exec: has not ended in 30 s, and goes on; "
            "the lines behind it do not run"
        )
        assert len(told) == 3 and "1 line of exec failed, on a" in told[2]
        assert "sleep 1000000" in lab.run("a", "ps", "-e", "-o", "args=")
        assert "behind" not in lab.output("a")


def test_machines_see_the_common_directory(tmp_path):
    files = {
        "lab.conf": "a[0]=A\nb[0]=A\n",
        "shared/note": "for all\n",
        "shared.startup": "cat /shared/note\n",
        "a.startup": "echo of a > /shared/note\n",
    }
    with Machines(tmp_path, files) as lab:
        assert lab.done.stderr == ""
        assert lab.output("a") == lab.output("b") == "for all\n"
        assert lab.run("a", "cat", "/shared/note") == "of a\n"
        # A machine's own changes go with it.
        assert lab.run("b", "cat", "/shared/note") == "for all\n"
    assert (tmp_path / "shared/note").read_text() == "for all\n"


def test_interfaces_of_the_host_are_left_out(tmp_path):
    (tmp_path / "lab.conf").write_text("pc1[0]=A\n")
    (tmp_path / "lab.ext").write_text("A eth0.10\n")
    left_out = lorentz.json_of("import", str(tmp_path))["left_out"]
    assert [one["what"] for one in left_out] == [
        "lab.ext: interfaces of the host in collision domains"
    ]
