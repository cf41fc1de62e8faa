"""Nodes that see an image of podman's storage as their root file system."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from framework import containers, image_registry, kills, lorentz, needs
from framework.networks import Lab, refused

pytestmark = pytest.mark.patient
#: Settings of the image under test for programs.
SAYS = (
    *("--change", "ENV GREETING=from-the-image"),
    *("--change", "ENV PATH=/bin"),
    *("--change", "WORKDIR /tmp"),
    *("--change", 'CMD ["sh", "-c", "echo $GREETING $(pwd) $(date +%Y); sleep 1000"]'),
)


@pytest.fixture(scope="module")
def podman():
    needs.root()
    made = containers.Podman()
    tar = made.folder / "root.tar"
    subprocess.run(["tar", "-C", containers.rootfs(), "-cf", tar, "."], check=True, timeout=60)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _storage(podman, monkeypatch):
    """`lorentz up` finds that podman's images."""
    podman.publish(monkeypatch)


@pytest.fixture
def image(podman) -> str:
    """An image with all settings for programs that an image can have."""
    podman.call("import", *SAYS, str(podman.folder / "root.tar"), "localhost/serves:1")
    return "localhost/serves:1"


def mounted(podman) -> list:
    return json.loads(podman.call("image", "mount", "--format", "json").stdout or "[]")


def lab(*nodes: str) -> Lab:
    lines = "".join(f"    {node}\n" for node in nodes)
    links = (
        "  links:\n    - {endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24], "
        "delay: 5ms}\n"
    )
    return Lab(f"tdf: 2\nat: 2038-01-19T03:14:00Z\ntopology:\n  nodes:\n{lines}{links}")


def test_a_node_sees_its_image_and_leaves_it_clean(podman):
    with lab(f"a: {{image: {podman.image}, exec: [touch /made]}}", "b: {}") as network:
        assert "busybox" in network.run("a", "ls", "/bin").split()
        assert "made" in network.run("a", "ls", "/").split()
        assert network.run("a", "date", "+%Y") == "2038\n"
        assert min(network.ping("b", "10.0.0.1", count=2)) >= 10
        assert mounted(podman)
    assert not mounted(podman)
    assert "made" not in podman.run("ls", "/").split()


def test_what_the_image_says_of_programs(podman, image, tmp_path):
    """The image's command, variables and folder hold, unless the topology gives others."""
    nodes = (
        f"a: {{image: {image}, output: {tmp_path}/a}}",
        f"b: {{image: {image}, output: {tmp_path}/b, env: {{GREETING: mine}}}}",
    )
    with lab(*nodes) as network:
        for node, greeting in (("a", "from-the-image"), ("b", "mine")):
            found = tmp_path / node
            network.wait_until(lambda found=found: found.read_text().endswith("\n"), "a greeting")
            assert found.read_text() == f"{greeting} /tmp 2038\n"
        assert network.run("b", "sh", "-c", "echo $GREETING; pwd") == "mine\n/tmp\n"
    assert not mounted(podman)


def test_an_image_says_who_runs_its_programs(podman, tmp_path):
    podman.call(
        "import", "--change", "USER 65534:7", str(podman.folder / "root.tar"), "localhost/nobody:1"
    )
    node = f"a: {{image: localhost/nobody:1, command: 'id; sleep 1000', output: {tmp_path}/a}}"
    with lab(node, "b: {}") as network:
        network.wait_until(lambda: (tmp_path / "a").read_text() != "", "who it is")
        assert (tmp_path / "a").read_text().startswith("uid=65534 gid=7")
        assert network.run("a", "id", "-u") == "65534\n"


def test_the_emulator_killed_gives_images_back(podman):
    with lab(f"a: {{image: {podman.image}}}", "b: {}") as network:
        os.kill(network.status()["pid"], signal.SIGKILL)
        assert mounted(podman)
    assert not mounted(podman)


@pytest.mark.parametrize("killed", ["up", "emulator"])
@pytest.mark.parametrize("moment", kills.MOMENTS)
def test_a_killed_up_gives_images_back(podman, moment, killed):
    network, path = kills.with_image(podman.image)
    try:
        kills.kill(network, [path], moment, killed)
    finally:
        network.__exit__()
    assert not mounted(podman)


#: A podman that mounts images only when it may. It tells that it is about to.
SLOW_PODMAN = """\
#!/bin/sh
[ "$1 $2" != "image mount" ] || {{ echo $$ >{begun}; until [ -e {may} ]; do sleep 0.01; done; }}
exec {podman} "$@"
"""


