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
    *("apache2-bin", "bird2", "curl", "frr", "iproute2", "iptables", "iputils-ping"),
    *("isc-dhcp-client", "isc-dhcp-server", "openssh-client", "openssh-server", "procps"),
    *("python3-minimal", "radvd", "tcpdump", "ucarp", "vsftpd"),
)


def root() -> Path:
    """Returns the root file system, which debootstrap makes the first time."""
    needs.root()
    done = TREE / ".made"
    if not done.exists() or done.read_text() != str(PACKAGES):
        shutil.rmtree(TREE, ignore_errors=True)
        TREE.parent.mkdir(parents=True, exist_ok=True)
        options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
        command = [needs.tool("debootstrap"), *options, "bookworm", str(TREE)]
        made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if made.returncode != 0:
            shutil.rmtree(TREE, ignore_errors=True)
            needs.missing(f"debootstrap: {made.stdout.splitlines()[-1:]}")
        done.write_text(str(PACKAGES))
    return TREE
