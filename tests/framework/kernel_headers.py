"""The constants of the kernel's headers on this machine that concern time.

A constant concerns time if its name says so, or a field of the structure that it passes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/usr/include")
_FOLDERS = [
    "linux",
    "sound",
    "drm",
    "misc",
    "mtd",
    "rdma",
    "scsi",
    "video",
    "xen",
    "asm-generic",
    "x86_64-linux-gnu/asm",
]
#: Headers with ioctls that are plain numbers.
_PLAIN_IOCTLS = [
    "sockios.h",
    "ioctls.h",
    "cdrom.h",
    "sg.h",
    "hdreg.h",
    "lp.h",
    "wireless.h",
    "if_tunnel.h",
]
#: Headers with the options of a family of sockets.
_OPTIONS = [
    *("asm-generic/socket.h", "linux/tcp.h", "linux/udp.h", "linux/in.h", "linux/in6.h"),
    *("linux/if_packet.h", "linux/sctp.h", "linux/dccp.h", "linux/vm_sockets.h", "linux/rxrpc.h"),
    *("linux/mptcp.h", "linux/netlink.h", "linux/tls.h", "linux/tipc.h", "linux/can/raw.h"),
    *("linux/can/isotp.h", "linux/can/j1939.h", "linux/if_alg.h", "linux/x25.h", "linux/ax25.h"),
    *("linux/netrom.h", "linux/rose.h", "linux/icmp.h", "linux/smc.h", "linux/nfc.h"),
    *("linux/ip_vs.h", "linux/rds.h", "linux/if_xdp.h"),
]
_LONG_WORDS = re.compile(
    r"time|stamp|clock|jiff|alarm|epoch|delay|period|interval|intvl|expir|uptime|latenc|"
    r"linger|keepidle|pacing|busy_poll|delack|defer|suspend",
    re.IGNORECASE,
)
_SHORT_WORDS = re.compile(
    r"(^|_)(age|alm|date|idle|last|now|since|nsecs?|usecs?|msecs?|secs?|ns|us|ms|ts|pts|stc|tsc)(_|\d|$)|"
    r"(^|_)(wakeup|rto)",
    re.IGNORECASE,
)


def speaks_of_time(name: str) -> bool:
    return bool(_LONG_WORDS.search(name) or _SHORT_WORDS.search(name))


@functools.cache
def _texts() -> dict[Path, str]:
    """All headers, without comments, each definition in one line."""
    found = {}
    for path in (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(errors="replace"), flags=re.DOTALL)
        found[path.relative_to(ROOT)] = text.replace("\\\n", " ")
    return found


@functools.cache
def _structures() -> dict[str, str]:
    """The body of each structure and union."""
    found: dict[str, str] = {}
    for text in _texts().values():
        for start in re.finditer(r"\b(?:struct|union)\s+(\w+)\s*\{", text):
            depth, end = 1, start.end()
            while depth and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            found.setdefault(start[1], text[start.end() : end])
    return found


def _fields(structure: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The names of a structure's fields, and of those within them."""
    body = _structures().get(structure, "")
    names = set(re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*;", body))
    inner = set(re.findall(r"\b(?:struct|union)\s+(\w+)\s+\w", body)) - seen - {structure}
    return names.union(*(_fields(name, seen | inner | {structure}) for name in inner))


def _passes_time(arguments: str) -> bool:
    structures = re.findall(r"\b(?:struct|union)\s+(\w+)", arguments)
    return any(
        speaks_of_time(name)
        for structure in structures
        for name in {structure, *_fields(structure)}
    )


def _ioctls() -> Iterator[tuple[str, str]]:
    """The name of each ioctl, and its definition."""
    for path, text in _texts().items():
        yield from re.findall(r"#define\s+(\w+)\s+(?:_IO[RW]*|_IOC|DRM_IO[RW]*)\s*\((.*)", text)
        if path.name in _PLAIN_IOCTLS:
            yield from re.findall(r"#define\s+(\w+)[ \t]+0x([0-9A-Fa-f]{4,5})\b", text)


def ioctls_of_time() -> set[str]:
    """The ioctls that concern time."""
    return {
        name
        for name, definition in _ioctls()
        if not name.startswith("_IO") and (speaks_of_time(name) or _passes_time(definition))
    }


#: Enumerators with such names are attributes of netlink.
_ATTRIBUTE = re.compile(
    r"\w+?_(ATTR|A|NLA)_|\w+_(MDBA|PATTR|EATTR|SRCATTR)_|"
    r"(NDA|NDTA|NDTPA|IFA|IFLA|RTA|RTAX|NHA|MDBA|BRIDGE|CTA|NFTA|NFULA|NFQA|NFCTH|TCA|XFRMA)_"
)


def netlink_attributes_of_time() -> set[str]:
    """The attributes of netlink that concern time."""
    return {
        name
        for text in _texts().values()
        for body in re.findall(r"\benum\s*\w*\s*\{(.*?)\}", text, re.DOTALL)
        for name in re.findall(r"^\s*([A-Z][A-Z0-9_]+)\s*(?:=[^,]*)?,?\s*$", body, re.MULTILINE)
        if _ATTRIBUTE.match(name) and (speaks_of_time(name) or name.endswith(_STRUCTURES_OF_TIME))
    }


#: Attributes whose name ends so pass a structure with times.
_STRUCTURES_OF_TIME = ("CACHEINFO", "_TM", "LTIME_VAL")


def socket_options_of_time() -> set[str]:
    """The options of sockets that concern time."""
    texts = _texts()
    return {
        name
        for header in _OPTIONS
        for name in re.findall(r"#define\s+([A-Z]\w+)\s+\(?\w", texts.get(Path(header), ""))
        if speaks_of_time(name) or name.endswith("_INFO")
    }
