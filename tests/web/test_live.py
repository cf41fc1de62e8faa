"""Containers, networks and experiments as `lorentz web` shows them, and actions of people."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest
from framework import lorentz
from framework.experiments import Experiment
from framework.networks import Lab, pair
from framework.running import Inside
from framework.web import Browser, Server

pytestmark = pytest.mark.patient


@pytest.fixture(scope="module")
def lab():
    with Lab("tdf: 10\nseed: 7\n" + pair("rate: 10mbit", "delay: 5ms")) as lab:
        yield lab


@contextlib.contextmanager
def sleeping(name: str, **options: object) -> Iterator[Inside]:
    """A container that sleeps, as long as the block runs."""
    with Inside("sleep", "5000", name=name, **options) as inside:
        inside.wait_until_shown()
        yield inside


def named(state: dict, kind: str, name: str) -> dict | None:
    return next((one for one in state[kind] if one["name"] == name), None)


def virtual(clock: dict, real: int) -> int:
    """The time that a clock shows when the host's CLOCK_MONOTONIC shows `real`."""
    numerator, denominator = clock["rate"]
    elapsed = 0 if clock["frozen"] else real - int(clock["r0_ns"])
    shown = int(clock["v0_ns"]) + max(0, elapsed) * numerator // denominator
    return min(shown, int(clock["limit_ns"])) if clock["limit_ns"] else shown


def container(browser: Browser, name: str) -> dict | None:
    return named(browser.get("/api/v1/state").json(), "containers", name)


def test_it_says_what_it_is(server, browser, folder):
    about = browser.get("/api/v1/about").json()
    assert about["dir"] == str(folder.resolve())
    assert about["version"] == lorentz.call("--version").stdout.split()[1]
    assert about["read_only"] is False and about["max_terminals"] == 16


def test_a_clock_is_drawn_as_the_program_reads_it(browser, server):
    """The page computes the time by the segment; the command line reads it before and after."""
    with sleeping("web-clock", rate="3", at="2038-01-19"):
        lorentz.ok("leap", "web-clock", "--by", "1h")
        before = lorentz.json_of("time", "web-clock")
        clock = container(browser, "web-clock")["clock"]
        after = lorentz.json_of("time", "web-clock")
        for read in (before, after):
            shown = virtual(clock, read["host"]["monotonic_ns"])
            assert shown == read["monotonic_ns"]
        assert clock["rate"] == [3, 1] and not clock["frozen"]
        # The wall clock inside, in seconds since 1970: 2038-01-19 and the leap, at least.
        wall = virtual(clock, after["host"]["monotonic_ns"]) + int(clock["wall_offset_ns"])
        assert wall // 10**9 >= 2_147_472_000 + 3600


def test_what_starts_and_ends_is_told(browser, server):
    with browser.events() as events:
        first = events.until(lambda event: event.kind == "state")
        assert named(first.data, "containers", "web-come") is None
        with sleeping("web-come"):
            come = events.until(lambda event: event.data.get("containers", {}).get("web-come"))
            shown = come.data["containers"]["web-come"]
            assert shown["command"] == ["sleep", "5000"] and shown["state"] == "runs"
        gone = events.until(
            lambda event: (
                "web-come" in event.data.get("containers", {})
                and event.data["containers"]["web-come"] is None
            )
        )
        assert gone.data["seq"] > come.data["seq"]


def test_nothing_is_sent_where_nothing_changes_but_time(browser, server):
    """The page draws the clocks itself: a running clock alone is no change."""
    with sleeping("web-still"), browser.events() as events:
        first = events.until(lambda event: event.kind == "state")
        ticks = 0
        for event in events:
            ticks += event.kind == "tick"
            if event.kind == "change" and "web-still" in event.data["containers"]:
                # Its processes are counted now and then; its clock is what it was.
                shown = event.data["containers"]["web-still"]
                assert shown["clock"] == named(first.data, "containers", "web-still")["clock"]
            if ticks == 3:
                break


def test_a_page_that_comes_back_gets_what_it_missed(browser, server):
    with browser.events() as events:
        first = events.until(lambda event: event.kind == "state")
    with sleeping("web-missed"):
        assert container(browser, "web-missed")
        with browser.events(first.id) as events:
            missed = events.until(lambda event: event.kind != "tick")
            assert missed.kind == "change" and missed.data["seq"] == first.data["seq"] + 1
        # An id of another server, or nonsense, gives the whole state.
        for last in ("00000000-1", "x", f"{first.id}9999"):
            with browser.events(last) as events:
                assert events.until(lambda event: event.kind != "tick").kind == "state"


