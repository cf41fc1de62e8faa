"""Reads programs that use Mininet, without Mininet: they run against stand-ins that note what they
build. Nothing is made, and no command of theirs for a node runs meanwhile.

A program ends at the first call that needs a running network, such as `CLI(net)` or
`net.pingAll()`. Earlier commands for a node become the node's lines of `exec`.
"""

from __future__ import annotations

import functools
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path

from lorentz import mininet_stand_ins as stand_ins
from lorentz import mininet_topologies as topologies
from lorentz._native import WrongInputError


def read(path: str | Path, name: str | None = None) -> tuple[object, list[str]]:
    """Runs the program at `path` until it uses its network.

    Returns its topology, as `Network.from_mininet` takes it, and what of it is left out. `name`:
    that of one of its `topos`, as `mn --custom FILE --topo NAME` has it; default: the network that
    the program starts, else the first of its `topos`, else its only class of topologies. Raises
    WrongInputError if there is none.
    """
    path = Path(path)
    modules = _stand_ins()
    before = {key: value for key, value in sys.modules.items() if key.split(".")[0] == "mininet"}
    argv, folders = sys.argv, list(sys.path)
    for key in before:
        del sys.modules[key]
    sys.modules.update(modules)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    stand_ins.Mininet.started = None
    scope: dict = {"__name__": "mininet_program" if name else "__main__", "__file__": str(path)}
    try:
        exec(compile(path.read_text(), str(path), "exec"), scope)
    except stand_ins.Finished as finished:
        return finished.net.as_topo(), finished.net.left_out
    except SystemExit:
        pass
    except Exception as error:
        if stand_ins.Mininet.started is None:
            raise _wrong(path, error) from error
        # It has gone on with what a stand-in gave it.
        stand_ins.Mininet.started.left_out.append(
            f"the program from here on: {_wrong(path, error)}"
        )
    finally:
        sys.argv, sys.path[:] = argv, folders
        for key in [key for key in sys.modules if key.split(".")[0] == "mininet"]:
            del sys.modules[key]
        sys.modules.update(before)
    if net := stand_ins.Mininet.started:
        return net.as_topo(), net.left_out
    return _of_topos(path, scope, name)


def _of_topos(path: Path, scope: dict, name: str | None) -> tuple[object, list[str]]:
    topos = dict(scope.get("topos", {}))
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
    if not found:
        what = "expected a program that starts a network of Mininet, or has topos"
        raise WrongInputError(f"{path}:1:1: {what}")
    try:
        topo = found[0]()
    except Exception as error:
        raise _wrong(path, error) from error
    net = stand_ins.Mininet(topo=topo)
    return net.as_topo(), net.left_out


def _wrong(path: Path, error: Exception) -> WrongInputError:
    """Returns the error of a program, with the last place of it that led there."""
    own = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    if own:
        # Python before 3.11 knows no column.
        at = (own[-1].lineno, (getattr(own[-1], "colno", None) or 0) + 1)
    else:
        at = (getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1)
    return WrongInputError(f"{path}:{at[0]}:{at[1]}: {type(error).__name__}: {error}")


#: Names in Mininet's modules that have a stand-in. All other names do nothing.
_SWITCHES = ("OVSSwitch", "OVSKernelSwitch", "OVSBridge", "UserSwitch", "IVSSwitch", "LinuxBridge")
_CONTROLLERS = ("OVSController", "DefaultController", "NullController", "RemoteController", "Ryu")
_LINKS = ("Link", "TCLink", "TCULink", "OVSLink")
_MODULES = ("topo", "topolib", "net", "node", "nodelib", "link", "cli", "log", "util", "clean")
_NAMES: dict[str, object] = {
    **{cls.__name__: cls for cls in stand_ins.CLASSES},
    **{cls.__name__: cls for cls in topologies.CLASSES},
    **{name: type(name, (stand_ins.Switch,), {}) for name in _SWITCHES},
    **{name: type(name, (stand_ins.Controller,), {}) for name in _CONTROLLERS},
    # A link's options matter, which `partial` may hold, and not its class.
    **{name: type(name, (), {}) for name in _LINKS},
    "MinimalTopo": topologies.SingleSwitchTopo,
    "TCIntf": stand_ins.Intf,
    "TreeNet": lambda depth=1, fanout=2, **options: stand_ins.Mininet(
        topologies.TreeTopo(depth, fanout), **options
    ),
    "CLI": lambda net, *_, **__: net.finish(),
    "irange": lambda start, end: range(start, end + 1),
    "custom": functools.partial,
    "natural": topologies.natural,
    # Commands of the host: none runs.
    "quietRun": lambda *_, **__: "",
    "errRun": lambda *_, **__: ("", "", 0),
    "errFail": lambda *_, **__: ("", "", 0),
}


def _stand_ins() -> dict[str, types.ModuleType]:
    """Modules that are called as Mininet's."""
    package = types.ModuleType("mininet")
    package.__path__ = []  # type: ignore[attr-defined]
    modules = {"mininet": package}
    for part in (*_MODULES, "term", "moduledeps"):
        module = types.ModuleType(f"mininet.{part}")
        module.__dict__.update(_NAMES, __getattr__=_nothing)
        modules[module.__name__] = module
        setattr(package, part, module)
    return modules


def _nothing(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: None
