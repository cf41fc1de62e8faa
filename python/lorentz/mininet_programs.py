"""Reads programs that use Mininet, without Mininet: they run against stand-ins that note what they
build. Nothing is made, and no command of theirs for a node or for the host runs meanwhile.

A program ends at the first call that needs a running network, such as `CLI(net)` or
`net.pingAll()`. Earlier commands for a node become the node's lines of `exec`.
"""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lorentz import mininet_host as host
from lorentz import mininet_modules as modules
from lorentz import mininet_python2 as python2
from lorentz import mininet_stand_ins as stand_ins
from lorentz import mininet_topologies as topologies
from lorentz._native import WrongInputError


def read(
    path: str | Path, name: str | None = None, arguments: Sequence[str] = ()
) -> tuple[object, list[str]]:
    """Runs the program at `path` until it uses its network.

    Returns its topology, as `Network.from_mininet` takes it, and what of it is left out. `name`:
    that of one of its `topos` with its arguments, as in `mn --custom FILE --topo NAME,4,bw=10`;
    default: the network that the program starts, else the first of its `topos`, else its only class
    of topologies. `arguments`: those of the program. A program that fails as one in Python 2 would
    is read as such. Raises WrongInputError if there is no network.
    """
    path = Path(path)
    attempt = _Attempt(path, name, arguments)
    of_a_module: WrongInputError | None = None
    while True:
        try:
            topo, left_out = attempt.read()
        except WrongInputError as error:
            if not attempt.adapt(error.__cause__):
                # Where a module matters, what follows without it says little.
                is_exit = isinstance(error.__cause__, SystemExit)
                if is_exit or of_a_module is None:
                    raise
                raise of_a_module from error
            if isinstance(error.__cause__, ModuleNotFoundError):
                of_a_module = of_a_module or error
        else:
            if of_a_module and not topo.nodes():
                raise of_a_module
            absent = sorted(attempt.absent)
            return topo, [*left_out, *(f"the module {one}: not installed" for one in absent)]


class _Attempt:
    """How a program is read: with or without the meaning of Python 2, and of absent modules."""

    def __init__(self, path: Path, name: str | None, arguments: Sequence[str]) -> None:
        self.path, self.name, self.arguments = path, name, arguments
        #: Modules that are not installed. The program sees such whose names do nothing.
        self.absent: set[str] = set()
        self._python2: types.CodeType | None = None

    def adapt(self, error: BaseException | None) -> bool:
        """Has the next attempt avoid an error. Returns False if it cannot."""
        if isinstance(error, ModuleNotFoundError) and error.name:
            name = error.name.split(".")[0]
            if name in self.absent or name == "mininet":
                return False
            self.absent.add(name)
            return True
        if self._python2 is None and python2.is_cause(error):
            self._python2 = python2.compiled(self.path)
            return self._python2 is not None
        return False

    def read(self) -> tuple[topologies.Topo, list[str]]:
        name, path = self.name, self.path
        scope: dict = {
            "__name__": "mininet_program" if name else "__main__",
            "__file__": str(path),
            **(python2.names() if self._python2 else {}),
        }
        stand_ins.Mininet.started = stand_ins.Mininet.built = stand_ins.Mininet.loose = None
        failed: BaseException | None = None
        with (
            _instead_of_mininet(path, self.arguments, self.absent),
            host.instead_of_the_host() as commands,
        ):
            net = None
            try:
                exec(self._python2 or compile(path.read_text(), str(path), "exec"), scope)
            except stand_ins.Finished as finished:
                net = finished.net
            except (Exception, SystemExit) as error:
                failed = None if isinstance(error, SystemExit) and not error.code else error
            made = stand_ins.Mininet
            net = net or made.started or made.loose
            if net is None and failed is None and name is None and "topos" not in scope:
                net = made.built
            if net is None:
                net = _of_topos(path, scope, name, failed)
            elif isinstance(failed, Exception):
                # It has gone on with what a stand-in gave it.
                net.left_out.append(f"the program from here on: {_wrong(path, failed)}")
            topo = net.as_topo()
        left_out = [f"the host: {line}: does not run" for line in commands]
        return topo, net.left_out + left_out


@contextmanager
def _instead_of_mininet(path: Path, arguments: Sequence[str], absent: set[str]) -> Iterator[None]:
    """Has `mininet` be the stand-ins, and the program's folder be in the path of modules."""
    before = dict(sys.modules)
    argv, folders = sys.argv, list(sys.path)
    finder = modules.AbsentModules(absent)
    sys.meta_path.append(finder)
    for key in [key for key in before if key.split(".")[0] == "mininet"]:
        del sys.modules[key]
    sys.modules.update(modules.stand_ins_of_modules(path.parent))
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.argv, sys.path[:] = argv, folders
        # Another program may have other modules of the same names beside it.
        for key, module in list(sys.modules.items()):
            own = key not in before and _is_below(module, path)
            if own or key.split(".")[0] in {"mininet", *absent}:
                del sys.modules[key]
        sys.modules.update({key: before[key] for key in before if key not in sys.modules})


def _is_below(module: types.ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and Path(file).resolve().is_relative_to(path.parent.resolve())


def _of_topos(
    path: Path, scope: dict, name: str | None, failed: BaseException | None
) -> stand_ins.Mininet:
    """Returns the network of one of the program's `topos`, or of its class of topologies."""
    topos = dict(scope.get("topos", {}))
    if isinstance(failed, Exception) and not topos:
        raise _wrong(path, failed) from failed
    name, positional, named = _arguments(name)
    if name is not None and name not in topos:
        known = ", ".join(topos) or "none"
        raise WrongInputError(
            f"{path}:1:1: no topology {name!r} in its topos; expected one of: {known}"
        )
    classes = [
        one
        for one in scope.values()
        if isinstance(one, type)
        and issubclass(one, topologies.Topo)
        and one not in topologies.CLASSES
    ]
    found = [topos[name]] if name is not None else [*topos.values(), *classes]
    if not found and failed is not None:
        raise WrongInputError(f"{_wrong(path, failed)}: it may expect arguments") from failed
    if not found:
        what = "expected a program that starts a network of Mininet, or has topos"
        raise WrongInputError(f"{path}:1:1: {what}")
    try:
        topo = found[0](*positional, **named)
        net = stand_ins.Mininet(topo=topo)
    except Exception as error:
        raise _wrong(path, error) from error
    if isinstance(failed, Exception):
        net.left_out.append(f"the rest of the program: {_wrong(path, failed)}")
    return net


def _arguments(name: str | None) -> tuple[str | None, list, dict]:
    """Takes NAME,4,bw=10 apart."""
    first, *rest = name.split(",") if name else [None]
    named = dict(one.split("=", 1) for one in rest if "=" in one)
    positional = [_number(one) for one in rest if "=" not in one]
    return first, positional, {key: _number(value) for key, value in named.items()}


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _wrong(path: Path, error: BaseException) -> WrongInputError:
    """Returns the error of a program, with the last place of it that led there."""
    own = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    if own:
        # Python before 3.11 knows no column.
        at = (own[-1].lineno, (getattr(own[-1], "colno", None) or 0) + 1)
    else:
        at = (getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1)
    return WrongInputError(f"{path}:{at[0]}:{at[1]}: {type(error).__name__}: {error}")