def test_actions_are_those_of_the_command_line(browser, server):
    with sleeping("web-act"):
        done = browser.do("dilate", name="web-act", rate="1/2")
        assert done["command"] == "lorentz dilate web-act --rate 1/2" and done["status"] == 0
        assert lorentz.json_of("time", "web-act")["rate"] == "0.5"
        line = server.logged("do")
        assert line["command"] == done["command"] and line["status"] == 0
        assert browser.do("freeze", name="web-act")["status"] == 0
        assert container(browser, "web-act")["state"] == "frozen"
        before = lorentz.json_of("time", "web-act")["monotonic_ns"]
        assert browser.do("leap", name="web-act", by="1h")["status"] == 0
        assert lorentz.json_of("time", "web-act")["monotonic_ns"] == before + 3600 * 10**9
        assert browser.do("step", name="web-act", by="-1h")["status"] == 0
        assert browser.do("unfreeze", name="web-act")["status"] == 0
        assert container(browser, "web-act")["state"] == "runs"


def test_a_dry_action_is_only_shown(browser):
    with sleeping("web-dry"):
        done = browser.do("freeze", name="web-dry", dry=True)
        assert done == {
            "command": "lorentz freeze web-dry",
            "status": None,
            "output": "",
            "error": "",
        }
        assert lorentz.shown("web-dry")["state"] == "running"


def test_what_is_wrong_starts_nothing_and_what_fails_says_why(browser):
    for value in (
        {"do": "freeze", "name": "--all"},
        {"do": "dilate", "name": "x", "rate": "fast"},
        {"do": "up", "file": "../lab.yaml"},
        {"do": "format", "name": "x"},
        [],
    ):
        refused = browser.post("/api/v1/do", value)
        assert refused.status == 400 and refused.error, value
    failed = browser.do("freeze", name="no-such-container")
    assert failed["status"] == 2 and "no-such-container" in failed["error"]


def test_a_network_is_shown_whole(browser, lab):
    network = named(browser.get("/api/v1/state").json(), "networks", lab.name)
    assert [node["name"] for node in network["nodes"]] == ["a", "b"]
    assert network["clock"]["rate"] == [1, 10]
    (link,) = network["links"]
    assert link["id"] == "a:eth0 - b:eth0" and link["up"]
    assert link["directions"][0]["impairments"]["delay"] == "5ms"
    assert network["verdict"]["word"] in ("keeps up", "late")
    before = lab.status()["virtual_ns"]
    clock, started = network["clock"], int(network["started_ns"])
    shown = virtual(clock, time.clock_gettime_ns(time.CLOCK_MONOTONIC)) - started
    assert before <= shown <= lab.status()["virtual_ns"]
    node = container(browser, lab.container("a"))
    assert (node["network"], node["node"]) == (lab.name, "a")


def test_frames_are_counted_and_links_change_at_once(browser, lab):
    with browser.events() as events:
        lab.send("a", "10.0.0.2", 20, 1000)
        seen = events.until(
            lambda event: (
                event.kind == "change"
                and (network := event.data["networks"].get(lab.name))
                and network["links"][0]["directions"][0]["counts"]["delivered"] >= 20
            )
        )
        assert seen.data["networks"][lab.name]["lateness"]["count"] >= 20
        done = browser.do(
            "link", network=lab.name, end="a:eth0", both=True, set={"delay": "20ms"}, up=True
        )
        assert done["status"] == 0, done
        assert "link set a:eth0" in done["command"]
        events.until(
            lambda event: (
                event.kind == "change"
                and (network := event.data["networks"].get(lab.name))
                and network["links"][0]["directions"][1]["impairments"]["delay"] == "20ms"
            )
        )
    assert lab.direction("b:eth0")["impairments"]["delay"] == "20ms"
    lab.set("a:eth0", "--delay", "5ms", "--both")


def test_a_terminal_is_in_the_node(browser, server, lab):
    path = f"/api/v1/terminal?container={lab.container('a')}&columns=101&rows=37"
    with browser.websocket(path) as terminal:
        terminal.send(b"stty size; hostname -I; exec 2>&1\n")
        assert "10.0.0.1" in terminal.until("10.0.0.1 ")
        terminal.send(json.dumps({"columns": 55, "rows": 11}))
        terminal.send(b"stty size\n")
        terminal.until("11 55")
        assert server.logged("terminal")["container"] == lab.container("a")
        terminal.send(b"exit 3\n")
        while isinstance(message := terminal.receive(), bytes):
            pass
        assert json.loads(message) == {"exit": 3}
        assert terminal.receive() is None
    assert server.logged("terminal closed")["status"] == 3


