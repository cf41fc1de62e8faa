"""The first minute with the Python package: the page's examples as written, what a failed one
leaves, and how objects show themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from framework import lorentz
from framework.build import REPO
from framework.linked import spin, works
from lorentz import Container, Experiment, FailedError, Network, NotFoundError, WrongInputError

PAGE = REPO / "docs/python.md"


def examples() -> list[str]:
    """The indented blocks of Python of the page."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE.read_text(), re.MULTILINE)
    texts = ["\n".join(line[4:] for line in block.splitlines()) for block in blocks]
    return [text for text in texts if "Experiment(" in text or "Network(" in text]


@pytest.mark.parametrize("number", range(4))
def test_an_example_of_the_page_runs_as_written(number, tmp_path):
    found = examples()
    assert len(found) == 4, found
    # The second one uses the import of the first.
    text = (
        found[number]
        if "from lorentz" in found[number]
        else "from lorentz import Experiment\n" + found[number]
    )
    program = tmp_path / "example.py"
    program.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(REPO / "python")}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert lorentz.json_of("ps") == []


def test_synchronize_finds_what_popen_has_started():
    for _ in range(5):
        with Experiment() as experiment:
            containers = [experiment.container(f"early-{at}") for at in range(3)]
            for container in containers:
                container.popen(["sleep", "1000"])
            experiment.synchronize()
            names = {one.name for one in experiment.status().containers}
            assert names == {"early-0", "early-1", "early-2"}


def test_a_failed_example_leaves_nothing():
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), Experiment() as experiment:
            one = experiment.container("again")
            # It ignores SIGTERM, has a child, and is stopped by the experiment.
            one.popen(["sh", "-c", "trap '' TERM; sleep 1000 & while :; do :; done"])
            two = experiment.container("again-2")
            program = two.popen(["sleep", "1000"])
            experiment.synchronize()
            experiment.start()
            1 / 0  # noqa: B018
        assert program.poll() is not None
        assert lorentz.json_of("ps") == []
        with pytest.raises(NotFoundError):
            Container.find("again")


def test_what_was_added_goes_on():
    with spin() as program:
        with Experiment() as experiment:
            experiment.add(program.pid)
            experiment.synchronize()
        assert works(program.pid, within=10)


def test_a_program_that_is_not_there_raises_as_outside():
    with Experiment() as experiment:
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            experiment.container("none").popen(["no-such-program"])
        container = experiment.container("both")
        container.popen(["sleep", "1000"])
        second = experiment.container("both")
        second._is_there = lambda: False
        with pytest.raises(FailedError, match="both"):
            second.popen(["sleep", "1000"], stderr=subprocess.DEVNULL)


def test_processors_are_numbers_or_text():
    allowed = sorted(os.sched_getaffinity(0))
    for cpus in ([allowed[0]], allowed[0], str(allowed[0]), range(allowed[0], allowed[0] + 1)):
        with Experiment(cpus=cpus) as experiment:
            assert experiment.status().cpus == str(allowed[0])


def test_a_node_that_is_not_up_says_so():
    network = Network("early")
    node = network.node("a")
    for call in (lambda: node.run(["true"]), lambda: node.popen(["true"])):
        with pytest.raises(NotFoundError, match="node 'a': does not run in network 'early'"):
            call()
    with pytest.raises(NotFoundError):
        Container("no-such-container").run(["true"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": 1}, ["link a:eth0 - b:eth0: loss: ", "percentage"]),
        ({"delay": "1s", "mtu": 3}, ["link a:eth0 - b:eth0: mtu: 3: ", "68"]),
        ({"ipv4": ["10.0.0.1", None]}, ["link a:eth0 - b:eth0: ", "ipv4: ", "10.0.0.1/24"]),
    ],
)
def test_what_is_wrong_with_a_link_names_it(options, words):
    network = Network()
    a, b = network.node("a"), network.node("b", env={"X": "y"})
    network.link(a, b, **options)
    with pytest.raises(WrongInputError) as raised:
        network.up()
    assert all(word in str(raised.value) for word in words), raised.value
    assert "topology.yaml" not in str(raised.value)


def test_what_is_wrong_with_a_node_names_it():
    network = Network()
    network.node("a")
    network.topology["topology"]["nodes"]["a"]["imge"] = "x"
    with pytest.raises(WrongInputError, match="node a: .*imge"):
        network.up()


def tables(text: str) -> list[list[str]]:
    """The rows of all tables in a page for a notebook."""
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_notebooks_show_tables_and_a_drawing():
    with Experiment("shown") as experiment:
        container = experiment.container("shown-1", tdf=10)
        container.popen(["sleep", "1000"])
        for page in (experiment._repr_html_(), experiment.status()._repr_html_()):
            head, row = tables(page)
            assert row[head.index("container")] == "shown-1" and row[head.index("TDF")] == "10"
    assert "has ended" in experiment._repr_html_()
    network = Network("drawn")
    a, b = network.node("a & b".replace(" & ", "-")), network.switch("s")
    network.link(a, b, delay="5ms", rate="1mbit")
    page = network._repr_html_()
    assert ["a-b", "process", ""] in tables(page) and ["s", "switch", ""] in tables(page)
    drawing = ElementTree.fromstring(page[page.index("<svg") :])
    assert drawing.tag.endswith("svg") and "5ms" in page
    network.link(a, b, loss=2)
    assert "percentage" in network._repr_html_() and "<svg" not in network._repr_html_()
