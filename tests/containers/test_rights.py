"""Rights of a program: those that the bundle gives, as under another runtime."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from framework import needs
from framework.containers import Bundle, python_rootfs, wait
from framework.kernel_headers import ROOT

FIELDS = "Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|SigBlk|SigIgn"
SCRIPT = [
    "sh",
    "-c",
    f"grep -E '^({FIELDS}):' /proc/self/status; cat /proc/self/limits; cat /proc/self/uid_map; id;"
    " hostname; env; cat /proc/self/oom_score_adj",
]
SECCOMP = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}],
}
#: System calls that a shell and its commands need.
ALLOWED = """
access arch_prctl brk capget capset chdir clock_gettime clock_nanosleep clone close dup2 execve exit
exit_group faccessat fcntl fork fstat futex getcwd getdents64 getegid geteuid getgid getpgrp getpid
getppid getrandom getuid ioctl lseek lstat madvise mmap mprotect munmap nanosleep newfstatat open
openat pipe poll prctl prlimit64 read readlink rseq rt_sigaction rt_sigprocmask rt_sigreturn
set_robust_list set_tid_address setpgid sigaltstack stat uname vfork wait4 write
"""
SETS = ("bounding", "effective", "permitted", "inheritable", "ambient")


def capabilities(*names: str) -> dict:
    return {name: list(names) for name in SETS}


#: Changes of a bundle's process; a key with "linux." is in the other object.
CASES = {
    "usual": {},
    "no new privileges": {"noNewPrivileges": True},
    "explicitly gaining privileges": {"noNewPrivileges": False},
    "no capabilities": {"capabilities": capabilities()},
    "all five sets": {"capabilities": capabilities("CAP_KILL", "CAP_CHOWN")},
    "the ones that are needed": {"capabilities": capabilities("CAP_SYS_ADMIN", "CAP_SETPCAP")},
    "somebody": {"user": {"uid": 1000, "gid": 1001, "additionalGids": [5, 6]}},
    "somebody with a capability": {
        "user": {"uid": 1000, "gid": 1000},
        "capabilities": capabilities("CAP_NET_BIND_SERVICE"),
    },
    "limits": {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 77, "hard": 99}]},
    "out of memory first": {"oomScoreAdj": 500},
    "sandbox": {"linux.seccomp": SECCOMP},
    "sandbox without privileges": {"linux.seccomp": SECCOMP, "noNewPrivileges": True},
    "sandbox for somebody": {
        "linux.seccomp": SECCOMP,
        "user": {"uid": 1000, "gid": 1000},
        "capabilities": capabilities(),
    },
}


def changed(config: dict, changes: dict) -> dict:
    config = copy.deepcopy(config)
    for key, value in changes.items():
        part, _, name = key.rpartition(".")
        config[part or "process"][name] = value
    return config


@pytest.mark.parametrize("case", CASES)
def test_a_program_has_the_rights_it_has_under_runc(case):
    """User, capabilities, no_new_privs, signals, limits: word for word."""
    runc = Path(needs.tool("runc"))
    with Bundle(SCRIPT, rate="2") as bundle:
        bundle.config = changed(bundle.config, CASES[case])
        bundle.write()
        native = bundle.call("run", bundle.id, program=runc)
        assert native.returncode == 0, native.stderr
        assert sorted(bundle.run().splitlines()) == sorted(native.stdout.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_so_has_one_that_enters_later(case):
    with Bundle(["sleep", "100000"], rate="2") as bundle:
        bundle.config = changed(bundle.config, CASES[case])
        bundle.write()
        bundle.start()
        entered = bundle.exec(*SCRIPT)
    with Bundle(SCRIPT, rate="2") as first:
        first.config = changed(first.config, CASES[case])
        first.write()
        # exec uses the bundle's process; so all is the same but the origin of HOME.
        assert sorted(first.run().splitlines()) == sorted(entered.splitlines())


@pytest.mark.parametrize("privileges", [True, False])
def test_the_bundles_sandbox_holds_beside_ours(privileges):
    script = "mkdir /tmp/x; echo $?; sleep 20; date +%Y"
    with Bundle(["sh", "-c", script], rate="100", at="2038-01-19") as bundle:
        bundle.config["linux"]["seccomp"] = SECCOMP
        bundle.config["process"]["noNewPrivileges"] = privileges
        bundle.write()
        done = bundle.call("run", bundle.id)
        assert done.stdout == "1\n2038\n"
        assert "Input/output error" in done.stderr


def test_a_sandbox_that_allows_little_leaves_time_virtual():
    """Calls not listed fail. The waits of the shim are still allowed."""
    with Bundle(["sh", "-c", "sleep 50; date +%Y"], rate="100", at="2038-01-19") as bundle:
        bundle.config["linux"]["seccomp"] = {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": ALLOWED.split(), "action": "SCMP_ACT_ALLOW"}],
        }
        bundle.write()
        assert bundle.run() == "2038\n"


def test_call_sites_are_rewritten_under_a_sandbox():
    """The shim may ask its monitor what a call site looks like, also where the profile refuses all
    numbers that are no system call's."""
    header = ROOT / "x86_64-linux-gnu" / "asm" / "unistd_64.h"
    calls = re.findall(r"#define __NR_(\w+) \d+", header.read_text())
    text = "import os, time\nwhile True:\n    os.stat('/')\n    time.sleep(0.001)\n"
    with Bundle(["python3", "-c", text], at="2038-01-19") as bundle:
        bundle.config["root"]["path"] = str(python_rootfs())
        bundle.config["linux"]["seccomp"] = {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": calls, "action": "SCMP_ACT_ALLOW"}],
        }
        bundle.write()
        bundle.start()
        wait(lambda: bundle.time()["rewritten"][0]["sites"], "no call site is rewritten")


def test_nothing_of_the_host_is_in_a_programs_maps_but_the_shim_and_its_clock():
    with Bundle(["cat", "/proc/self/maps"], rate="2") as bundle:
        lines = bundle.run().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) > 5}
    ours = {path for path in paths if "lorentz" in path or path.endswith("/clock")}
    rest = paths - ours
    assert all(path.startswith(("[", "/bin/busybox")) for path in rest), paths
    assert len(ours) <= 2, ours


def test_no_descriptor_of_ours_is_left_open():
    with Bundle(["ls", "/proc/self/fd"], rate="2") as bundle:
        assert bundle.run().split() == ["0", "1", "2", "3"]
        bundle.config["process"]["args"] = ["sleep", "100"]
        bundle.write()
        bundle.start()
        assert bundle.exec("ls", "/proc/self/fd").split() == ["0", "1", "2", "3"]


def test_a_user_namespace_is_entered_too():
    """Root inside is another user outside, for the first program and for later ones."""
    with Bundle(["sleep", "100000"], rate="20") as bundle:
        bundle.config["linux"]["namespaces"].append({"type": "user"})
        for ids in ("uidMappings", "gidMappings"):
            bundle.config["linux"][ids] = [{"containerID": 0, "hostID": 100000, "size": 65536}]
        bundle.write()
        bundle.start()
        outside = Path(f"/proc/{bundle.pid()}")
        assert outside.stat().st_uid == 100000
        entered = bundle.exec("sh", "-c", "id -u; cat /proc/self/uid_map; sleep 20; echo over")
        assert entered.split() == ["0", "0", "100000", "65536", "over"]