#: Settings such as people have: they start programs, wait for one, and ask the terminal.
SETTINGS = """\
stty -echo
( sleep 0.5; true ) &
wait
eval "$(printf 'LT_SEEN="%s"' "$(tty)")"
PS1='[own prompt] '
"""


def test_a_terminal_has_the_settings_and_the_jobs_of_its_person(lab, tmp_path):
    (tmp_path / ".bashrc").write_text(SETTINGS)
    path = f"/api/v1/terminal?container={lab.container('a')}"
    with (
        Server(tmp_path, home=tmp_path) as server,
        server.browser().websocket(path) as terminal,
    ):
        shown = terminal.until("[own prompt] ")
        assert "job control" not in shown and "process group" not in shown, shown
        # The terminal shows what is typed, too: the last word there is another.
        terminal.send(b"echo tty=$LT_SEEN $- en''d\n")
        shown = terminal.until("end\r\n")
        # Interactive, with job control, on a terminal of its own.
        assert re.search(r"tty=/dev/pts/\d+ \w*im\w* end", shown), shown
        # Ctrl-C ends the program in the foreground, and the shell goes on.
        terminal.send(b"sleep 98764 & sleep 98763\n")
        lab.wait_until(lambda: lab.call("a", "pgrep", "-f", "sleep 9876[3]").stdout, "the program")
        terminal.send(b"\x03")
        terminal.send(b"jobs; kill %1; exit\n")
        shown = terminal.until('{"exit":')
        assert re.search(r"Running +sleep 98764", shown), shown


def test_a_terminal_has_the_shell_of_its_person(lab, tmp_path):
    path = f"/api/v1/terminal?container={lab.container('a')}"
    # A container may be without that shell; then it is bash, where there is one.
    for shell, word in (("/bin/dash", "<>"), ("/no/such/shell", "<bash>")):
        with (
            Server(tmp_path, shell=shell, home=tmp_path) as server,
            server.browser().websocket(path) as terminal,
        ):
            terminal.send(b"echo '<'${BASH_VERSION:+bash}'>'\n")
            terminal.until(f"{word}\r\n")
            terminal.send(b"exit\n")


def test_a_terminal_ends_with_its_page(browser, server, lab):
    def sleepers() -> str:
        return lab.call("a", "pgrep", "-f", "sleep 98[7]65").stdout

    with browser.websocket(f"/api/v1/terminal?container={lab.container('a')}") as terminal:
        terminal.send(b"sleep 98765\n")
        lab.wait_until(sleepers, "the program in the terminal")
    lab.wait_until(lambda: not sleepers(), "its end")


def test_terminals_are_bounded(browser, lab):
    path = f"/api/v1/terminal?container={lab.container('b')}"
    terminals = [browser.websocket(path) for _ in range(17)]
    try:
        assert [one.status for one in terminals] == [101] * 16 + [429]
    finally:
        for one in terminals:
            one.__exit__()


def test_a_capture_is_pcapng_with_virtual_times(browser, lab, tmp_path):
    path = f"/api/v1/capture?network={lab.name}&end=b:eth0"
    with browser.websocket(path) as capture:
        file = capture.receive()
        assert file[:4] == b"\x0a\x0d\x0d\x0a"
        lab.send("a", "10.0.0.2", 5, 333)
        while file.count(bytes(329)) < 5:
            file += capture.receive()
    (tmp_path / "x.pcapng").write_bytes(file)
    assert browser.websocket(f"/api/v1/capture?network={lab.name}&end=b:eth9").status == 404


def test_waits_are_told_with_their_ends(browser):
    with sleeping("web-wait", rate="1/1000") as inside:
        # The container is there a moment before its program sleeps, and its process before it has
        # executed the program.
        sleeps: list[dict] = []
        while not sleeps:
            assert inside.process.poll() is None
            waits = browser.get("/api/v1/containers/web-wait/waits").json()
            sleeps = [wait for wait in waits if "nanosleep" in wait["call"]]
        (wait,) = waits
        assert wait["command"] == "sleep 5000" and wait["thread"] == "sleep"
        left = int(wait["remaining_ns"]) / 1e9
        assert 4_000 < left <= 5_000
    assert browser.get("/api/v1/containers/no-such/waits").status == 404


