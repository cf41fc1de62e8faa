"""Tries, as root in a private node, every way to the host.

Prints as JSON, for each thing tried, the error, or "done". Nothing here would do harm if it got
through: settings are opened and not written to, and a clock would be set to what it shows."""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import socket
import struct
import sys
import time
from pathlib import Path

MS_REMOUNT, MS_BIND = 32, 4096
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
PTRACE_SEIZE = 0x4206
S_IFCHR, S_IFBLK = 0o020000, 0o060000

host = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
tried = {}


def attempt(name, act, *arguments):
    try:
        act(*arguments)
        tried[name] = "done"
    except OSError as error:
        tried[name] = errno.errorcode.get(error.errno, str(error))


def checked(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def call(name, number, *arguments):
    attempt(name, checked, libc.syscall, number, *arguments)


def opened(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags))


def device(name, kind, numbers, flags):
    """Makes the device in each of the node's file systems, and opens it."""

    def make(path):
        os.mknod(path, kind | 0o600, os.makedev(*numbers))
        opened(path, flags)

    for folder in ("/var/tmp", "/dev", "/tmp", "/dev/shm"):
        attempt(f"device {name} in {folder}", make, f"{folder}/{name}")


def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(5)
        one.connect(path)


def vsock():
    socket.socket(socket.AF_VSOCK).close()


def enter(kind):
    with Path(f"/proc/1/ns/{kind}").open() as namespace:
        checked(libc.setns, namespace.fileno(), 0)


# Files: whatever may be written is the node's own. The test looks at the host's afterwards.
for path in host["written"]:
    attempt(f"write {path}", Path(path).write_text, "harm\n")
for path in host["removed"]:
    attempt(f"remove {path}", shutil.rmtree, path)

# Services.
for path in host["sockets"]:
    attempt(f"connect {path!r}", connect, path)
attempt("systemd", connect, "/run/systemd/private")
attempt("dbus", connect, "/run/dbus/system_bus_socket")
attempt("hypervisor", vsock)
attempt("fifo", opened, host["fifo"], os.O_WRONLY | os.O_NONBLOCK)

# Mounts and namespaces.
attempt("mount", checked, libc.mount, b"none", b"/mnt", b"tmpfs", 0, None)
settings = b"/proc/sys/kernel"
attempt("remount", checked, libc.mount, None, settings, None, MS_REMOUNT | MS_BIND, None)
attempt("umount", checked, libc.umount2, settings, 0)
attempt("cgroup", checked, libc.mount, b"none", b"/mnt", b"cgroup", 0, b"memory")
attempt("cgroup2", checked, libc.mount, b"none", b"/mnt", b"cgroup2", 0, None)
attempt("release_agent", opened, "/sys/fs/cgroup/memory/release_agent")
call("pivot_root", 155, b"/", b"/mnt")
attempt("user namespace", checked, libc.unshare, CLONE_NEWUSER)
attempt("mount namespace", checked, libc.unshare, CLONE_NEWNS)
call("clone3", 435, 0, 0)

# Settings outside net.: each is opened, and not written to.
paths = [
    path
    for folder in Path("/proc/sys").iterdir()
    if folder.name != "net"
    for path in folder.rglob("*")
    if path.is_file()
]
machine = ("/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/power/state")
for path in [*paths, *machine, "/proc/irq/default_smp_affinity", "/sys/kernel/mm/ksm/run"]:
    attempt(f"setting {path}", opened, path)
# Those of the network are the node's own: the test looks at the host's afterwards.
for path in Path("/proc/sys/net").rglob("*"):
    with contextlib.suppress(OSError, ValueError):
        path.write_text(str(int(path.read_text()) + 1))

# Processes of the host and of other nodes: none has a number here.
for pid in host["pids"]:
    attempt(f"signal {pid}", os.kill, pid, 0)
    call(f"ptrace {pid}", 101, PTRACE_SEIZE, pid, 0, 0)
for kind in ("mnt", "net", "pid", "uts", "ipc", "cgroup"):
    attempt(f"setns {kind}", enter, kind)
for name in ("root", "exe", "cwd", "mem", "environ"):
    attempt(f"/proc/1/{name}", opened, f"/proc/1/{name}", os.O_RDONLY)

# The machine.
now = struct.pack("qq", int(time.time()), 0)
call("clock_settime", 227, 0, now)
call("settimeofday", 164, now, 0)
call("adjtimex", 159, struct.pack("I", 0x0002) + bytes(300))
attempt("hostname", checked, libc.sethostname, b"harm", 4)
call("bpf map", 321, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128)
call("perf", 298, bytes(128), 0, -1, -1, 0)
call("keyctl", 250, 0, -3, 0)
call("add_key", 248, b"user", b"harm", b"x", 1, -3)
call("syslog", 103, 10, 0, 0)
call("kexec", 246, 0, 0, 0, 0)
call("init_module", 175, 0, 0, b"")
call("swapon", 167, b"/var/tmp/none", 0)
call("iopl", 172, 3)
call("open_by_handle_at", 304, -100, struct.pack("II", 8, 1) + bytes(8), 0)
call("acct", 163, 0)
call("userfaultfd", 323, 0)
device("disk", S_IFBLK, host["disk"], os.O_RDONLY)
device("mem", S_IFCHR, (1, 1), os.O_RDONLY)
device("kmsg", S_IFCHR, (1, 11), os.O_WRONLY)
attempt("/dev/kmsg", opened, "/dev/kmsg")
attempt("/dev/mem", opened, "/dev/mem", os.O_RDONLY)

status = Path("/proc/self/status").read_text().splitlines()
links = [path for path in Path("/proc/self/fd").iterdir() if path.exists()]
disks = ("vd", "sd", "nvme", "loop")
facts = {
    "processes": sum(path.name.isdigit() for path in Path("/proc").iterdir()),
    "descriptors": [str(path.readlink()) for path in links],
    "descriptors of the first": [path.name for path in Path("/proc/1/fd").iterdir()],
    "disks": [path.name for path in Path("/dev").iterdir() if path.name.startswith(disks)],
    "capabilities": next(line.split()[1] for line in status if line.startswith("CapBnd")),
}
print(json.dumps({"tried": tried, "facts": facts}))
