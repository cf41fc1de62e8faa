"""Makes what files of the kernel tell times of, in a network and a mount namespace of its own.

    apart.py FOLDER     puts an image of a file system into this folder, and mounts it there

Prints a JSON line `ready` with the errors of what cannot be made here, and stays until its
standard input is closed. Nothing of it is left then.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

KEPT: list[object] = []
#: Time limit of one command, s.
TIMEOUT = 20


def shell(script: str, folder: str = "/") -> None:
    subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def bridge() -> None:
    """A bridge whose port waits 300 s before it forwards, and settings of its interface."""
    shell("""
        mount -t sysfs none /sys
        ip link set lo up
        ip link add br0 type bridge forward_delay 3000 max_age 4000 stp_state 1
        ip link add d0 type veth peer name d1
        ip link set d0 master br0
        ip link set d0 up
        ip link set d1 up
        ip link set br0 up
        ip address add 192.0.2.1/24 dev d1
    """)
    settings = {"gro_flush_timeout": "20000000", "napi_defer_hard_irqs": "3"}
    for name, value in settings.items():
        (Path("/sys/class/net/d0") / name).write_text(value)


def multicast() -> None:
    """A member of a group that tells so at a random time within 10,000 s, from 1 s on."""
    conf = Path("/proc/sys/net/ipv4/conf/d1")
    (conf / "force_igmp_version").write_text("2")
    (conf / "igmpv2_unsolicited_report_interval").write_text("10000000")
    member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    group = socket.inet_aton("239.1.2.3") + socket.inet_aton("192.0.2.1")
    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    KEPT.append(member)
    conf = Path("/proc/sys/net/ipv6/conf/d1")
    (conf / "force_mld_version").write_text("1")
    (conf / "mldv1_unsolicited_report_interval").write_text("10000000")
    member = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    group = socket.inet_pton(socket.AF_INET6, "ff15::1234")
    number = socket.if_nametoindex("d1").to_bytes(4, "little")
    member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + number)
    KEPT.append(member)


def matches() -> None:
    """Entries of the matches hashlimit and recent."""
    limit = "hashlimit --hashlimit-above 1/hour --hashlimit-mode dstip"
    for command in ("iptables", "ip6tables"):
        shell(f"""
            {command} -A OUTPUT -o lo -p udp -m {limit} --hashlimit-name lorentz \
                --hashlimit-htable-expire 10000000 -j DROP
        """)
    shell("iptables -I OUTPUT -o lo -p udp -m recent --name lorentz --set")
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", (address, 9))


def connections() -> None:
    """A tracked connection of FTP, which announces another one; one of TCP over IPv6."""
    shell("""
        nft add table ip lorentz
        nft add ct helper ip lorentz ftp '{ type "ftp" protocol tcp; }'
        nft add chain ip lorentz out '{ type filter hook output priority 0; }'
        nft add rule ip lorentz out tcp dport 21 ct helper set '"ftp"'
    """)
    server = socket.create_server(("127.0.0.1", 21))
    client = socket.create_connection(server.getsockname())
    peer = server.accept()[0]
    for line in (b"USER x\r\n", b"PORT 127,0,0,1,10,10\r\n"):
        client.sendall(line)
        peer.recv(100)
    KEPT.extend((server, client, peer))
    server = socket.create_server(("::1", 22), family=socket.AF_INET6)
    client = socket.create_connection(server.getsockname()[:2])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10_000)
    KEPT.extend((server, client))


def flow_label() -> None:
    """A flow label of IPv6 that is to be kept for 10,000 s."""
    request = socket.inet_pton(socket.AF_INET6, "::1") + (0x12345).to_bytes(4, "big")
    # struct in6_flowlabel_req: action get, share any, flags create, expires, linger.
    request += bytes([0, 255]) + (1).to_bytes(2, "little")
    request += (10_000).to_bytes(2, "little") * 2 + bytes(4)
    owner = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    owner.setsockopt(socket.IPPROTO_IPV6, 32, request)
    KEPT.append(owner)


def file_system() -> None:
    """A file system of ext4 with a journal, fast commits, and an error."""
    shell(
        """
        truncate -s 32M image
        mkfs.ext4 -q -O fast_commit image
        mkdir -p mounted
        mount -o loop,errors=continue image mounted
        """,
        sys.argv[1],
    )
    place = Path(sys.argv[1]) / "mounted"
    device = f"{os.major(place.stat().st_dev)}:{os.minor(place.stat().st_dev)}"
    kernel = Path("/sys/fs/ext4") / Path(f"/sys/dev/block/{device}").resolve().name
    (kernel / "mb_stats").write_text("1")
    fd = os.open(place / "file", os.O_CREAT | os.O_WRONLY)
    for _ in range(20):
        os.write(fd, bytes(4096))
        os.fsync(fd)
    os.sync()
    (kernel / "trigger_fs_error").write_text("a test of the time of errors")


def awaited() -> None:
    """Waits until the timers of the groups run: 10 s at most."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if " 1:000" in Path("/proc/net/igmp").read_text():
            return
        time.sleep(0.1)


def main() -> None:
    errors = {}
    makers: list[Callable[[], None]] = [
        *(bridge, multicast, matches, connections, flow_label, file_system, awaited)
    ]
    for make in makers:
        try:
            make()
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being made
            errors[make.__name__] = str(getattr(error, "stderr", None) or error)
    print(json.dumps({"ev": "ready", "errors": errors}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
