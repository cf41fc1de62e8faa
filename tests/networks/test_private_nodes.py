"""Private nodes: what they see, what they may do, and that nothing of them is left."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework import containers, fuse, kills, lorentz, needs
from framework.networks import TIMEOUT, Capture, Lab, pair, refused

PRIVATE = "isolation: private\n"


def groups(lab: Lab) -> list[Path]:
    """The control groups of the nodes, in all hierarchies."""
    top = Path("/sys/fs/cgroup")
    names = (f"lorentz-{lab.name}.*", f"lorentz/{lab.name}.*")
    return [group for name in names for depth in ("", "*/") for group in top.glob(depth + name)]


def traces(lab: Lab) -> list[str]:
    """All that the host has of the network."""
    state = lorentz.session.state_dir()
    shown = [entry["name"] for entry in lorentz.ps() + lorentz.json_of("inspect")]
    folders = [*state.iterdir(), *state.glob(".networks/*"), *state.glob(".runtime/*")]
    named = [name for name in [*shown, *(path.name for path in folders)] if lab.name in name]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    words = f"/.networks/{lab.name}/".encode()
    running = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and words in (folder / "cmdline").read_bytes():
                running.append(f"process {folder.name}")
        except OSError:
            pass
    return [
        *named,
        *(line for line in mounts if str(state) in line),
        *map(str, groups(lab)),
        *running,
    ]


def wait_for_no_trace(lab: Lab) -> None:
    lab.wait_until(lambda: not traces(lab), f"nothing left of {traces(lab)}")


def test_what_a_node_writes_goes_with_it(tmp_path_factory):
    place = Path("/var/tmp") / f"lorentz-{os.getpid()}"
    place.mkdir()
    try:
        (place / "kept").write_text("the host's\n")
        with Lab(PRIVATE + pair()) as lab:
            assert lab.run("a", "cat", place / "kept") == "the host's\n"
            lab.run(
                "a", "sh", "-c", f"echo a > {place}/kept; echo new > {place}/new; rm /etc/hosts"
            )
            assert lab.run("a", "cat", place / "kept") == "a\n"
            # Not the other node's, and not the host's.
            assert lab.run("b", "cat", place / "kept") == "the host's\n"
            assert [path.name for path in place.iterdir()] == ["kept"]
            assert Path("/etc/hosts").exists()
        assert (place / "kept").read_text() == "the host's\n"
        wait_for_no_trace(lab)
    finally:
        shutil.rmtree(place)


def test_users_and_services_files_are_the_nodes_own():
    with Lab(PRIVATE + pair()) as lab:
        for folder, seen in (("/home", ""), ("/root", ""), ("/tmp", ""), ("/run", "lock\n")):
            assert lab.run("a", "ls", "-A", folder) == seen, folder
        assert lab.run("a", "stat", "-c", "%a", "/tmp", "/root") == "1777\n700\n"


@contextmanager
def mounted(*words: object) -> Iterator[Path]:
    """Has `mount` mount something in a directory outside of those that nodes have of their own."""
    with directory() as place:
        subprocess.run(["mount", *map(str, words), place], check=True, timeout=TIMEOUT)
        try:
            yield place
        finally:
            subprocess.run(["umount", place], check=True, timeout=TIMEOUT)


@contextmanager
def directory() -> Iterator[Path]:
    """A directory outside of those that nodes have of their own."""
    place = Path("/var/tmp") / f"lorentz-mount-{os.getpid()}"
    place.mkdir()
    try:
        yield place
    finally:
        place.rmdir()


def test_a_file_system_of_its_own_is_seen():
    """An overlay of / shows none of what is mounted below it: each file system has its own."""
    with mounted("-t", "tmpfs", "tmpfs") as place:
        (place / "note").write_text("mounted\n")
        with Lab(PRIVATE + pair()) as lab:
            assert lab.run("a", "cat", place / "note") == "mounted\n"
            lab.run("a", "sh", "-c", f"echo changed > {place}/note")
            assert (place / "note").read_text() == "mounted\n"


def check_read_only(lab: Lab, file: Path) -> None:
    assert lab.run("a", "cat", file) == "mounted\n"
    for words in (["tee", file], ["touch", file], ["chmod", "0", file]):
        done = lab.call("a", *words)
        assert done.returncode == 1 and "Read-only file system" in done.stderr, done
    assert lab.call("a", "mount", "-o", "remount,bind,rw", file.parent).returncode != 0


def test_a_file_system_without_overlay_is_read_only():
    """Its files are seen, and no write of a node reaches it."""
    with directory() as place, fuse.without_overlay(place, "mounted\n"):
        with Lab(PRIVATE + pair()) as lab:
            check_read_only(lab, place / "note")
            assert "Read-only file system" in lab.call("a", "touch", place / "new").stderr
        wait_for_no_trace(lab)


def test_a_file_that_is_mounted_is_read_only(tmp_path):
    with directory() as place:
        source, file = tmp_path / "note", place / "note"
        source.write_text("mounted\n")
        file.touch()
        subprocess.run(["mount", "--bind", source, file], check=True, timeout=TIMEOUT)
        try:
            with Lab(PRIVATE + pair()) as lab:
                check_read_only(lab, file)
            wait_for_no_trace(lab)
            assert source.read_text() == "mounted\n"
        finally:
            subprocess.run(["umount", file], check=True, timeout=TIMEOUT)
            file.unlink()


@pytest.mark.parametrize("kind", ["proc", "sysfs"])
def test_interfaces_of_the_kernel_are_not_seen_elsewhere(kind):
    """Directories for chroot have them too: there they would be the host's."""
    with mounted("-t", kind, kind) as place, Lab(PRIVATE + pair()) as lab:
        assert any(place.iterdir())
        assert lab.run("a", "ls", "-A", place) == ""


