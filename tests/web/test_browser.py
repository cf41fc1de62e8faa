"""The page of `lorentz web` in a browser, as people use it: live view, editor, capture, looks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework import lorentz, needs, networks
from framework.networks import STAR, Lab, pair
from framework.running import Inside
from framework.web import Server

pytestmark = [pytest.mark.patient, pytest.mark.timeout(600)]

#: Time limit of one visit of a browser, s.
TIMEOUT = 500
HERE = Path(__file__).parent / "page"
WEB = Path(__file__).parents[2] / "web"


def tools() -> str:
    """Skips unless a browser can be driven here. Returns the path of node."""
    needs.tool("chromium")
    node = needs.tool("node")
    if not (WEB / "node_modules/playwright-core").exists():
        needs.missing("web/node_modules is not there: 'npm ci' in web/ makes it")
    if not (WEB / "dist/index.html").exists():
        needs.missing("web/dist is not there: 'npm run build' in web/ makes it")
    return node


def visit(
    script: str, *words: object, once: Callable[[], None] = lambda: None, **env: str
) -> dict[str, object]:
    """Runs a script of `page/`, and `once` when it says that it is ready. Returns its findings."""
    started = subprocess.Popen(
        [tools(), str(HERE / script), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CHROMIUM": needs.tool("chromium"), **env},
    )
    timer = threading.Timer(TIMEOUT, started.kill)
    timer.start()
    try:
        errors = []
        for line in started.stderr:
            if line == "ready\n":
                once()
            errors.append(line)
        output = started.stdout.read()
        assert started.wait() == 0, "".join(errors)
    finally:
        timer.cancel()
        started.kill()
        started.wait()
        started.stdout.close()
        started.stderr.close()
    return json.loads(output)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    needs.root()
    needs.feature("taps")
    tools()
    with Server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    needs.root()
    with Lab("tdf: 10\n" + pair("rate: 10mbit", "delay: 5ms")) as lab:
        yield lab


def test_a_clock_ticks_freezes_and_leaps_and_a_link_slows_ping(server: Server, lab: Lab):
    seen = visit("live.mjs", server.line, lab.name, "a", "10.0.0.2")
    # The token has left the address, and the address names the view.
    assert seen["address"] == f"{server.origin}/#/network/{lab.name}"
    # A second of the clock on the screen takes ten of the browser's.
    assert seen["rate"] == pytest.approx(0.1, rel=0.1)
    assert seen["frozen"] == 0
    assert seen["command"] == f"lorentz freeze {lab.name}"
    assert 3600 <= seen["leapt"] < 3660
    # Virtual milliseconds: 5 each way, and then 80.
    assert 10 <= seen["ping"] < 160 <= seen["slower"]
    assert seen["complaints"] == []


def test_a_network_is_drawn_from_nothing(server: Server, folder: Path):
    name = f"lt{os.getpid()}-drawn"
    try:
        seen = visit("draw.mjs", server.line, name)
    finally:
        lorentz.call("down", name)
    assert seen["address"].endswith(f"#/network/{name}")
    # Line and column of Lorentz's own check.
    assert re.search(r"\d+:\d+ .*fast", seen["error"])
    assert (folder / f"{name}.yaml").read_text() == seen["yaml"]
    checked = lorentz.call("up", "--check", str(folder / f"{name}.yaml"))
    assert checked.returncode == 0, checked.stderr
    assert seen["yaml"].startswith(f"name: {name}\n") and "tdf: 10\n" in seen["yaml"]
    assert re.search(r"endpoints: \['?server:eth0'?, '?client:eth0'?\]", seen["yaml"])
    assert "delay: 5ms" in seen["yaml"] and "fast" not in seen["yaml"]
    assert seen["complaints"] == []


def test_a_capture_is_shown_and_downloaded(server: Server, lab: Lab, tmp_path: Path):
    file = tmp_path / "a.pcapng"
    seen = visit(
        *("capture.mjs", server.line, lab.name, "a:eth0", file),
        once=lambda: lab.run("a", "ping", "-c", 3, "10.0.0.2"),
    )
    frames = networks.parse(file.read_bytes())
    replies = [one for one in frames if one.data[23:24] == b"\x01" and one.data[34:35] == b"\0"]
    assert seen["rows"] >= 1 and len(replies) >= 1
    # The table has the instant of the file, to the nanosecond.
    instant = seen["row"][0]
    assert instant.rpartition(".")[2] == f"{replies[0].at % 10**9:09}"
    assert seen["row"][2:5] == ["10.0.0.2", "10.0.0.1", "ICMP"]
    assert seen["name"] == f"{lab.name}.a.eth0.pcapng"
    assert seen["complaints"] == []
    # Wireshark reads the same frames at the same instants.
    fields = ("-T", "fields", "-e", "frame.time_epoch", "-e", "icmp.type")
    command = [needs.tool("tshark"), "-r", str(file), *fields]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [line.split("\t") for line in read.splitlines()]
    assert [seconds.replace(".", "") for seconds, _ in rows] == [f"{one.at}" for one in frames]
    assert [kind for _, kind in rows].count("0") == len(replies)


def test_two_tabs_show_what_each_other_does(server: Server, lab: Lab):
    seen = visit("tabs.mjs", server.line, lab.name)
    assert all(re.match(r"\d+:\d\d:\d\d", clock) for clock in seen["clocks"])
    assert seen["complaints"] == []


def test_nodes_and_links_come_and_go_in_the_picture(server: Server):
    with Lab(STAR) as star:
        seen = visit("edit.mjs", server.line, star.name)
        status = star.status()
    assert seen["address"] == "10.0.0.3/24"
    assert seen["refused"].startswith("delay: ")
    assert seen["command"] == (
        f"lorentz node add late --network {star.name} --link eth0=s:3,10.0.0.3/24 --delay 5ms "
        "-- sh -c 'echo \"it runs\"; sleep 1000'"
    )
    assert "is there already" in seen["twice"]
    assert seen["kept"]
    assert seen["findings"] == []
    assert {one["name"] for one in status["nodes"]} == {"a", "b"} and len(status["links"]) == 2
    # A browser tells of refused actions, and of a look at the output of a node that has just gone.
    expected = re.compile(r"status of 400 .*/api/v1/do$|status of 404 .*/nodes/late/output\?from=")
    assert [one for one in seen["complaints"] if not expected.search(one)] == []


def test_changes_to_come_are_drawn_and_dragged(server: Server):
    with Lab(pair("delay: 1ms")) as lab:
        seen = visit("schedule.mjs", server.line, lab.name)
        assert lorentz.ok("schedule", "show", "--network", lab.name) == ""
    assert seen["stale"] == ["true", True]
    # Keys that came before the server had moved what was dragged count from where it was let go.
    assert seen["moves"] == ["1280s", "1282s"]
    change = "{at: 33m20s, link: a:eth0, state: down}"
    assert seen["command"] == f"lorentz schedule add '{change}' --network {lab.name}"
    assert "at 1ns: is past" in seen["refused"]
    assert seen["findings"] == []
    refused = re.compile(r"status of 400 .*/api/v1/do$")
    assert [one for one in seen["complaints"] if not refused.search(one)] == []


def test_changes_of_clocks_to_come_are_drawn_and_dragged(server: Server):
    """In rounds each node has a clock. The network's file has one change, the form adds one."""
    clock = "schedule:\n  - {at: 1000s, clock: b, bump: +90s}\n"
    with Lab("rounds: true\n" + clock + pair("delay: 5ms")) as lab:
        seen = visit("clock-schedule.mjs", server.line, lab.name)
        left = lorentz.json_of("schedule", "show", "--network", lab.name)
    added = "{at: 33m20s, clock: a, drift: +100ppm}"
    assert seen["command"] == f"lorentz schedule add '{added}' --network {lab.name}"
    assert "clock of b: bump +90s" in seen["drawn"]
    assert seen["findings"] == [] and seen["complaints"] == []
    assert left == [{"at": "21m21s", "clock": "a", "drift": "+100ppm"}]


