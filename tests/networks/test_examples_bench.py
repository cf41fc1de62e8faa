"""`benches/examples.py`: the page about the scenarios of a directory, and what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.build import REPO
from framework.networks import TIMEOUT

BENCH = REPO / "benches" / "examples.py"
SCENARIOS = Path(__file__).parent / "scenarios"
WLAN = SCENARIOS / "wlan"


@pytest.fixture
def folder(tmp_path) -> Path:
    needs.root()
    needs.feature("taps")
    made = tmp_path / "scenarios"
    lab = made / "lab"
    lab.mkdir(parents=True)
    (lab / "lab.conf").write_text('LAB_AUTHOR=nobody\npc1[0]="A"\npc2[0]="A"\n')
    (lab / "pc1.startup").write_text("ip address add 10.0.0.1/24 dev eth0\n")
    (lab / "pc2.startup").write_text("ip address add 10.0.0.2/24 dev eth0\nfalse\n")
    return made


def start(folder: Path, *flags: object) -> subprocess.Popen:
    work = folder.parent / "work"
    work.mkdir()
    environment = {
        **os.environ,
        "LORENTZ": str(lorentz.session.binary),
        "LORENTZ_COMMAND": str(lorentz.session.binary),
        "TMPDIR": str(work),
    }
    return subprocess.Popen(
        [sys.executable, str(BENCH), str(folder), *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def users_of(folder: Path) -> list[str]:
    """Processes whose environment or command line names the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text and int(process.name) != os.getpid():
            found.append(process.name)
    return found


def test_the_page_counts(folder):
    (folder / "broken.clab.yml").write_text("name: broken\ntopology: [\n")
    (folder / "pair.py").write_text(
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "net = Mininet(SingleSwitchTopo(2))\nnet.start()\nnet.pingAll()\n"
    )
    (folder / "note.xml").write_text("<note/>\n")
    (folder / "sleeping.c").write_text(
        '#include "TimeKeeper_functions.h"\n'
        "int main(void) { int unused; freeze(1); return startExp(); }\n"
    )
    (folder / "unknown.c").write_text(
        "#include <utility_functions.h>\nint main(void) { return no_such_function_of_ours; }\n"
    )
    (folder / "hello.c").write_text("int main(void) { return 0; }\n")
    # A header beside a program is not the one to compile with.
    (folder / "TimeKeeper_functions.h").write_text("#error theirs\n")
    page = folder.parent / "page.md"
    bench = start(folder, "--page", page)
    out, err = bench.communicate(timeout=4 * TIMEOUT)
    assert bench.returncode == 0 and not out, err
    text = page.read_text()
    for row in (
        "| Kathara | 1 | 1 | 1 | 0 | 0 | 1 | 0 | 1 | 1 of 1 |",
        "| containerlab | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 of 0 |",
        "| Mininet | 1 | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 1 of 1 |",
        "| TimeKeeper | 2 | 1 | 1 | 1 |",
        "| `lab` | 2 nodes, 1 links | yes | 1 | - | 1 | 1 of 1 |",
        "| `broken.clab.yml` | no | no | - | - | - | - |",
        "| `sleeping.c` | yes | yes | 1 |",
        "| `unknown.c` | no | no | - |",
        "- `lab`: `lab.conf:1:1: left out: LAB_AUTHOR=nobody`",
    ):
        assert row in text, text
    assert "pc2.startup:2: node pc2: exec: false: exit status 1" in text
    assert "error: 'no_such_function_of_ours' undeclared" in text.replace("‘", "'").replace(
        "’", "'"
    )
    assert "note.xml" not in text and "hello.c" not in text
    assert not list((folder.parent / "work").iterdir())


def test_services_without_their_program_are_no_success(tmp_path):
    """The daemons of routers are not on this machine: each router comes up without two services."""
    needs.root()
    needs.feature("taps")
    if shutil.which("zebra") or Path("/usr/lib/frr/zebra").exists():
        pytest.skip("FRR is on this machine")
    made = tmp_path / "scenarios"
    made.mkdir()
    shutil.copy(SCENARIOS / "rip.xml", made)
    bench = start(made, "--", "--layer-size", "16M")
    out, err = bench.communicate(timeout=4 * TIMEOUT)
    assert bench.returncode == 0, err
    for words in (
        "| CORE | 1 | 1 | 1 | 0 | 0 | 0 | 6 | 0 | 4 of 4 |",
        "| `rip.xml` | 3 nodes, 2 links | yes | - | 6 | - | 4 of 4 |",
        "- `rip.xml`: `left out on r1, r2, r3: FRRzebra, FRRRIP: not installed: vtysh zebra ripd`",
        "had the flags `--layer-size 16M`",
    ):
        assert words in out, out


def test_neighbours_on_a_wlan_are_those_in_range(tmp_path):
    """The boat hears both others. In the second scenario the swimmer leaves at once."""
    needs.root()
    needs.feature("taps")
    for name in ("stays", "leaves"):
        made = tmp_path / "scenarios" / name
        made.mkdir(parents=True)
        (made / "beach.scen").write_text((WLAN / "beach.scen").read_text())
        (made / "beach.xml").write_text((WLAN / "beach.xml").read_text())
    (made / "beach.scen").write_text("$node_(3) set X_ 1000.0\n")
    text = (made / "beach.xml").read_text()
    begins = '<configuration name="autostart" value="{}"/>'
    assert begins.format(2) in text
    (made / "beach.xml").write_text(text.replace(begins.format(2), begins.format(0)))
    bench = start(made.parent)
    out, err = bench.communicate(timeout=4 * TIMEOUT)
    assert bench.returncode == 0, err
    assert "| `stays/beach.xml` | 4 nodes, 3 links | yes | - | - | - | 2 of 2 |" in out, out
    assert "| `leaves/beach.xml` | 4 nodes, 3 links | yes | - | - | - | 1 of 1 |" in out, out


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_after_an_interruption(folder, how):
    with (folder / "lab" / "pc1.startup").open("a") as script:
        script.write("sleep 1000\n")
    bench = start(folder)
    work = folder.parent / "work"
    deadline = time.monotonic() + TIMEOUT
    # The network is there when its line sleeps.
    while not any("sleep" in line for line in lines_of(users_of(work))):
        assert time.monotonic() < deadline and bench.poll() is None
        time.sleep(0.05)
    bench.send_signal(how)
    bench.communicate(timeout=TIMEOUT)
    assert bench.returncode != 0
    assert not list(work.iterdir())
    # The last of the network's monitors may still run.
    deadline = time.monotonic() + TIMEOUT
    while users_of(work):
        assert time.monotonic() < deadline, lines_of(users_of(work))
        time.sleep(0.05)


def lines_of(processes: list[str]) -> list[str]:
    found = []
    for one in processes:
        try:
            found.append(Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def test_a_directory_without_scenarios_is_one_line(tmp_path):
    needs.root()
    for folder, words in ((tmp_path, "there is none"), (tmp_path / "no", "expected a directory")):
        done = subprocess.run(
            [sys.executable, str(BENCH), str(folder)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and words in done.stderr.splitlines()[-1]
