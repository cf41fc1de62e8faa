"""The sources of the page: their own tests, types, style, and the size of what a browser loads
first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from framework import needs

WEB = Path(__file__).parents[2] / "web"
pytestmark = [pytest.mark.patient, pytest.mark.timeout(600)]


@pytest.mark.parametrize("script", ["test", "check", "lint", "size"])
def test_the_sources_of_the_page_pass(script):
    if not (WEB / "dist/manifest.json").exists():
        needs.missing("web/dist is not there: 'make web' makes it")
    npm = [needs.tool("npm"), "--prefix", str(WEB), "run", script]
    done = subprocess.run(npm, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
