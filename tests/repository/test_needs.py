"""Needs of the tests: a root file system with servers that cannot be made."""

from __future__ import annotations

import pytest
from framework import needs, servers


@pytest.fixture
def _no_debootstrap(tmp_path, monkeypatch):
    needs.root()
    program = tmp_path / "debootstrap"
    program.write_text("#!/bin/sh\necho E: no network\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(servers, "TREE", tmp_path / "servers")


@pytest.mark.usefixtures("_no_debootstrap")
@pytest.mark.parametrize(
    ("strict", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_a_root_that_cannot_be_made_skips_or_fails(strict, outcome, monkeypatch):
    monkeypatch.setenv("LORENTZ_TESTS_STRICT", strict)
    with pytest.raises(outcome, match="debootstrap: .*no network"):
        servers.root()
    assert not servers.TREE.exists()
