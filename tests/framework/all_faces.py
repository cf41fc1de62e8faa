"""All tables of faces in one, and which program reads a row."""

from __future__ import annotations

from framework.face_files import PROC, PROC_DEEPER, PROC_NET, PROC_PID, SYS, SYS_OTHERS
from framework.face_netlink import NETLINK
from framework.face_options import IOCTLS, SOCKET_OPTIONS
from framework.faces import CLOCKS, OTHERS, SYSCALLS, Limit, Row

#: Rows of files, by the pattern of their paths.
FILES: dict[str, Row] = {
    **{f"/proc/{name}": row for name, row in {**PROC, **PROC_DEEPER}.items()},
    **{f"/proc/PID/{name}": row for name, row in PROC_PID.items()},
    **{f"/proc/net/{name}": row for name, row in PROC_NET.items()},
    **SYS,
    **SYS_OTHERS,
}
ALL: dict[str, Row] = {
    **FILES,
    **SYSCALLS,
    **CLOCKS,
    **SOCKET_OPTIONS,
    **IOCTLS,
    **NETLINK,
    **OTHERS,
}
#: all_faces.py's name for each face that it reads by another.
READ_AS = {
    "/proc/uptime": "uptime",
    "/proc/stat": "cpu_columns",
    "/proc/sysvipc": "sysvipc_shm",
    "/proc/sysvipc/*": "sysvipc_msg",
    "/proc/timer_list": "timer_list",
    "/proc/keys": "keyctl",
    "/proc/kmsg": "syslog",
    "/proc/PID/stat": "PROC/stat",
    "/proc/PID/schedstat": "schedstat",
    "/proc/PID/sched": "sched",
    "/proc/PID/fdinfo": "fdinfo",
    "/proc/net/tcp": "TCP_KEEPIDLE",
    "/sys/fs/cgroup/*": "cgroup_cpu_stat",
    "/sys/kernel/tracing/*": "tracefs",
    "*/power/runtime_*_time": "runtime_active_time",
    "*/rtc/rtc*/*": "since_epoch",
    "PTP_*": "PTP_SYS_OFFSET",
    "RTC_*": "RTC_RD_TIME",
    "SIOCGSTAMP*": "SIOCGSTAMP",
    "PACKET_TIMESTAMP": "PACKET_MMAP",
    "add_key": "keyctl",
    "getrlimit": "prlimit64",
    "setrlimit": "prlimit64",
    "ioctl": "SIOCGSTAMP",
    "preadv2": "preadv",
    "open": "uptime",
    "openat": "cpu_columns",
    **dict.fromkeys(("RTA_EXPIRES", "RTAX_RTO_MIN"), "RTA_CACHEINFO"),
    **dict.fromkeys(("NDTA_*", "NDTPA_*"), "NDA_CACHEINFO"),
    **dict.fromkeys(("IFLA_INET6_CACHEINFO", "PREFIX_CACHEINFO"), "IFA_CACHEINFO"),
    **dict.fromkeys(("IFLA_BRPORT_*", "BRIDGE_*"), "IFLA_BR_*"),
    **dict.fromkeys(("CTA_*", "NFCTH_*"), "CTA_TIMEOUT"),
    **dict.fromkeys(("NFULA_CFG_TIMEOUT", "NFQA_TIMESTAMP"), "NFULA_TIMESTAMP"),
    "NFTA_*": "NFTA_SET_ELEM_EXPIRATION",
    "XFRMA_*THRESH": "XFRMA_LTIME_VAL",
    "TCP_NLA_TIMEOUT_REHASH": "SCM_TIMESTAMPING_OPT_STATS",
    "TP_STATUS_TS_*": "PACKET_MMAP",
}


def names(kind: object) -> list[str]:
    return [name for name, row in ALL.items() if row == kind or type(row) is kind]


def compared_files() -> list[str]:
    """The rows of files that a test compares with the host's: those that no program reads by
    another name."""
    return [
        name
        for name, row in FILES.items()
        if isinstance(row, Limit) and not row.judge and name not in READ_AS
    ]
