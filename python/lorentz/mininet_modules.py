"""The modules of Mininet, as programs of Mininet see them where Mininet is not there."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import types
from collections.abc import Callable
from pathlib import Path

from lorentz import mininet_stand_ins as stand_ins
from lorentz import mininet_topologies as topologies

_SWITCHES = ("OVSSwitch", "OVSKernelSwitch", "OVSBridge", "UserSwitch", "IVSSwitch", "LinuxBridge")
_CONTROLLERS = ("OVSController", "DefaultController", "NullController", "RemoteController", "Ryu")
_LINKS = ("TCLink", "TCULink", "OVSLink")
_MODULES = ("topo", "topolib", "net", "node", "nodelib", "link", "cli", "log", "util", "clean")


class _Anything:
    """A class of Mininet that matters to no network."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class _CLI(_Anything):
    """The command line of a network. The program ends where it opens one."""

    def __init__(self, net: stand_ins.Mininet, *_: object, **__: object) -> None:
        super().__init__()
        net.finish()


def _quiet(command: object = "", *_: object, **__: object) -> str:
    """A command of the host: none runs. The host has each program, and takes each setting."""
    words = str(command).split()
    if len(words) == 2 and words[0] == "which":
        return f"/usr/bin/{words[1]}\n"
    return words[-1] if words and words[0] == "sysctl" else ""


def _finish(*_: object, **__: object) -> tuple:
    """Ends the program: it waits for something in its network."""
    if net := stand_ins.Mininet.started:
        net.finish()
    return ()


#: Names in Mininet's modules that have a stand-in. All other names do nothing.
_NAMES: dict[str, object] = {
    **{cls.__name__: cls for cls in stand_ins.CLASSES},
    **{cls.__name__: cls for cls in topologies.CLASSES},
    **{name: type(name, (stand_ins.Switch,), {}) for name in _SWITCHES},
    **{name: type(name, (stand_ins.Controller,), {}) for name in _CONTROLLERS},
    # A link's options matter, which `partial` may hold, and not its class.
    **{name: type(name, (stand_ins.Link,), {}) for name in _LINKS},
    "MinimalTopo": topologies.SingleSwitchTopo,
    "TCIntf": stand_ins.Intf,
    "TreeNet": lambda depth=1, fanout=2, **options: stand_ins.Mininet(
        topologies.TreeTopo(depth, fanout), **options
    ),
    "CLI": _CLI,
    "lg": _Anything(),
    "VERSION": "2.3.0",
    "irange": lambda start, end: range(start, end + 1),
    "custom": functools.partial,
    "natural": topologies.natural,
    "pmonitor": _finish,
    "waitListening": _finish,
    "quietRun": _quiet,
    "errRun": lambda *_, **__: ("", "", 0),
    "errFail": lambda *_, **__: ("", "", 0),
}


class _Absent(types.ModuleType):
    """A module that is not installed."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        return _nothing(name)


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that are not installed, by the first part of their names."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Its names do nothing."""


def stand_ins_of_modules(folder: Path) -> dict[str, types.ModuleType]:
    """Returns modules that are called as Mininet's. Its `examples` are the programs in `folder`."""
    package = types.ModuleType("mininet")
    package.__path__ = []  # type: ignore[attr-defined]
    modules = {"mininet": package}
    for part in (*_MODULES, "term", "moduledeps"):
        module = types.ModuleType(f"mininet.{part}")
        module.__dict__.update(_NAMES, __getattr__=_nothing)
        modules[module.__name__] = module
        setattr(package, part, module)
    examples = types.ModuleType("mininet.examples")
    examples.__path__ = [str(folder)]  # type: ignore[attr-defined]
    return {**modules, "mininet.examples": examples}


def _nothing(name: str) -> object:
    """Returns a class for the name of a class, and a function for others."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (_Anything,), {}) if name[0].isupper() else lambda *_, **__: None