def test_podman_outlives_a_killed_up(podman, monkeypatch, tmp_path):
    """And mounts the image after that. `down` waits for it."""
    begun, may = tmp_path / "begun", tmp_path / "may"
    slow = tmp_path / "podman"
    slow.write_text(SLOW_PODMAN.format(begun=begun, may=may, podman=podman.program))
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    network, path = kills.with_image(podman.image)
    try:
        up = kills.start(network, [path])
        network.wait_until(lambda: begun.exists() and begun.read_text(), "podman")
        up.kill()
        up.wait(timeout=10)
        words = [*lorentz.session.command(), "down", network.name]
        with subprocess.Popen(words, env=lorentz.session.environment()) as down:
            # Time enough for a `down` that does not wait.
            with contextlib.suppress(subprocess.TimeoutExpired):
                down.wait(timeout=0.5)
            may.touch()
            assert down.wait(timeout=10) == 0
        slow_one = Path("/proc") / begun.read_text().strip()
        network.wait_until(lambda: not slow_one.exists(), "the end of podman")
    finally:
        network.__exit__()
    assert not mounted(podman)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            "image: localhost/nosuch:1",
            "images that podman does not have: localhost/nosuch:1 (a); "
            "'podman pull localhost/nosuch:1' gets them",
        ),
        ("image: '-x'", ':2:31: node a: image: "-x": expected an image such as'),
        ("image: x, rootfs: /", "node a: image: excludes rootfs"),
        ("kind: hub, image: x", "runs nothing"),
    ],
)
def test_images_that_cannot_be(node, words, tmp_path):
    refused(tmp_path, node, words)


def test_all_missing_images_are_listed(podman, tmp_path):
    """In one line, each with its nodes, and with the full names that docker would mean."""
    file = tmp_path / "missing.clab.yml"
    file.write_text(
        "name: missing\ntopology:\n  defaults: {kind: linux}\n  nodes:\n"
        f"    a: {{image: 'nosuch:1'}}\n    b: {{image: 'who/other'}}\n"
        f"    c: {{image: 'nosuch:1'}}\n    d: {{image: '{podman.image}'}}\n"
    )
    told = lorentz.refusal(lorentz.call("up", str(file)), "nosuch:1 (a, c), who/other (b);")
    assert "'podman pull docker.io/library/nosuch:1 docker.io/who/other'" in told
    assert "lorentz up --pull" in told


def test_a_missing_image_is_pulled(podman, monkeypatch, tmp_path):
    """From a registry on loopback; by the second network it is there."""
    image = tmp_path / "image"
    podman.call("push", "--format", "v2s2", podman.image, f"dir:{image}")
    with image_registry.serve(image) as host:
        conf = tmp_path / "registries.conf"
        conf.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(conf))
        file = tmp_path / "pulled.yaml"
        text = f"topology: {{nodes: {{a: {{image: '{host}/some/busybox:2'}}}}}}\n"
        file.write_text(f"name: pulled\n{text}")
        missing = f"images that podman does not have: {host}/some/busybox:2 (a)"
        lorentz.refusal(lorentz.call("up", str(file)), missing)
        lorentz.ok("up", "--pull", str(file))
        try:
            inside = lorentz.ok("exec", "pulled.a", "--", "busybox", "echo", "from the registry")
            assert inside == "from the registry\n"
        finally:
            lorentz.ok("down", "pulled")
    # The registry has gone.
    with Lab(text) as network:
        assert network.run("a", "busybox", "echo", "still there") == "still there\n"
    assert not mounted(podman)