def test_a_node_in_rounds_gets_a_tdf_of_its_own(server: Server):
    """As in the window of TimeKeeper's CORE (its documentation, figure 2.2)."""
    with Lab("tdf: 2\nrounds: true\n" + pair("delay: 5ms")) as lab:
        seen = visit("node-tdf.mjs", server.line, lab.name, "a", "5")
        status = lorentz.json_of("experiment", "status", lab.name)
    assert {one["name"].split(".")[1]: one["tdf"] for one in status["containers"]} == {
        "a": 5,
        "b": 2,
    }
    assert seen["before"] == "2"
    assert seen["command"] == f"lorentz dilate {lab.name}.a --tdf 5"
    assert seen["complaints"] == []


def test_a_clock_is_made_to_err(server: Server):
    with Inside("sleep", "1000", rate="1/10") as inside:
        seen = visit("clock-error.mjs", server.line, inside.name)
        error = lorentz.json_of("clock", "show", inside.name)
    assert seen["commands"] == [
        f"lorentz clock {words}"
        for words in (
            f"bump {inside.name} +90s",
            f"drift {inside.name} +200ppm",
            f"reset {inside.name}",
        )
    ]
    assert "for: " in seen["refused"]
    assert (error["offset_ns"], error["drift_ppm"]) == (0, 0)
    assert seen["findings"] == []
    refused = re.compile(r"status of 400 .*/api/v1/do$")
    assert [one for one in seen["complaints"] if not refused.search(one)] == []


def test_a_name_of_a_stranger_that_leads_here_gets_nothing(server: Server):
    """DNS rebinding, by a browser that resolves the name to this server."""
    seen = visit("rebind.mjs", server.line, "evil.example")
    assert seen == {"page": 421, "session": 421, "state": 421, "own": 200}


def test_the_licences_of_all_libraries_are_there(server: Server):
    answer = server.ask("GET", "/licenses.txt")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    named = answer.body.decode()
    for library in json.loads((WEB / "package.json").read_text())["dependencies"]:
        assert library in named


def test_each_view_is_accessible_and_fits_dark_and_light(tmp_path: Path):
    node = tools()
    mock = subprocess.Popen(
        [node, str(WEB / "dev/mock.mjs"), "0", "200", "1000"], stdout=subprocess.PIPE, text=True
    )
    try:
        seen = visit("looks.mjs", mock.stdout.readline().strip())
    finally:
        mock.kill()
        mock.wait()
        mock.stdout.close()
    assert seen["findings"] == []
    assert seen["overflow"] == []
    assert seen["complaints"] == []
    assert seen["keyboard"].endswith("#/network/campus/list?node=client")
    assert seen["followed"].endswith("#/network/campus?node=client")
    # Whole seconds only, where a person asks for reduced motion.
    assert re.fullmatch(r"\d+:\d\d:\d\d", seen["calm"])
