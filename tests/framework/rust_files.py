"""Which files of a crate use one another, by the paths of the modules in their code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

#: The path of a module: the names from the crate's root on.
Module = tuple[str, ...]

COMMENT_OR_STRING = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{")
USE = re.compile(r"\b(?P<public>pub(?:\(\w+\))?\s+)?use\s+(?P<tree>[^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
INLINE = re.compile(r"\bmod\s+\w+\s*\{")
CHILD = re.compile(r"\bmod\s+(\w+);")
FIRST_OF_PATH = re.compile(r"(?<![\w:])(\w+)::")


def modules(source: Path) -> dict[Module, str]:
    """Returns the code of each file below `source`, without comments, texts and tests."""
    found = {}
    for file in sorted(source.rglob("*.rs")):
        names = file.relative_to(source).with_suffix("").parts
        module = names[:-1] if names[-1] in ("lib", "main", "mod") else names
        if not {"tests", "fuzz", "test_process"} & set(module):
            code = COMMENT_OR_STRING.sub('""', file.read_text())
            tests = TESTS.search(code)
            code = code[: tests.start()] if tests else code
            found[module] = found.get(module, "") + inline_modules_as_own(code)
    return found


def inline_modules_as_own(code: str) -> str:
    """Within the modules that stand in the file itself, makes `super` the file: `self`."""
    for head in reversed(list(INLINE.finditer(code))):
        depth, end = 1, head.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        inside = code[head.end() : end].replace("super::", "self::")
        code = code[: head.end()] + inside + code[end:]
    return code


def paths_of_tree(tree: str) -> Iterator[list[str]]:
    """Returns the paths of a `use`: of `a::{b, c::d}` both."""
    prefix, brace, inside = re.sub(r"\s+as\s+\w+|\s+", "", tree).partition("{")
    if not brace:
        yield prefix.split("::")
        return
    depth, part = 0, ""
    for char in inside.removesuffix("}") + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if part:
                yield from paths_of_tree(prefix + part)
            part = ""
        else:
            part += char


class Crate:
    """The files of a crate, and the files that each one uses."""

    def __init__(self, source: Path) -> None:
        self._code = modules(source)
        self._exports = {
            (module, path[-1]): path
            for module, code in self._code.items()
            for use in USE.finditer(code)
            if use["public"]
            for path in paths_of_tree(use["tree"])
            # Not a macro that is made visible under its own name.
            if len(path) > 1
        }
        self.uses = {module: self._used_by(module) - {module} for module in self._code}

    def _used_by(self, module: Module) -> set[Module]:
        code = self._code[module]
        trees = [use["tree"] for use in USE.finditer(code) if not use["public"]]
        paths = [path for tree in trees for path in paths_of_tree(tree)]
        rest = USE.sub("", code)
        paths += [found.split("::") for found in PATH.findall(rest)]
        children = set(CHILD.findall(code))
        paths += [[name, ""] for name in FIRST_OF_PATH.findall(rest) if name in children]
        own = [path for path in paths if path[0] in {"crate", "super", "self", *children}]
        return {self._file_of(module, path) for path in own}

    def _file_of(self, module: Module, path: list[str]) -> Module:
        """Returns the file that has the item of `path`, which stands in `module`."""
        at, names = module, list(path)
        if names[0] == "crate":
            at, names = (), names[1:]
        while names and names[0] in ("self", "super"):
            at = at[:-1] if names.pop(0) == "super" else at
        while names:
            if (*at, names[0]) in self._code:
                at = (*at, names.pop(0))
            elif (at, names[0]) in self._exports:
                return self._file_of(at, self._exports[at, names[0]])
            else:
                break
        return at

    def circles(self) -> set[frozenset[Module]]:
        """Returns the groups of files that use one another, directly or by a third."""
        reached = {module: self._reached_from(module) for module in self.uses}
        return {
            frozenset(other for other in reached[module] if module in reached[other])
            for module in self.uses
            if module in reached[module]
        }

    def _reached_from(self, module: Module) -> set[Module]:
        reached: set[Module] = set()
        left = [module]
        while left:
            new = self.uses[left.pop()] - reached
            reached |= new
            left += new
        return reached
