"""Clocks that several hosts share, by custom resources of Kubernetes: its own API server, and hosts
that are time namespaces."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import yaml
from framework import lorentz, needs
from framework.build import REPO
from framework.cluster import TIMEOUT, Host, difference
from framework.kubernetes import KubeApi

pytestmark = pytest.mark.patient

#: Largest difference of two virtual clocks by the same hardware clock, ns.
SAME = 100


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    needs.root()
    with KubeApi(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def clock(api, request):
    """The name of a clock at rate 1 that only this test uses."""
    name = f"clock-{abs(hash(request.node.name)) % 10**9}"
    manifest = {
        "apiVersion": "lorentz.dev/v1alpha1",
        "kind": "VirtualClock",
        "metadata": {"name": name},
        "spec": {"at": "2038-01-19T03:14:00Z"},
    }
    path = api.folder / f"{name}.json"
    path.write_text(json.dumps(manifest))
    api.kubectl("apply", "--validate=false", "-f", str(path))
    yield name
    api.kubectl("delete", "virtualclock", name, "--ignore-not-found")


def until(holds: Callable[[], object], timeout: float = TIMEOUT) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def patch(api: KubeApi, name: str, **spec: object) -> None:
    text = json.dumps({"spec": spec})
    api.kubectl("patch", "virtualclock", name, "--type=merge", "--patch", text)


def wait_for_change(api: KubeApi, hosts: tuple[Host, ...], name: str, change: int) -> None:
    """Waits until all hosts have taken a change over, and its instant has come."""
    for host in hosts:
        api.wait_for_host(name, host.name, change=change)
    until(lambda: not api.status(name)["to_come_tai_ns"])


def test_a_clock_of_a_manifest_is_on_all_hosts(api, hosts, clock):
    """It is made by `kubectl apply`, with a date; the agents agree about its line."""
    a, b = hosts
    with a.agent(api), b.agent(api):
        wait_for_change(api, hosts, clock, 1)
        with a.program(clock, "date", "+%Y") as one, b.program(clock, "date", "+%Y") as two:
            one.succeed()
            two.succeed()
        assert one.stdout == two.stdout == "2038\n"
        assert abs(difference(a, b, clock, 1)) <= SAME


def test_a_patch_is_one_change_for_all(api, hosts, clock):
    """Both agents compute it, and one of them stores it."""
    a, b = hosts
    with a.agent(api), b.agent(api):
        wait_for_change(api, hosts, clock, 1)
        rates = {"10": 10, "1/10": 0.1, "+200ppm": 1.0002}
        for change, (rate, number) in enumerate(rates.items(), 2):
            patch(api, clock, rate=rate)
            wait_for_change(api, hosts, clock, change)
            assert abs(difference(a, b, clock, number)) <= SAME
        patch(api, clock, frozen=True)
        wait_for_change(api, hosts, clock, 5)
        until(lambda: a.clock(clock)["monotonic_ns"] == b.clock(clock)["monotonic_ns"])
        patch(api, clock, frozen=False, rate="2")
        wait_for_change(api, hosts, clock, 7)
        assert api.status(clock)["frozen"] is False
    line = json.loads(api.kubectl("get", "virtualclock", clock, "-o", "json"))["line"]
    assert [segment["change"] for segment in line["segments"]][-1] == 7


def test_the_plugin_of_kubectl(api, hosts, clock):
    a, b = hosts
    with a.agent(api), b.agent(api):
        wait_for_change(api, hosts, clock, 1)
        for change, words in enumerate(
            (("dilate", "--rate", "100"), ("leap", "--by", "1d"), ("step", "--by=-1h")), 2
        ):
            api.kubectl("lorentz", words[0], clock, *words[1:], "--lead", "0s")
            wait_for_change(api, hosts, clock, change)
        assert clock in api.kubectl("lorentz", "get")
        api.kubectl("lorentz", "freeze", clock)
        wait_for_change(api, hosts, clock, 5)
        shown = api.kubectl("lorentz", "status", clock).splitlines()
        assert "rate 100" in shown[0]
        assert [line.split()[0] for line in shown[1:]] == ["a", "b"]
        # The wish goes with the line.
        spec = json.loads(api.kubectl("get", "virtualclock", clock, "-o", "json"))["spec"]
        assert (spec["rate"], spec["frozen"]) == ("100", True)
        row = api.kubectl("get", "virtualclocks", clock).splitlines()[1].split()
        assert row[:4] == [clock, "100", "true", "5"]


def test_clocks_go_on_while_the_api_server_is_gone(api, hosts, clock):
    """The agents read all clocks again when it is back: its versions have gone on."""
    a, b = hosts
    with a.agent(api) as agent, b.agent(api):
        wait_for_change(api, hosts, clock, 1)
        api.process.process.kill()
        api.process.finish()
        agent.wait_for_text("the store:")
        assert abs(difference(a, b, clock, 1)) <= SAME
        api.process.__exit__(None, None, None)
        api.process = api.server()
        api.process.__enter__()
        api.wait_until_ready()
        api.kubectl("lorentz", "dilate", clock, "--rate", "7")
        wait_for_change(api, hosts, clock, 2)
        assert abs(difference(a, b, clock, 7)) <= SAME


def test_a_host_without_agent_is_lost_when_its_lease_is_over(api, hosts, clock):
    a, _ = hosts
    with a.agent(api, "--lease", "1s") as agent:
        api.wait_for_host(clock, "a", change=1)
        agent.finish_by(signal.SIGKILL)
    until(lambda: "a" not in api.hosts(clock))


def test_a_removed_clock_leaves_nothing_on_the_hosts(api, hosts, clock):
    a, _ = hosts
    with a.agent(api):
        api.wait_for_host(clock, "a", change=1)
        assert f"cluster.{clock}" in a.left()
        api.kubectl("delete", "virtualclock", clock)
        until(lambda: f"cluster.{clock}" not in a.left())


def test_many_patches_and_commands_at_once_leave_a_line_that_has_what_is_wanted(api, hosts, clock):
    a, b = hosts
    with a.agent(api), b.agent(api):
        wait_for_change(api, hosts, clock, 1)
        for rate in range(2, 8):
            patch(api, clock, rate=str(rate))
            api.ok("step", clock, "--by", "1s", "--lead", "0s")
        until(lambda: api.status(clock)["rate"] == "7")
        until(lambda: a.clock(clock)["rate"] == b.clock(clock)["rate"] == "7")
        assert abs(difference(a, b, clock, 7)) <= SAME


def test_each_field_has_words_for_kubectl_explain():
    """`kubectl explain` itself asks for a schema that the API server here does not publish."""

    def fields(schema: dict, path: str) -> Iterator[tuple[str, dict]]:
        for name, field in schema.get("properties", {}).items():
            yield f"{path}.{name}", field
            yield from fields(field, f"{path}.{name}")
        for inner in (schema.get("items"), schema.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from fields(inner, f"{path}[]")

    parts = list(yaml.safe_load_all(lorentz.ok("cluster", "manifest", "--crds")))
    assert len(parts) == 2
    for part in parts:
        schema = part["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        named = [("", schema), *fields(schema, "")]
        assert len(named) > 8
        assert [name for name, field in named if "description" not in field] == []


def test_a_wish_that_is_no_rate_is_told_of(api, hosts, clock):
    a, _ = hosts
    with a.agent(api) as agent:
        api.wait_for_host(clock, "a", change=1)
        patch(api, clock, rate="fast")
        agent.wait_for_text("rate: ")
        done = api.call("status", clock)
        assert "rate: " in done.stdout + done.stderr
        patch(api, clock, rate="3")
        api.wait_for_host(clock, "a", change=2)


def test_wrong_input_is_one_line(api, tmp_path):
    lorentz.refusal(api.call("status", "no-such"), "no-such")
    done = lorentz.call("cluster", "ls", "--kubernetes", "--etcd", "127.0.0.1:1")
    assert done.returncode == 2
    lorentz.refusal(lorentz.call("cluster", "manifest", "--image", "a b"), "--image")
    nowhere = {**lorentz.session.environment(), "KUBECONFIG": str(tmp_path / "none")}
    done = lorentz.call("cluster", "ls", "--kubernetes", env=nowhere)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_the_manifest_has_all_that_a_cluster_needs():
    text = lorentz.ok("cluster", "manifest", "--image", "example.org/lorentz:1")
    assert "{{" not in text
    parts = {part["kind"]: part for part in yaml.safe_load_all(text)}
    assert set(parts) >= {
        *("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"),
        *("DaemonSet", "PodDisruptionBudget", "RuntimeClass"),
    }
    pod = parts["DaemonSet"]["spec"]["template"]["spec"]
    images = [one["image"] for one in pod["initContainers"] + pod["containers"]]
    assert images == ["example.org/lorentz:1"] * 2
    # Rights on custom resources alone.
    assert {group for rule in parts["ClusterRole"]["rules"] for group in rule["apiGroups"]} == {
        "lorentz.dev"
    }


def test_the_chart_makes_what_the_manifest_has():
    helm = shutil.which("helm")
    if not helm:
        pytest.skip("helm is not here (go install helm.sh/helm/v3/cmd/helm@latest builds it)")
    chart = REPO / "packaging" / "kubernetes" / "chart"
    options = ("--set", "image=example.org/lorentz:1", "--include-crds")
    how = {"capture_output": True, "text": True, "check": False, "timeout": 60}
    for call in (("lint", chart), ("template", "lorentz", chart, *options)):
        done = subprocess.run([helm, *call], **how)
        assert done.returncode == 0, done.stdout + done.stderr
    manifest = lorentz.ok("cluster", "manifest", "--image", "example.org/lorentz:1")

    def by_name(text: str) -> dict:
        parts = [part for part in yaml.safe_load_all(text) if part]
        return {(part["kind"], part["metadata"]["name"]): part for part in parts}

    assert by_name(done.stdout) == by_name(manifest)