def test_time_is_the_networks():
    with Lab(f"{PRIVATE}tdf: 2\nat: 2038-01-19T03:14:00Z\n{pair('delay: 5ms')}") as lab:
        assert lab.run("a", "date", "+%Y") == "2038\n"
        assert min(lab.ping("a", "10.0.0.2", count=3)) >= 10
        lorentz.ok("freeze", lab.name)
        assert lorentz.json_of("time", lab.container("a"))["state"] == "frozen"
        lorentz.ok("unfreeze", lab.name)
        assert lab.run("b", "date", "+%Y") == "2038\n"


def test_in_rounds_frames_are_exact():
    text = f"{PRIVATE}rounds: true\nat: 2038-01-19T03:14:00Z\n{pair('delay: 5ms')}"
    with Lab(text) as lab:
        assert min(lab.ping("a", "10.0.0.2", count=3)) >= 10
        # ping counts its own work too. On the wire the delay is exact.
        ends = [Capture(lab, "a:eth0"), Capture(lab, "b:eth0")]
        lab.send("a", "10.0.0.2", 1, 100)
        (sent,), (arrived,) = (end.probes(1) for end in ends)
        assert arrived.at - sent.at == 5_000_000
        assert lab.run("a", "date", "+%Y") == lab.run("b", "date", "+%Y") == "2038\n"
        assert lab.status()["lateness"]["max_ns"] == 0
    wait_for_no_trace(lab)


#: Asks capset(2) for the capabilities that its arguments name, and prints what it has then.
CAPSET = """
import ctypes, os, sys
from array import array
libc = ctypes.CDLL(None, use_errno=True)
for word in sys.argv[1:]:
    asked = int(word, 16)
    low, high = asked & 0xFFFFFFFF, asked >> 32
    header, data = array("I", [0x20080522, 0]), array("I", [low, low, 0, high, high, 0])
    at = [ctypes.c_void_p(one.buffer_info()[0]) for one in (header, data)]
    done = libc.capset(*at)
    lines = (line.split(":") for line in open("/proc/self/status"))
    had = {name: hex(int(value, 16)) for name, value in lines if name.startswith("Cap")}
    print(done, had["CapPrm"], had["CapEff"])
"""
NET_ADMIN, NET_RAW, SYS_ADMIN = 1 << 12, 1 << 13, 1 << 21
ALL = (1 << 41) - 1


