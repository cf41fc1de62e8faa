"""The machine on which the figures were measured."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from levels import LORENTZ, ROOT


def _first_line(*command: str) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip().splitlines()[0] if run.returncode == 0 and run.stdout.strip() else ""


def _package(name: str) -> str:
    return _first_line("dpkg-query", "-W", "-f=${Version}", name) or "not installed"


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    guest = re.search(r"^flags\s*:.*\bhypervisor\b", text, re.M)
    words = model[1].strip() if model else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{words}, {cores} processors" + (", a virtual machine" if guest else "")


def _mitigations() -> str:
    found = []
    for file in sorted(Path("/sys/devices/system/cpu/vulnerabilities").glob("*")):
        state = file.read_text().strip()
        if not state.startswith("Not affected"):
            found.append(f"{file.name}: {state}")
    return "; ".join(found) or "none needed"


def _distribution() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', Path("/etc/os-release").read_text(), re.M)
    return match[1] if match else "unknown"


def describe(tsc_hertz: float) -> dict[str, str]:
    """Describes the machine, as lines for the report."""
    clocksource = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    glibc = _first_line("getconf", "GNU_LIBC_VERSION")
    commit = _first_line("git", "describe", "--always", "--dirty")
    version = _first_line(LORENTZ, "--version") or "lorentz not built"
    return {
        "Date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "Kernel": f"Linux {platform.release()}",
        "Processor": _processor(),
        "Clock source": f"{clocksource.read_text().strip()}, {tsc_hertz / 1e9:.3f} GHz",
        "Mitigations": _mitigations(),
        "System": f"{_distribution()}, {glibc}",
        "Measured": f"{version}" + (f", commit {commit}" if commit else ""),
        "Beside it": f"faketime {_package('faketime')}, redis-server {_package('redis-server')}, "
        + (_first_line("go", "version") or "no Go"),
        "Load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
