"""A runtime that is killed at a change of files leaves nothing behind a delete."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest
from framework import checkpoints, lorentz, processes
from framework.containers import Bundle, environment, runtime

LOOP = ["sh", "-c", "while :; do usleep 100000; done"]
MAX_STEPS = 100


def was_killed_at(call: str, count: int, bundle: Bundle, *words: str) -> bool:
    """Has the runtime killed as it begins its `count`th system call `call`; false if it makes
    fewer."""
    kill = f"inject={call}:signal=SIGKILL:when={count}"
    command = ["strace", "-o", str(bundle.folder / "trace"), "-e", f"trace={call}", "-e", kill]
    with (bundle.folder / "log").open("w") as log:
        ended = subprocess.run(
            [*command, str(runtime()), *words],
            cwd=bundle.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment(), processes.TAG: bundle.tag},
            timeout=60,
            check=False,
        )
    killed = ended.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert killed or ended.returncode == 0, (bundle.folder / "log").read_text()
    return killed


@pytest.mark.parametrize("call", ["flock", "mkdir", "rename", "renameat2", "clone"])
@pytest.mark.parametrize("verb", ["create", "restore"])
def test_a_runtime_that_is_killed_at_any_step_leaves_nothing_behind_a_delete(verb, call):
    """It takes a lock, or changes what others see of a container, by these calls."""
    assert shutil.which("strace"), "tests/packages.txt names it"
    with Bundle(LOOP, at="2038-01-19") as bundle:
        words = [verb, "--bundle", str(bundle.folder), bundle.id]
        if verb == "restore":
            checkpoints.criu()
            bundle.start()
            bundle.ok("checkpoint", "--image-path", "saved", bundle.id)
            words[1:1] = ["--detach", "--image-path", "saved"]
        for count in range(1, MAX_STEPS):
            killed = was_killed_at(call, count, bundle, *words)
            bundle.ok("delete", "--force", bundle.id)
            lorentz.wait_until_gone(bundle.id)
            if not killed:
                break
        assert 1 < count < MAX_STEPS, f"no call {call} was met"