def test_a_program_gets_those_of_the_rights_it_asks_for_that_it_may_have():
    """FRR ends where capset(2) refuses CAP_SYS_ADMIN, which no private node has."""
    asked = [NET_ADMIN | NET_RAW | SYS_ADMIN, NET_RAW, ALL]
    words = ("python3", "-c", CAPSET, *map(hex, asked))
    with Lab("topology:\n  nodes:\n    a: {isolation: private}\n    b: {}\n") as lab:
        own, kept = hex(NET_ADMIN | NET_RAW), hex(NET_RAW)
        said = lab.run("a", *words).splitlines()
        assert said == [f"0 {own} {own}", f"0 {kept} {kept}", f"0 {kept} {kept}"]
        # Elsewhere the kernel's answer stands.
        assert lab.run("b", *words).splitlines()[-1] == f"-1 {kept} {kept}"


@pytest.mark.parametrize("isolation", ["private", "host"])
def test_nodes_share_a_network(isolation):
    text = f"""\
isolation: {isolation}
topology:
  nodes:
    above: {{network-of: b}}
    a: {{}}
    b: {{}}
  links:
    - {{endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24], delay: 5ms}}
"""
    with Lab(text) as lab:
        assert min(lab.ping("above", "10.0.0.1", count=2)) >= 10
        assert lab.run("above", "hostname") == "above\n"
        # A change by one is the other's too.
        lab.run("above", "ip", "addr", "add", "10.0.0.3/24", "dev", "eth0")
        assert "10.0.0.3" in lab.run("b", "ip", "addr") and "10.0.0.3" not in lab.run(
            "a", "ip", "a"
        )
    wait_for_no_trace(lab)


