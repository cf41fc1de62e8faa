"""The names of the Python package, parameters included, are those of the stored list."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from framework.build import REPO

PACKAGE = REPO / "python/lorentz"
LIST = Path(__file__).with_name("python_names.txt")
MODULES = (
    *("clock_errors", "clock_options", "containers", "experiments", "mininet", "networks"),
    *("process_clock", "status", "time_blocks", "times"),
)


def parameters(arguments: ast.arguments) -> str:
    """The parameters' names; those after `*` are given by keyword only."""
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        names.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        names.append("*")
    names += [one.arg for one in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(f"**{arguments.kwarg.arg}")
        # The keywords of `Unpack[ClockOptions]` stand in the list as the fields of that class.
        if isinstance(arguments.kwarg.annotation, ast.Subscript):
            names[-1] += f": {ast.unparse(arguments.kwarg.annotation.slice)}"
    return ", ".join(names)


def names(prefix: str, body: list[ast.stmt]) -> list[str]:
    """A line for each public class, field and function, as `module.Class.function(parameters)`."""
    lines = []
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            lines += [f"{prefix}.{node.name}", *names(f"{prefix}.{node.name}", node.body)]
        elif isinstance(node, ast.FunctionDef) and (
            node.name == "__init__" or not node.name.startswith("_")
        ):
            lines.append(f"{prefix}.{node.name}({parameters(node.args)})")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines.append(f"{prefix}.{node.target.id}")
    return lines


def test_names_and_parameters_are_those_of_the_stored_list():
    """Programs depend on these names. LORENTZ_WRITE_INTERFACE=1 writes the list anew."""
    lines = []
    for module in MODULES:
        lines += names(module, ast.parse((PACKAGE / f"{module}.py").read_text()).body)
    if os.environ.get("LORENTZ_WRITE_INTERFACE"):
        LIST.write_text("\n".join(lines) + "\n")
    assert LIST.read_text().splitlines() == lines
