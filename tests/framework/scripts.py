"""Python scripts of `scripts/`, which have no suffix, as modules."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType

from .build import REPO


def load(name: str) -> ModuleType:
    """Returns the script called `name` as a module."""
    loader = importlib.machinery.SourceFileLoader(
        name.replace("-", "_"), str(REPO / "scripts" / name)
    )
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
