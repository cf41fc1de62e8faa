"""Programs for Mininet in Python 2, most of those published until 2020."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
import types
from collections.abc import Iterator
from pathlib import Path

#: Names that Python 2 has.
_NAMES = ("xrange", "raw_input", "unicode", "basestring", "long", "unichr", "reduce")
_DIVIDE = "__divide_of_python_2__"
_FLOAT = "'float' object cannot be interpreted as an integer"
#: Tokens between statements.
_BETWEEN = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT)


def is_cause(error: BaseException | None) -> bool:
    """Whether a program may have failed with this error because it is in Python 2."""
    if isinstance(error, NameError):
        return any(f"name {name!r} is" in str(error) for name in _NAMES)
    return isinstance(error, SyntaxError) or (isinstance(error, TypeError) and _FLOAT in str(error))


def compiled(path: Path) -> types.CodeType | None:
    """Returns the program's code with the meaning of Python 2; None if it cannot be read."""
    try:
        text = path.read_text()
        try:
            tree = ast.parse(text, str(path))
        except SyntaxError:
            tree = ast.parse(_translated(text), str(path))
        return compile(ast.fix_missing_locations(_Divisions().visit(tree)), str(path), "exec")
    except (SyntaxError, tokenize.TokenError, ValueError):
        return None


def names() -> dict[str, object]:
    """Returns the functions of Python 2 that are called or behave otherwise in Python 3."""
    lists = {
        one.__name__: lambda *arguments, _make=one: list(_make(*arguments))
        for one in (range, map, filter, zip)
    }
    return {
        **lists,
        "xrange": range,
        "raw_input": input,
        "unicode": str,
        "basestring": str,
        "long": int,
        "unichr": chr,
        "reduce": functools.reduce,
        _DIVIDE: _divide,
    }


def _divide(a: object, b: object) -> object:
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


class _Divisions(ast.NodeTransformer):
    """Has divisions of integers give integers."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        call = ast.Call(ast.Name(_DIVIDE, ast.Load()), [node.left, node.right], [])
        return ast.copy_location(call, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            node.op = ast.FloorDiv()
        return node


def _translated(text: str) -> str:
    """Returns the program with the statements `print`, `except` and `raise` of Python 3."""
    text = text.expandtabs(8)
    lines = text.splitlines(keepends=True)
    changes: list[tuple[tuple[int, int], int, str]] = []
    for statement in _statements(text):
        changes += _changes(statement)
    # From the end on: earlier places stay where they are.
    for (row, column), length, new in sorted(changes, key=lambda one: one[0], reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + new + line[column + length :]
    return "".join(lines)


def _statements(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    """Yields the tokens of each simple statement, and of each header such as `except X:`."""
    depth, statement = 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in ("(", "[", "{"):
            depth += 1
        elif token.string in (")", "]", "}"):
            depth -= 1
        ends = token.type in _BETWEEN or token.string in (";", ":")
        if depth == 0 and ends and token.type not in (tokenize.NL, tokenize.COMMENT):
            if statement:
                yield statement
            statement = []
        elif token.type not in _BETWEEN:
            statement.append(token)


def _changes(statement: list[tokenize.TokenInfo]) -> list[tuple[tuple[int, int], int, str]]:
    """Returns the places at which a statement changes: where, how many characters, by what."""
    first, last = statement[0], statement[-1]
    commas, depth = [], 0
    for token in statement:
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.string == "," and depth == 0:
            commas.append(token)
    if first.string == "print":
        if len(statement) > 1 and statement[1].string == ">>":
            # To a file: what is printed does not matter.
            return [(first.start, 5, "pass #")] if last.end[0] == first.start[0] else []
        return [(first.start, 5, "print("), (last.end, 0, ")")]
    if first.string == "except" and commas:
        return [(commas[-1].start, 1, " as")]
    if first.string == "raise" and commas:
        return [(commas[0].start, 1, "("), (last.end, 0, ")")]
    return []
