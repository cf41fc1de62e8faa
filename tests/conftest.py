"""Black-box tests of lorentz; README.md tells how they are made and run."""

from __future__ import annotations

import pytest
from framework import lorentz


@pytest.fixture(scope="session", autouse=True)
def _session():
    yield
    lorentz.session.close()
