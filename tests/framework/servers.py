"""A Debian root file system with routing daemons and servers, for nodes. On the machine itself
Debian would start them as they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from . import needs
from .build import REPO

#: Built once, as the test programs are.
TREE = REPO / "build" / "tests" / "servers"
#: Time limit of its making, s.
LIMIT = 900
PACKAGES = (
    *("apache2", "at", "bind9", "bind9-host", "bird2", "curl", "frr", "init-system-helpers"),
    *("iproute2", "iptables", "iputils-ping", "isc-dhcp-client", "isc-dhcp-server"),
    *("openssh-client", "openssh-server", "procps", "python3-minimal", "radvd", "systemctl"),
    *("sysvinit-utils", "tcpdump", "ucarp", "vsftpd"),
)
#: Debian asks it before it starts a service: 101 is no.
POLICY = "#!/bin/sh\nexit 101\n"


def root() -> Path:
    """Returns the root file system, which debootstrap makes the first time."""
    needs.root()
    done = TREE / ".made"
    if not done.exists() or done.read_text() != str(PACKAGES):
        shutil.rmtree(TREE, ignore_errors=True)
        TREE.parent.mkdir(parents=True, exist_ok=True)
        options = ("--foreign", "--variant=minbase", f"--include={','.join(PACKAGES)}")
        run([needs.tool("debootstrap"), *options, "bookworm", str(TREE)])
        # The packages are set up below this machine's own init.
        policy = TREE / "usr/sbin/policy-rc.d"
        policy.write_text(POLICY)
        policy.chmod(0o755)
        run(["chroot", str(TREE), "/debootstrap/debootstrap", "--second-stage"])
        policy.unlink(missing_ok=True)
        done.write_text(str(PACKAGES))
    return TREE


def run(command: list[str]) -> None:
    """Runs a step of the making. Where it fails, nothing of the root file system stays."""
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if made.returncode != 0:
        shutil.rmtree(TREE, ignore_errors=True)
        needs.missing(f"debootstrap: {made.stdout.splitlines()[-1:]}")