def test_containerlabs_nodes_share_a_network(tmp_path):
    lab = Lab("")
    file = tmp_path / f"{lab.name}.clab.yml"
    file.write_text(
        f"name: {lab.name}\ntopology:\n  defaults: {{kind: linux}}\n  nodes:\n"
        "    a:\n      network-mode: container:b\n"
        "      cmd: sh -c 'echo \"two words\"; sleep 1000'\n"
        "    b: {}\n    c: {}\n  links:\n    - endpoints: ['b:eth1', 'c:eth1']\n"
    )
    try:
        done = lorentz.call("up", str(file), timeout=TIMEOUT)
        assert done.returncode == 0 and "left out" not in done.stderr, done.stderr
        assert "eth1" in lab.run("a", "ip", "link")
        output = next(node["output"] for node in lab.status()["nodes"] if node["name"] == "a")
        lab.wait_until(lambda: Path(output).read_text() == "two words\n", "its output")
    finally:
        lab.__exit__()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("a: {network-of: c}, b: {}", "node a: network-of: c: no such node"),
        ("a: {network-of: a}, b: {}", "a: expected a node with a network of its own"),
        ("a: {network-of: b}, b: {network-of: c}, c: {}", "b: expected a node with a network"),
        ("a: {network-of: b, sysctls: {net.ipv4.ip_forward: 1}}, b: {}", "excludes links and"),
        ("a: {command: x, args: [y]}", "node a: args: excludes command"),
    ],
)
def test_a_network_that_cannot_be_shared(nodes, words, tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: refused\ntopology: {{nodes: {{{nodes}}}}}\n")
    lorentz.refusal(lorentz.call("up", str(file)), words)


def test_a_command_is_the_first_process(tmp_path):
    """Its end is the node's end. Without one, orphans are reaped."""
    text = f"""\
{PRIVATE}topology:
  nodes:
    a:
      command: 'echo I am $$ in $(hostname); until test -e /tmp/end; do sleep 0.02; done'
      output: {tmp_path}/out
    b: {{}}
"""
    with Lab(text) as lab:
        lab.wait_until(lambda: (tmp_path / "out").read_text(), "its output")
        assert (tmp_path / "out").read_text() == "I am 1 in a\n"
        orphan = "(sh -c 'echo $PPID > /tmp/parent; exec sleep 0.01' &)"
        lab.run("b", "sh", "-c", orphan)
        states = "cat /proc/[0-9]*/stat | grep -c ') Z' || true"
        lab.wait_until(lambda: lab.run("b", "sh", "-c", states) == "0\n", "no zombie")
        lab.run("a", "touch", "/tmp/end")
        lab.wait_until(lambda: node_state(lab, "a") == "ended", "its end")
        assert node_state(lab, "b") == "running"


def node_state(lab: Lab, name: str) -> str:
    return next(node["state"] for node in lab.status()["nodes"] if node["name"] == name)


def test_a_layer_is_bounded_and_says_so():
    text = "topology: {nodes: {a: {exec: ['head -c 80M /dev/zero > /var/big']}}}\n"
    lab = Lab(PRIVATE + text)
    try:
        done = lab.up()
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "layer of 64 MiB is full: 'lorentz up --layer-size'" in done.stderr
        wait_for_no_trace(lab)
        done = lorentz.call("up", "--layer-size", "128M", str(lab.file), timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        layer = lab.status()["nodes"][0]["layer"]
        assert layer["bytes"] == 128 << 20 and layer["free"] <= 48 << 20
    finally:
        lab.__exit__()


def test_up_says_how_nodes_see_files():
    both = "topology: {nodes: {a: {isolation: private}, b: {}}}\n"
    one = "topology: {nodes: {a: {}}}\n"
    for text, words in (
        (one, "nodes see the host's files, and what they write stays"),
        (PRIVATE + one, "nodes write into private layers of 64 MiB"),
        (both, "1 nodes write into private layers of 64 MiB"),
    ):
        lab = Lab(text)
        try:
            assert words in lab.up().stdout
        finally:
            lab.__exit__()


def test_an_imported_network_is_private_unless_asked(tmp_path):
    marker = Path("/var/tmp") / f"lorentz-marker-{os.getpid()}"
    for flags, stays in (([], False), (["--on-host"], True)):
        lab = Lab("")
        folder = tmp_path / lab.name
        (folder / "pc1/etc").mkdir(parents=True)
        (folder / "pc1/etc/of-the-lab").write_text("copied\n")
        (folder / "lab.conf").write_text(f'LAB_NAME="{lab.name}"\npc1[0]="A"\npc2[0]="A"\n')
        (folder / "pc1.startup").write_text(f"touch {marker}\n")
        try:
            done = lorentz.call("up", *flags, str(folder), timeout=TIMEOUT)
            assert done.returncode == 0, done.stderr
            assert marker.exists() is stays
            if not stays:
                # Kathara copies the directory of a machine into its root.
                assert lab.run("pc1", "cat", "/etc/of-the-lab") == "copied\n"
                lab.run("pc1", "test", "-e", "/etc/passwd")
                lab.run("pc2", "test", "!", "-e", "/etc/of-the-lab")
                assert not Path("/etc/of-the-lab").exists()
        finally:
            marker.unlink(missing_ok=True)
            lab.__exit__()


def test_binds_of_an_imported_network_are_layered(tmp_path):
    """containerlab has nodes write to the host. Here what they write goes with the node."""
    lab = Lab("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/in").write_text("in\n")
    (tmp_path / "note").write_text("note\n")
    file = tmp_path / f"{lab.name}.clab.yml"
    file.write_text(
        f"name: {lab.name}\ntopology:\n  nodes:\n    a:\n      kind: linux\n"
        "      binds: ['data:/data', 'note:/etc/note:ro']\n"
        "      exec: ['sh -c \"echo out > /data/out\"']\n"
    )
    try:
        done = lorentz.call("up", str(file), timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        assert lab.run("a", "cat", "/data/in", "/data/out", "/etc/note") == "in\nout\nnote\n"
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["in"]
        done = lorentz.call("exec", lab.container("a"), "--", "sh", "-c", "echo > /etc/note")
        assert done.returncode != 0
    finally:
        lab.__exit__()


def test_binds_of_an_own_file_reach_the_host(tmp_path):
    text = (
        f"topology: {{nodes: {{a: {{binds: ['{tmp_path}:/data'], exec: ['echo x > /data/x']}}}}}}\n"
    )
    with Lab(PRIVATE + text):
        assert (tmp_path / "x").read_text() == "x\n"


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("isolation: jail", "unknown variant"),
        ("isolation: private, files: /no/such", "node a: files: /no/such: not there; expected a"),
        ("files: /etc", "node a: files: expected isolation: private"),
        ("binds: ['/etc:/x:O']", "O is for nodes with isolation: private"),
        ("isolation: private, binds: ['/etc']", "expected SOURCE:TARGET"),
        ("kind: switch, isolation: private", "runs nothing"),
        ("isolation: private, command: [nosuch]", "node a: command: nosuch: not found"),
    ],
)
def test_what_cannot_be_is_told(node, words, tmp_path):
    refused(tmp_path, node, words)


def test_a_socket_cannot_be_layered(tmp_path):
    lab = Lab(PRIVATE + "topology: {nodes: {a: {binds: ['/dev/null:/x:O']}}}\n")
    try:
        done = lab.up()
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "node a: binds: /dev/null:/x: no regular file or directory" in done.stderr
        wait_for_no_trace(lab)
    finally:
        lab.__exit__()


def test_where_overlays_are_refused_the_way_out_is_named(tmp_path):
    """The kernel stacks two overlays and no third."""
    lab = Lab(PRIVATE + "topology: {nodes: {a: {}}}\n")
    lab.file.write_text(lab.text)
    script = """
set -e
mkdir -p $1/1/u $1/1/w $1/2/u $1/2/w $1/one $1/two
mount -t tmpfs tmpfs $1/1; mkdir $1/1/u $1/1/w
mount -t overlay overlay -o lowerdir=/,upperdir=$1/1/u,workdir=$1/1/w $1/one
mount -t tmpfs tmpfs $1/2; mkdir $1/2/u $1/2/w
mount -t overlay overlay -o lowerdir=$1/one,upperdir=$1/2/u,workdir=$1/2/w $1/two
for name in proc sys dev tmp; do mount --rbind /$name $1/two/$name; done
shift
exec chroot "$@"
"""
    command = ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path, tmp_path / "two"]
    try:
        done = subprocess.run(
            [*command, *lorentz.session.command(), "up", lab.file],
            env=lorentz.session.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done
        assert "'lorentz up --on-host' has nodes see the host's files" in done.stderr
        wait_for_no_trace(lab)
    finally:
        lab.__exit__()


def test_a_node_of_an_image_is_private_too(tmp_path):
    """A lab's calls to a service manager reach the image's, and not the host's."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", containers.rootfs(), root], check=True, timeout=TIMEOUT)
    (root / "bin/systemctl").write_text("#!/bin/sh\necho image: $* > /made\n")
    (root / "bin/systemctl").chmod(0o755)
    node = f"{{rootfs: {root}, exec: ['systemctl start named; test ! -e /usr/bin/python3']}}"
    with Lab(PRIVATE + f"topology: {{nodes: {{a: {node}}}}}\n") as lab:
        assert "busybox" in lab.run("a", "ls", "/bin").split()
        assert lab.run("a", "cat", "/made") == "image: start named\n"
        assert not (root / "made").exists()
        assert lab.run("a", "cat", "/proc/1/comm") == "idle\n"
    wait_for_no_trace(lab)


@pytest.mark.parametrize("killed", ["up", "emulator"])
@pytest.mark.parametrize("moment", kills.MOMENTS)
@pytest.mark.parametrize("kind", kills.NETWORKS)
def test_a_killed_up_leaves_nothing_after_down(kind, moment, killed):
    lab, path, *flags = kills.NETWORKS[kind]()
    try:
        kills.kill(lab, [path, *flags], moment, killed)
        lab.__exit__()
        wait_for_no_trace(lab)
    finally:
        lab.__exit__()


@pytest.fixture(autouse=True)
def _needs():
    needs.root()