def test_what_a_node_prints_is_read_on(browser):
    command = "[sh, -c, 'echo one; sleep 1; echo two; sleep 1000']"
    text = f"topology:\n  nodes:\n    a: {{command: {command}}}\n"
    with Lab(text) as lab:
        path = f"/api/v1/networks/{lab.name}/nodes/a/output"
        shown, next_byte = "", 0
        while "two" not in shown:
            part = browser.get(f"{path}?from={next_byte}").json()
            shown, next_byte = shown + part["text"], part["next"]
        assert shown.split() == ["one", "two"]
        assert browser.get(f"/api/v1/networks/{lab.name}/nodes/none/output").status == 404


def test_the_emulators_end_is_told(browser):
    with Lab(pair("delay: 5ms")) as lab, browser.events() as events:
        pid = lab.status()["pid"]
        events.until(lambda event: named_network(event, lab.name))
        os.kill(pid, signal.SIGKILL)
        ended = events.until(
            lambda event: (
                (network := named_network(event, lab.name))
                and network["verdict"]["word"] == "ended"
            )
        )
        assert named_network(ended, lab.name)["emulator"] is None


def named_network(event: object, name: str) -> dict | None:
    """The network called `name` in a state or a change."""
    networks = event.data.get("networks", {})
    return (
        networks.get(name)
        if event.kind == "change"
        else named({"networks": networks}, "networks", name)
    )


def test_the_report_is_one_file_that_loads_nothing(browser, lab):
    answer = browser.get(f"/api/v1/report?network={lab.name}")
    text = answer.body.decode()
    for part in (
        "<svg",
        lab.name,
        "seed of random decisions</td><td>7<",
        "5ms",
        "Over virtual time",
    ):
        assert part in text, part
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not [word for word in ("<script", "src=", "@import", "url(") if word in text]
    assert browser.get("/api/v1/report?network=none").status == 404


def test_history_grows_while_a_page_is_open(browser, lab):
    with browser.events() as events:
        path = f"/api/v1/history?kind=network&name={lab.name}"
        for _ in events:
            points = browser.get(path).json()["points"]
            if len(points) >= 3:
                break
    rates = [point["rate"] for point in points[1:]]
    assert all(0.05 < rate < 0.2 for rate in rates), rates
    virtual_times = [int(point["virtual_ns"]) for point in points]
    assert virtual_times == sorted(virtual_times)
    assert browser.get("/api/v1/history?kind=none&name=x").status == 400


def test_history_grows_while_no_page_is_open(browser, lab):
    """More slowly: the points that a request for the history finds were made before it."""
    path = f"/api/v1/history?kind=network&name={lab.name}"
    deadline = time.monotonic() + 60
    before = len(browser.get(path).json()["points"])
    while len(points := browser.get(path).json()["points"]) < before + 2:
        assert time.monotonic() < deadline, points
        time.sleep(0.5)
    assert all(0.05 < point["rate"] < 0.2 for point in points[1:]), points


def test_an_experiment_is_driven(browser):
    with Experiment() as experiment:
        name = experiment.name
        inside = experiment.run("sh", "-c", "while :; do :; done")
        for action, phase in (("synchronize", "synchronized"), ("start", "running")):
            done = browser.do("experiment", name=name, action=action)
            assert done["status"] == 0, done
            state = browser.get("/api/v1/state").json()
            assert named(state, "experiments", name)["phase"] == phase
        done = browser.do("experiment-dilate", name=name, container=inside.name, tdf="2")
        assert done["status"] == 0, done
        with browser.events() as events:
            events.until(
                lambda event: (
                    event.kind == "change"
                    and (shown := event.data["experiments"].get(name))
                    and shown["containers"][0]["tdf"] == 2
                    and shown["rounds"] > 10
                    and shown["containers"][0]["cpu_share"]
                )
            )
        assert container(browser, inside.name)["experiment"] == name
        assert browser.do("experiment", name=name, action="pause")["status"] == 0
        assert browser.do("experiment", name=name, action="stop")["status"] == 0


def test_metrics_have_all_of_it(folder, lab):
    token = folder / "metrics-token"
    token.write_text("m" * 32)
    token.chmod(0o600)
    with Server(folder, "--metrics-token-file", str(token)) as server:
        page = server.ask("GET", "/metrics", {"Authorization": f"Bearer {'m' * 32}"}).body.decode()
    rows = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert rows[f'lorentz_network_up{{network="{lab.name}"}}'] == "1"
    assert float(rows[f'lorentz_container_rate{{container="{lab.container("a")}"}}']) == 0.1
    way = f'network="{lab.name}",from="a:eth0",to="b:eth0"'
    assert f"lorentz_link_delivered_total{{{way}}}" in rows
