"""Bundles that cannot be run: one line on standard error and in the log, status 1, nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from framework import lorentz
from framework.containers import Bundle


def refused(bundle: Bundle, *names: str) -> str:
    """Returns the refusal of `create`: the same on standard error and in the log for the engine."""
    log = bundle.folder / "log.json"
    log.unlink(missing_ok=True)
    line = bundle.refused("--log", str(log), "--log-format", "json", "create", bundle.id)
    entry = json.loads(log.read_text())
    assert (entry["level"], entry["msg"]) == ("error", line)
    assert all(name in line for name in names), line
    state = lorentz.session.state_dir()
    assert not list(state.rglob(f"*{bundle.id}*"))
    assert bundle.id not in Path("/proc/mounts").read_text()
    assert not lorentz.shown(bundle.id)
    return line


@pytest.mark.parametrize(
    "text, name",
    [
        (None, "No such file"),
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "object"),
        ("{}", "ociVersion"),
        ('{"ociVersion": "1.0.2"}', "process"),
        ('{"ociVersion": 1}', "ociVersion"),
    ],
)
def test_a_config_that_is_none(text, name):
    with Bundle(["true"]) as bundle:
        path = bundle.folder / "config.json"
        path.unlink()
        if text is not None:
            path.write_text(text)
        refused(bundle, "config.json", name)


@pytest.mark.parametrize(
    "annotations, env, names",
    [
        ({"rate": "fast"}, [], ["lorentz.rate=fast", "expected a rate"]),
        ({"rate": "0"}, [], ["lorentz.rate=0", "above 0"]),
        ({"tdf": "x"}, [], ["lorentz.tdf=x"]),
        ({"at": "tomorow"}, [], ["lorentz.at=tomorow"]),
        ({"offset": "1parsec"}, [], ["lorentz.offset=1parsec", "unit"]),
        ({"frozen": "maybe"}, [], ["lorentz.frozen=maybe", "true or false"]),
        ({"skip-idle": "maybe"}, [], ["lorentz.skip-idle=maybe"]),
        ({"rte": "2"}, [], ["lorentz.rte", "not known", "lorentz.rate"]),
        ({"rate": "2", "tdf": "2"}, [], ["lorentz.rate and lorentz.tdf exclude"]),
        ({"rate": "2"}, ["LORENTZ_RATE=2"], ["lorentz.rate and LORENTZ_RATE", "more than once"]),
        ({}, ["LORENTZ_RATE=2", "LORENTZ_RATE=3"], ["LORENTZ_RATE", "more than once"]),
        ({}, ["LORENTZ_RATE=2", "LORENTZ_TDF=3"], ["LORENTZ_RATE and LORENTZ_TDF exclude"]),
        ({"at": "@1", "offset": "1s"}, [], ["lorentz.at and lorentz.offset exclude"]),
        ({"monotonic": "-100y"}, [], ["lorentz.monotonic", "negative"]),
        ({"clock": "no-such"}, [], ["lorentz.clock", "no-such", "no such container"]),
        ({"clock": "x", "rate": "2"}, [], ["lorentz.clock", "lorentz.rate"]),
        ({"name": "a/b"}, [], ["a/b"]),
    ],
)
def test_a_clock_that_cannot_be(annotations, env, names):
    with Bundle(["true"], env=env, **annotations) as bundle:
        refused(bundle, *names)


def test_a_root_or_a_program_that_is_not_there():
    with Bundle(["/no/such/program"]) as bundle:
        refused(bundle, "/no/such/program", "no such file")
        bundle.config["process"]["args"] = ["nosuch"]
        bundle.write()
        refused(bundle, "nosuch", "executable file not found in $PATH")
        bundle.config["process"]["args"] = []
        bundle.write()
        refused(bundle, "process.args")
        bundle.config["process"]["args"] = ["true"]
        bundle.config["root"]["path"] = "nowhere"
        bundle.write()
        refused(bundle, "No such file")


def test_a_profile_or_capability_that_is_none():
    with Bundle(["true"]) as bundle:
        bundle.config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_MAYBE"}
        bundle.write()
        refused(bundle, "linux.seccomp", "SCMP_ACT_MAYBE")
        del bundle.config["linux"]["seccomp"]
        bundle.config["process"]["capabilities"]["bounding"] = ["CAP_FLY"]
        bundle.write()
        refused(bundle, "CAP_FLY")


def test_ids_and_names_that_are_in_use_or_none():
    with Bundle(["sleep", "1000"], name="taken") as bundle:
        bundle.start()
        assert "already exists" in bundle.refused("create", bundle.id)
        assert "taken" in bundle.refused("create", f"{bundle.id}-2")
        for wrong in ("a/b", "..", ".x", "ä"):
            assert "container id" in bundle.refused("create", wrong)
        assert bundle.status() == "running"


def test_an_offset_that_makes_a_clock_negative():
    with Bundle(["true"]) as bundle:
        bundle.config["linux"]["namespaces"].append({"type": "time"})
        bundle.config["linux"]["timeOffsets"] = {"monotonic": {"secs": -(10**9)}}
        bundle.write()
        refused(bundle, "negative")


def test_a_log_format_that_is_none():
    with Bundle(["true"]) as bundle:
        assert "--log-format xml" in bundle.refused("--log-format", "xml", "list")
