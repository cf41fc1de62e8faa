"""A runtime that is killed at any of its steps leaves nothing behind a delete, and a command
nothing behind the next one."""

from __future__ import annotations

import os

import pytest
from framework import checkpoints, lorentz, processes, steps
from framework.containers import Bundle, rootfs, runtime

pytestmark = pytest.mark.patient

LOOP = ["sh", "-c", "while :; do usleep 100000; done"]


@pytest.mark.parametrize("call", steps.CALLS)
@pytest.mark.parametrize("verb", ["create", "restore"])
def test_a_runtime_that_is_killed_leaves_nothing_behind_a_delete(verb, call):
    with Bundle(LOOP, at="2038-01-19") as bundle:
        words = [str(runtime()), verb, "--bundle", str(bundle.folder), bundle.id]
        if verb == "restore":
            checkpoints.criu()
            bundle.start()
            bundle.ok("checkpoint", "--image-path", "saved", bundle.id)
            words[2:2] = ["--detach", "--image-path", "saved"]

        def attempt(count: int) -> int:
            return steps.status_at(call, count, words, bundle.folder, bundle.tag, children=False)

        for status in steps.until_unharmed(attempt):
            log = (bundle.folder / "log").read_text()
            assert status in (0, steps.KILLED), log
            bundle.ok("delete", "--force", bundle.id)
            lorentz.wait_until_gone(bundle.id)


@pytest.mark.parametrize("call", ["mkdir", "rename", "write"])
def test_a_command_that_is_killed_leaves_nothing_behind_the_next(call, tmp_path):
    options = ["--rootfs", str(rootfs()), "--name"]
    # A control group has its container's name, whatever the state directory.
    killed, after = f"killed-{os.getpid()}", f"next-{os.getpid()}"
    words = [*lorentz.session.command(), "run", *options, killed, "--", "true"]
    bundles = lorentz.session.state_dir() / ".runtime"

    def attempt(count: int) -> int:
        return steps.status_at(call, count, words, tmp_path, processes.new_tag(), children=False)

    for status in steps.until_unharmed(attempt):
        assert status in (0, steps.KILLED), (tmp_path / "log").read_text()
        if lorentz.shown(killed):
            # The container is made, and waits for its start; or it ends by itself.
            lorentz.call("rm", "--force", killed)
            lorentz.wait_until_gone(killed, 10)
        assert lorentz.ok("run", *options, after, "--", "echo", "1") == "1\n"
        assert not bundles.exists(), list(bundles.rglob("*"))