def test_images_that_cannot_be_pulled_are_told(podman, tmp_path):
    """From a registry that nobody serves: nothing is made."""
    file = tmp_path / "lab.yaml"
    file.write_text("name: pulled\ntopology: {nodes: {a: {image: 'localhost:1/x:1'}}}\n")
    done = lorentz.call("up", "--pull", str(file), timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("lorentz: podman pull localhost:1/x:1: ")
    assert "pulled" not in str(lorentz.json_of("inspect"))


@pytest.fixture
def kathara(podman, image, tmp_path):
    """A lab of Kathara's whose machine has an image and a directory."""
    lab = Lab("")
    folder = tmp_path / lab.name
    (folder / "m/etc").mkdir(parents=True)
    (folder / "m/etc/of-the-lab").write_text("copied\n")
    (folder / "lab.conf").write_text(
        f'LAB_NAME="{lab.name}"\nm[image]="{image}"\nm[0]="A"\nplain[0]="A"\n'
    )
    (folder / "m.startup").write_text(
        "ip addr add 10.0.0.1/24 dev eth0\ntest -e /usr/bin/env || echo no env > /made\n"
    )
    yield lab, folder
    lab.__exit__()


def test_an_imported_image_runs_in_a_private_node(podman, kathara):
    lab, folder = kathara
    done = lorentz.call("up", str(folder), timeout=60)
    assert done.returncode == 0, done.stderr
    # The image has no /usr/bin: its own shell ran the lines, and not the host's.
    assert lab.run("m", "cat", "/made", "/etc/of-the-lab") == "no env\ncopied\n"
    assert lab.run("m", "sh", "-c", "echo $GREETING; pwd") == "from-the-image\n/tmp\n"
    # Its processes are its own, and it is above its image.
    assert lab.run("m", "sh", "-c", "echo /proc/[0-9]*").count("/proc/") <= 4
    lab.run("plain", "test", "-e", "/usr/bin/python3")
    assert mounted(podman)
    lorentz.ok("down", lab.name)
    assert not mounted(podman) and "made" not in podman.run("ls", "/").split()


IMUNES = {
    "JSON": """{"nodes": {"n1": {"type": "pc", "name": "pc1", "docker_image": "IMAGE"},
                "n2": {"type": "pc", "name": "pc2", "docker_image": ""}}}""",
    "lists": """\
node n1 {
    type pc
    network-config {
hostname pc1
}
    docker-image IMAGE
}
node n2 {
    type pc
    network-config {
hostname pc2
}
}
""",
}


@pytest.mark.parametrize("form", IMUNES)
def test_an_image_of_imunes_is_kept_and_can_be_ignored(podman, form, tmp_path):
    lab = Lab("")
    file = tmp_path / f"{lab.name}.imn"
    file.write_text(IMUNES[form].replace("IMAGE", podman.image))
    try:
        lorentz.ok("up", str(file), timeout=60)
        # The image has no /usr/bin. A node without an image has the host's.
        assert lab.call("pc1", "test", "-e", "/usr/bin/env").returncode == 1
        lab.run("pc2", "test", "-e", "/usr/bin/env")
        lorentz.ok("down", lab.name)
        lorentz.ok("up", "--ignore-images", str(file), timeout=60)
        lab.run("pc1", "test", "-e", "/usr/bin/env")
    finally:
        lab.__exit__()
    file.write_text(IMUNES[form].replace("IMAGE", "nosuch/image:1"))
    told = lorentz.refusal(lorentz.call("up", str(file)), "images that podman does not have")
    assert "nosuch/image:1 (pc1)" in told


def test_arguments_are_the_entrypoints(podman, tmp_path):
    """As docker has it: containerlab's cmd replaces the image's, and not its entrypoint."""
    made = ("--change", 'ENTRYPOINT ["/bin/echo", "entry"]', "--change", 'CMD ["image"]')
    podman.call("import", *made, str(podman.folder / "root.tar"), "localhost/entry:1")
    lab = Lab("")
    file = tmp_path / f"{lab.name}.clab.yml"
    file.write_text(
        f"name: {lab.name}\ntopology:\n  defaults: {{kind: linux, image: 'localhost/entry:1'}}\n"
        "  nodes:\n    a: {cmd: \"of 'the lab'\"}\n    b: {}\n"
    )
    try:
        done = lorentz.call("up", str(file), timeout=60)
        assert done.returncode == 0, done.stderr
        outputs = {node["name"]: Path(node["output"]) for node in lab.status()["nodes"]}
        for name, words in (("a", "entry of the lab\n"), ("b", "entry image\n")):
            lab.wait_until(lambda name=name: outputs[name].read_text(), "its output")
            assert outputs[name].read_text() == words
    finally:
        lab.__exit__()


def test_images_can_be_ignored(podman, kathara):
    lab, folder = kathara
    done = lorentz.call("up", "--ignore-images", str(folder), timeout=60)
    assert done.returncode == 0, done.stderr
    assert lab.run("m", "cat", "/etc/of-the-lab") == "copied\n"
    assert "10.0.0.1" in lab.run("m", "ip", "addr")
    assert not mounted(podman)


def test_a_private_image_says_who_runs_its_programs(podman, tmp_path):
    made = ("--change", "USER nobody:lab", str(podman.folder / "users.tar"), "localhost/named:1")
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", containers.rootfs(), root], check=True, timeout=60)
    (root / "etc/passwd").write_text("root:x:0:0::/:\nnobody:x:65534:65534::/:\n")
    (root / "etc/group").write_text("root:x:0:\nlab:x:7:\n")
    tar = ["tar", "-C", root, "-cf", podman.folder / "users.tar", "."]
    subprocess.run(tar, check=True, timeout=60)
    podman.call("import", *made)
    with Lab("isolation: private\ntopology: {nodes: {a: {image: localhost/named:1}}}\n") as network:
        assert network.run("a", "id", "-u") == "65534\n"
        assert network.run("a", "id", "-g") == "7\n"


def test_a_command_that_the_image_does_not_have(podman, tmp_path):
    refused(tmp_path, f"image: {podman.image}, command: [gcc]", "node a: command: gcc: not found")
    assert not mounted(podman)


def test_no_podman(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(tmp_path, "image: x", "node a: image: x: podman: No such file")
