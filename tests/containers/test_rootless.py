"""podman without root: a user's containers, with `lorentz-runtime`, in podman's user namespace.

A user's containers need control groups of version 2, one of which belongs to the user, as systemd
arranges it. The user and that view of the control groups exist in a mount namespace alone.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.containers import TIMEOUT, rootfs, runtime

USER = 54321
SUBORDINATE = "5432100:65536"
UNIFIED = Path("/sys/fs/cgroup/unified")

#: Runs as root: makes a host with version 2 alone, and one more user.
HOST = """
set -e
mount --make-rprivate /
if [ -d {unified} ]; then
    for group in /sys/fs/cgroup/*; do [ "$group" = {unified} ] || umount -q "$group" || true; done
    mount --move {unified} /mnt
    umount /sys/fs/cgroup
    mount --move /mnt /sys/fs/cgroup
fi
for file in passwd group subuid subgid; do
    touch /etc/$file
    cp /etc/$file {folder}/$file
    chmod 644 {folder}/$file
done
echo "lorentz-test:x:{user}:{user}::{folder}/home:/bin/sh" >> {folder}/passwd
echo "lorentz-test:x:{user}:" >> {folder}/group
for file in subuid subgid; do echo "lorentz-test:{subordinate}" >> {folder}/$file; done
for file in passwd group subuid subgid; do mount --bind {folder}/$file /etc/$file; done
exec setpriv --reuid {user} --regid {user} --clear-groups sh {folder}/script
"""

#: Runs as that user. The test reads lines that begin with a word and a colon.
SCRIPT = """
cd "$HOME"
run() { podman run --runtime {runtime} --network none "$@"; }
podman --version >/dev/null || exit 1
echo "import: $(podman import -q {folder}/image.tar bb:1 >/dev/null && echo done)"
run -d --name one --annotation lorentz.rate=20 --annotation lorentz.at=2038-01-19 \\
    bb:1 sh -c 'date +%Y; id -u; sleep 100000000' >/dev/null
for try in $(seq 100); do
    [ "$(podman --runtime {runtime} logs one | wc -l)" -ge 2 ] && break
    sleep 0.1
done
echo "first: $(podman --runtime {runtime} logs one)"
echo "begin: $(date +%s)"
podman --runtime {runtime} exec one sleep 60
echo "end: $(date +%s)"
echo "exec: $(podman --runtime {runtime} exec one date +%Y)"
echo "pause: $(podman --runtime {runtime} pause one 2>&1
    podman inspect -f '{{.State.Status}}' one)"
echo "again: $(podman --runtime {runtime} exec one date +%Y)"
podman --runtime {runtime} rm --force --time 0 one >/dev/null
echo "left: $(ls "$XDG_RUNTIME_DIR" | grep lorentz)"
echo "wrong: $(run --rm --annotation lorentz.rate=fast bb:1 true 2>&1)"
podman system migrate
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, str]:
    """Returns the output of the user's script."""
    needs.root()
    for tool in ("podman", "conmon", "newuidmap", "setpriv"):
        needs.tool(tool)
    on_hybrid = UNIFIED.is_dir()
    if not on_hybrid and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("no version 2 of control groups")
    # The user must be able to enter it: pytest's own directories are private.
    folder = lorentz.session.folder / "rootless"
    group = (UNIFIED if on_hybrid else Path("/sys/fs/cgroup")) / "lorentz-test-rootless"
    try:
        return run_script(folder, group)
    finally:
        remove_groups(group)
        shutil.rmtree(folder)


def run_script(folder: Path, group: Path) -> dict[str, str]:
    folder.mkdir(mode=0o755)
    binaries = folder / "bin"
    binaries.mkdir()
    for program in (lorentz.session.binary, runtime()):
        shutil.copy2(program, binaries / program.name)
    archive = ["tar", "-C", str(rootfs()), "-cf", str(folder / "image.tar"), "."]
    subprocess.run(archive, check=True, timeout=TIMEOUT)
    names = {
        "folder": folder,
        "unified": UNIFIED,
        "user": USER,
        "subordinate": SUBORDINATE,
        "runtime": binaries / runtime().name,
        "lorentz": binaries / lorentz.session.binary.name,
    }
    host, script = HOST, SCRIPT
    for name, value in names.items():
        host = host.replace(f"{{{name}}}", str(value))
        script = script.replace(f"{{{name}}}", str(value))
    (folder / "script").write_text(script)
    own = [folder / "home", folder / "runtime", group, group / "session"]
    for place in own:
        place.mkdir(mode=0o755)
    (folder / "runtime").chmod(0o700)
    files = [place / name for place in own[2:] for name in ("cgroup.procs", "cgroup.threads")]
    for path in (*own, *files, group / "cgroup.subtree_control"):
        shutil.chown(path, USER, USER)
    environment = {
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
    }
    enter = f"echo $$ > {group}/session/cgroup.procs; exec unshare --mount sh -c '{host}'"
    with (folder / "output").open("w+") as output:
        subprocess.run(
            ["sh", "-c", enter],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd="/",
            timeout=TIMEOUT,
            check=False,
        )
        output.seek(0)
        text = output.read()
    print(text)
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        word, colon, rest = line.partition(": ")
        if colon and word.isalpha() and word.islower():
            last, found[word] = word, rest
        elif last:
            found[last] += f"\n{line}"
    if found.get("import") != "done":
        pytest.skip(f"podman cannot be used without root here: {text}")
    return found


def remove_groups(group: Path, patience: float = 5) -> None:
    """Removes the groups, and kills all processes left in them."""
    if group.exists():
        (group / "cgroup.kill").write_text("1")
    end = time.monotonic() + patience
    while group.exists() and time.monotonic() < end:
        for place in sorted((path for path in group.glob("**/") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                place.rmdir()
        time.sleep(0.05)
    assert not group.exists()


def test_a_users_container_has_the_clock_that_was_asked_for(said):
    assert said["first"].split() == ["2038", "0"]
    assert int(said["end"]) - int(said["begin"]) < 30


def test_who_enters_is_on_it_too(said):
    assert said["exec"] == "2038"


def test_without_a_control_group_of_its_own_it_is_not_paused(said):
    """Its group is the session's: a freeze would stop the engine too."""
    assert "no control group of its own" in said["pause"]
    assert said["pause"].endswith("running")
    assert said["again"] == "2038"


def test_a_wrong_value_is_told(said):
    assert "lorentz.rate" in said["wrong"] and "fast" in said["wrong"]


def test_nothing_is_left(said):
    assert said["left"].strip() == ""
