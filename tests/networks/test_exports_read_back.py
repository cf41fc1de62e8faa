"""Networks written for another emulator and read again: the same network, but for what the format
has no place for, which is told."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from framework import lorentz

SCENARIOS = Path(__file__).parent / "scenarios"

#: File name of each format.
WRITTEN = {"core": "again.xml", "containerlab": "again.clab.yml"}
#: Impairments that CORE can represent.
OF_CORE = ("rate", "delay", "loss", "duplicate")

SAMPLES = {
    "imunes": "*.imn",
    "core4": "*.imn",
    "core9": "*.xml",
    "clab": "*.clab.yml",
    "kathara-labs": "*",
}


def read(file: Path) -> dict:
    network = lorentz.json_of("import", str(file))["topology"]["topology"]
    return {"links": [], **network}


def addresses(link: dict) -> dict:
    """Each end with its addresses."""
    keys = ("ipv4", "ipv6", "mac")
    return {
        end: [short((link.get(key) or [None, None])[side]) for key in keys]
        for side, end in enumerate(link["endpoints"])
    }


def impairments(link: dict) -> dict:
    """Each end with what is done to the frames that it sends, as far as CORE has it."""
    sent = {}
    for end in link["endpoints"]:
        all_of = {**link, **link.get("from", {}).get(end, {})}
        sent[end] = {key: all_of[key] for key in OF_CORE if key in all_of}
    return sent


def written(folder: str, format: str, tmp_path: Path) -> list[tuple[str, dict, dict, str]]:
    """Name, network, network read again, and messages for each sample in a folder."""
    found = []
    for file in sorted((SCENARIOS / folder).glob(SAMPLES[folder])):
        again = tmp_path / file.name / WRITTEN[format]
        again.parent.mkdir()
        words = ("export", str(file), "--format", format, "--write", str(again))
        done = lorentz.call(*words)
        assert done.returncode == 0, (file, done)
        found.append((file.name, read(file), read(again), done.stderr))
    assert len(found) >= 20
    return found


@pytest.mark.parametrize("folder", SAMPLES)
def test_a_scenario_of_core_reads_back(folder, tmp_path):
    for name, first, second, told in written(folder, "core", tmp_path):
        for node, (kind, has_tree) in kinds(first).items():
            # Read back, switches have a spanning tree only where they form a loop.
            assert has_tree == (f"node {node}: stp" in told), (name, node)
            assert kinds(second)[node] in ((kind, has_tree), (kind, False)), (name, node)
        assert len(first["links"]) == len(second["links"]), name
        for one, other in zip(first["links"], second["links"], strict=True):
            assert addresses(one) == addresses(other), name
            assert impairments(one) == impairments(other), name
            assert one.get("mtu") == other.get("mtu") or "mtu" in told, name
        for node, said in first["nodes"].items():
            lines = "\n".join(second["nodes"][node].get("exec", []))
            for line in said.get("exec", []):
                # The format has no place for a line's end.
                assert line.strip() in lines, (name, node)
            assert said.get("image") == second["nodes"][node].get("image"), name


@pytest.mark.parametrize("folder", SAMPLES)
def test_a_topology_of_containerlab_reads_back(folder, tmp_path):
    for name, first, second, told in written(folder, "containerlab", tmp_path):
        hubs = [node for node, said in first["nodes"].items() if said.get("kind") == "hub"]
        assert all(f"node {hub}: a hub" in told for hub in hubs), name
        assert set(first["nodes"]) == set(second["nodes"]), name
        ends = [[link["endpoints"] for link in one["links"]] for one in (first, second)]
        assert ends[0] == ends[1], name
        for link in first["links"]:
            for end, (ipv4, ipv6, mac) in addresses(link).items():
                node = second["nodes"][end.split(":")[0]]
                for address in filter(None, (ipv4, ipv6)):
                    assert f"address add {address} dev" in " ".join(node["exec"]), name
                back = [addresses(one).get(end) for one in second["links"]]
                assert [None, None, mac] in back, name


def short(address: str | None) -> str | None:
    """Returns an address as a topology file has it: 2001::1, and not 2001:0::1."""
    return str(ipaddress.ip_interface(address)) if address and "/" in address else address


def kinds(network: dict) -> dict:
    """Each node with its kind; all switches of a scenario with loops have a spanning tree."""
    return {
        node: (said.get("kind"), bool(said.get("stp"))) for node, said in network["nodes"].items()
    }
