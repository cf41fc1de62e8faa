"""Containers with a root file system of their own: bundles for `lorentz-runtime`, and podman.

    with Bundle(["date"], rate="10") as bundle:
        assert bundle.run().stdout ...

The container is deleted at the end of the block, in every case.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from framework import lorentz, needs, processes

#: Time limit of a verb of the runtime, or of podman, s.
TIMEOUT = 60
_numbers = itertools.count(1)
TOOLS = "sh cat date echo env grep hostname id kill ls mount sleep test touch true uname usleep"
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
    },
]
CAPABILITIES = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETUID"]


def runtime() -> Path:
    """The runtime beside the binary under test."""
    path = lorentz.session.binary.with_name("lorentz-runtime")
    assert path.exists(), f"no such binary: {path}"
    return path


@functools.cache
def rootfs() -> Path:
    """A root file system with nothing but busybox, which all tests of a session may read."""
    needs.root()
    folder = lorentz.session.folder / "rootfs"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (folder / name).mkdir(parents=True)
    # busybox must be static: Debian's package busybox-static has this path.
    shutil.copy2(needs.tool("busybox"), folder / "bin" / "busybox")
    for name in TOOLS.split():
        (folder / "bin" / name).symlink_to("busybox")
    return folder


@functools.cache
def python_rootfs() -> Path:
    """A root file system with busybox and the machine's Python, without its packages."""
    # One of a user's directory would not be seen: /home and /root are a node's own.
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        needs.missing("python3 is not installed in /usr/bin")
    python = str(Path(python).resolve())
    words = [python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    library = Path(done.stdout.strip())
    folder = lorentz.session.folder / "python-rootfs"
    shutil.copytree(rootfs(), folder, symlinks=True)
    packages = shutil.ignore_patterns("*-packages", "test", "__pycache__", "config-*")
    shutil.copytree(library, folder / library.relative_to("/"), symlinks=True, ignore=packages)
    binaries = [python, *map(str, library.glob("lib-dynload/_ctypes.*"))]
    shown = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    # Behind a colon are the libraries of the file before it.
    libraries = {word for word in shown.split() if word.startswith("/") and word[-1] != ":"}
    for path in (python, *libraries):
        to = folder / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    (folder / "bin/python3").symlink_to(python)
    for name in ("dev", "home", "mnt", "root", "run", "var/tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def environment() -> dict[str, str]:
    return lorentz.session.environment()


class Bundle:
    """A bundle and the container made of it."""

    def __init__(self, words: list[str], env: list[str] | None = None, **annotations: str) -> None:
        self.id = f"b{os.getpid()}-{next(_numbers)}"
        self.folder = lorentz.session.folder / self.id
        namespaces = ["pid", "ipc", "uts", "mount", "network", "cgroup"]
        self.config = {
            "ociVersion": "1.0.2",
            "hostname": "inside",
            "root": {"path": str(rootfs()), "readonly": True},
            "process": {
                "args": words,
                "env": ["PATH=/bin", *(env or [])],
                "cwd": "/",
                "user": {"uid": 0, "gid": 0},
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            },
            "mounts": MOUNTS,
            "linux": {"namespaces": [{"type": name} for name in namespaces]},
            "annotations": {
                f"lorentz.{key}".replace("_", "-"): v for key, v in annotations.items()
            },
        }
        self.tag = processes.new_tag()

    def __enter__(self) -> Bundle:
        self.folder.mkdir()
        self.write()
        return self

    def __exit__(self, *_: object) -> None:
        self.call("delete", "--force", self.id)
        processes.kill_tagged(self.tag)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self) -> None:
        """Writes config.json anew, after a change of `config`."""
        (self.folder / "config.json").write_text(json.dumps(self.config))

    def call(self, *words: str, program: Path | None = None) -> subprocess.CompletedProcess:
        """Calls the runtime, with success or failure. Its output goes to files: a container keeps
        its runtime's descriptors open."""
        with (
            (self.folder / "stdout").open("w+") as out,
            (self.folder / "stderr").open("w+") as err,
        ):
            done = subprocess.run(
                [str(program or runtime()), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.folder,
                env={**environment(), processes.TAG: self.tag},
                timeout=TIMEOUT,
                check=False,
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())

    def ok(self, *words: str) -> str:
        """Calls the runtime, which must succeed, and returns what it printed."""
        done = self.call(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *words: str) -> str:
        """Returns the one line of the runtime's refusal."""
        done = self.call(*words)
        assert done.returncode == 1, f"{words}: status {done.returncode}: {done.stderr}"
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        return lines[0].removeprefix("lorentz-runtime: ")

    def run(self) -> str:
        """Returns the program's output, from `run` to its end."""
        return self.ok("run", self.id)

    def create(self, *options: str) -> None:
        """Makes the container. `printed` returns its output: the next call has another file."""
        self.ok("create", *options, self.id)
        self._created = self.folder / "created"
        (self.folder / "stdout").rename(self._created)

    def start(self) -> Bundle:
        """Makes the container and starts its program. `printed` returns the output."""
        self.create()
        self.ok("start", self.id)
        return self

    def printed(self) -> str:
        """Returns the output of the container's program so far."""
        return self._created.read_text()

    def exec(self, *words: str) -> str:
        return self.ok("exec", self.id, *words)

    def status(self) -> str:
        return json.loads(self.ok("state", self.id))["status"]

    def pid(self) -> int:
        return json.loads(self.ok("state", self.id))["pid"]

    def wait_until(self, status: str, timeout: float = 10) -> None:
        wait(lambda: self.status() == status, f"{self.id}: not {status}", timeout)

    def time(self) -> dict:
        """Returns the result of `lorentz time` for the container."""
        return lorentz.json_of("time", self.id)

    def frozen(self) -> bool:
        return self.time()["state"] == "frozen"


def wait(condition, what: str, timeout: float = 10) -> None:
    """Waits until a condition is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{what} after {timeout} s"
        time.sleep(0.02)


def has_watch(name: str) -> bool:
    """Whether a monitor of the container watches for programs that enter: it has a BPF program."""
    for monitor in lorentz.shown(name)["monitors"]:
        with contextlib.suppress(FileNotFoundError):
            fds = Path(f"/proc/{monitor['pid']}/fd").iterdir()
            if any(str(fd.readlink()) == "anon_inode:bpf_link" for fd in fds):
                return True
    return False


def wait_for_watch(name: str) -> None:
    wait(lambda: has_watch(name), "no monitor watches for newcomers")


class Podman:
    """podman with storage of its own, `lorentz-runtime` as its runtime, and one image."""

    image = "localhost/busybox:1"

    def __init__(self) -> None:
        needs.root()
        self.program = needs.tool("podman")
        needs.tool("conmon")
        self.folder = Path(tempfile.mkdtemp(prefix="podman-", dir=lorentz.session.folder))
        # conmon passes on no environment, but the runtime must use the session's state directory.
        wrapper = self.folder / "runtime"
        state = lorentz.session.state_dir()
        wrapper.write_text(f'#!/bin/sh\nLORENTZ_STATE_DIR={state} exec {runtime()} "$@"\n')
        wrapper.chmod(0o755)
        self.conf = self.folder / "containers.conf"
        self.conf.write_text(
            "[containers]\n"
            'default_ulimits = ["nofile=1024:1024","nproc=1024:1024"]\n'
            "[engine]\n"
            'cgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "lorentz"\n'
            # All podmans of this machine share these else, and `system reset` removes them.
            f'tmp_dir = "{self.folder / "libpod"}"\nlock_type = "file"\n'
            "[engine.runtimes]\n"
            f'lorentz = ["{wrapper}"]\nrunc = ["/usr/sbin/runc"]\n'
        )
        files = subprocess.run(
            ["tar", "-C", str(rootfs()), "-c", "."], capture_output=True, check=True
        ).stdout
        self.call("import", "-", self.image, stdin=files)

    def call(
        self, *words: str, stdin: bytes | None = None, check: bool = True
    ) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [
                *(self.program, "--root", str(self.folder / "storage")),
                *("--runroot", str(self.folder / "run"), *words),
            ],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env={**os.environ, "CONTAINERS_CONF": str(self.conf)},
            timeout=TIMEOUT,
            check=False,
        )
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert not check or done.returncode == 0, f"podman {words}: {done.stderr}"
        return done

    def publish(self, patch: pytest.MonkeyPatch) -> None:
        """Has `lorentz up` find the images of this podman."""
        driver = self.call("info", "--format", "{{.Store.GraphDriverName}}").stdout.strip()
        file = self.folder / "storage.conf"
        file.write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{self.folder}/storage"\n'
            f'runroot = "{self.folder}/run"\n'
        )
        patch.setenv("CONTAINERS_STORAGE_CONF", str(file))
        patch.setenv("CONTAINERS_CONF", str(self.conf))

    def run(self, *words: str, options: tuple[str, ...] = (), **annotations: str) -> str:
        """Runs a container to its end and returns what it printed."""
        return self.call("run", "--rm", *self.options(options, annotations), *words).stdout

    @contextlib.contextmanager
    def background(self, *words: str, options: tuple[str, ...] = (), **annotations: str):
        """Starts a container in the background. Returns its name."""
        name = f"p{os.getpid()}-{next(_numbers)}"
        self.call("run", "-d", "--name", name, *self.options(options, annotations), *words)
        try:
            yield name
        finally:
            self.call("rm", "--force", "--time", "0", name, check=False)

    def options(self, options: tuple[str, ...], annotations: dict[str, str]) -> list[str]:
        asked = [
            word
            for key, value in annotations.items()
            for word in ("--annotation", f"lorentz.{key.replace('_', '-')}={value}")
        ]
        network = [] if any("--net" in o or "--pod" in o for o in options) else ["--network=none"]
        return [*network, *asked, *options, self.image]

    def close(self) -> None:
        self.call("rm", "--force", "--all", "--time", "0", check=False)
        self.call("pod", "rm", "--force", "--all", "--time", "0", check=False)
        self.call("system", "reset", "--force", check=False)
        storage = self.folder / "storage" / "overlay"
        subprocess.run(["umount", "-q", str(storage)], check=False, timeout=TIMEOUT)
        # podman leaves the parents of its containers' groups; other users' containers keep them.
        for group in ("libpod_parent/conmon", "libpod_parent"):
            for left in Path("/sys/fs/cgroup").glob(f"*/{group}"):
                with contextlib.suppress(OSError):
                    left.rmdir()
