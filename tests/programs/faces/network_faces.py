"""Faces of the kernel's network that show the host's time: netlink, and messages of sockets."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone

from limit_faces import kept_alive, lines_of
from looks import call, face

MASTER = """ip link add b0 type bridge mcast_snooping 1 && ip link add d0 type veth peer name d1 &&
    ip link set d0 master b0 && ip link set d0 up && ip link set d1 up && ip link set b0 up"""


def told(name: str, sign: int, script: str, pattern: str) -> None:
    """A number of seconds that a tool prints in a network namespace. Its sign is -1 if it counts
    down."""

    @face(name, "span")
    def looks() -> Iterator[float]:
        for line in lines_of(script):
            found = re.search(pattern, line)
            assert found, f"the tool prints {line!r}"
            yield sign * float(found[1])


told(
    "NFTA_SET_ELEM_EXPIRATION",
    -1,
    """nft add table ip t && nft 'add set ip t s { type ipv4_addr; timeout 9000s; }' &&
    nft add element ip t s '{ 192.0.2.1 }' || exit
    while read _; do nft -j list set ip t s; done""",
    r'"expires": (\d+)',
)
told(
    "IFLA_BR_*",
    -1,
    # The timer is set for the first time a tenth of a real second later.
    MASTER + " && sleep 10 || exit; while read _; do ip -oneline -details link show b0; done",
    r"gc_timer\s+([\d.]+)",
)
told(
    "MDBA_*",
    -1,
    MASTER
    + """ && bridge mdb add dev b0 port d0 grp 239.1.2.3 temp || exit
    while read _; do bridge -statistics mdb show dev b0 | grep 239.1.2.3; done""",
    r"temp.*?\s([\d.]+)\s*$",
)
told(
    "TCA_*",
    1,
    """ip link add d0 type veth peer name d1 && tc qdisc add dev d0 ingress &&
    tc filter add dev d0 ingress protocol ip u32 match u32 0 0 \
        action mirred egress redirect dev d1 && sleep 20 || exit
    while read _; do tc -s filter show dev d0 ingress | grep installed; done""",
    r"installed (\d+) sec",
)


def dates(script: str, pattern: str) -> Iterator[float]:
    """The dates, s since 1970, that a script's lines show where `pattern` has its group."""
    for line in lines_of(script):
        found = datetime.fromisoformat(re.search(pattern, line)[1])
        yield found.replace(tzinfo=timezone.utc).timestamp()


@face("XFRMA_LTIME_VAL", "date")
def policy() -> Iterator[float]:
    """The making of a policy of IPsec, in the local time zone."""
    script = """
        while read _; do
            ip xfrm policy add dir out tmpl proto esp &&
            ip -statistics -oneline xfrm policy; ip xfrm policy flush
        done
    """
    yield from dates(script, r"add (\d+-\d+-\d+ \d+:\d+:\d+)")


@face("firewall_time", "date")
def matched() -> Iterator[float]:
    """The time of day of a packet as a rule of nftables notes it, in the local time zone."""
    script = """
        ip link set lo up && nft add table ip t &&
        nft 'add set ip t s { typeof meta time; size 8; flags dynamic; }' &&
        nft 'add chain ip t out { type filter hook output priority 0; }' &&
        nft 'add rule ip t out update @s { meta time }' || exit
        while read _; do
            nft flush set ip t s
            python3 -c 'import socket; socket.socket(2, 2).sendto(b"x", ("127.0.0.1", 9))'
            nft -j list set ip t s
        done
    """
    yield from dates(script, r'"elem": \["([^"]+)"')


@face("INET_DIAG", "span")
def diagnosed() -> Iterator[float]:
    """The timer of a connection."""
    client, _server = kept_alive(59)
    command = ["ss", "-Htno", "sport", f"= :{client.getsockname()[1]}"]
    for _ in range(2):
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        yield -int(re.search(r"keepalive,(\d+)sec", line.stdout)[1])


# ------------------------------------------------------------------------ netlink by hand

NETLINK_NETFILTER, NETLINK_CONNECTOR = 12, 11
DUMP, REQUEST = 0x300, 1


def own_network() -> int:
    """Has this thread enter a new network namespace. Returns the former one."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    call("unshare", 0x40000000)
    return before


def enter(namespace: int) -> None:
    call("setns", namespace, 0x40000000)
    os.close(namespace)


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("HH", data)
        found[kind & 0x3FFF] = data[4:size]
        data = data[(size + 3) & ~3 :]
    return found


@face("CTA_TIMEOUT", "span")
def tracked() -> Iterator[float]:
    """The time for which conntrack keeps an entry that a program made, s."""
    new, get, cta_timeout = 0x100, 0x101, 7
    namespace = own_network()
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    finally:
        enter(namespace)

    def nested(kind: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return struct.pack("HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)

    def of_tuple(kind: int, source: bytes, target: bytes) -> bytes:
        addresses = nested(0x8001, nested(1, source), nested(2, target))
        ports = nested(2, b"\0\7"), nested(3, b"\0\7")
        return nested(kind | 0x8000, addresses, nested(0x8002, nested(1, b"\x11"), *ports))

    def send(kind: int, flags: int, body: bytes) -> None:
        body = struct.pack("BBH", socket.AF_INET, 0, 0) + body
        netlink.send(struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body)

    there, back = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
    timeout = nested(cta_timeout, (10_000).to_bytes(4, "big"))
    body = of_tuple(1, there, back) + of_tuple(2, back, there) + timeout
    # NLM_F_CREATE, and an answer in any case.
    send(new, REQUEST | 0x400 | 4, body + nested(3, bytes([0, 0, 0, 8])))
    answer = netlink.recv(4096)
    assert struct.unpack_from("16xi", answer)[0] == 0, f"no entry: {answer!r}"
    for _ in range(2):
        send(get, REQUEST | DUMP, b"")
        message = netlink.recv(1 << 16)
        size = struct.unpack_from("I", message)[0]
        yield -int.from_bytes(attributes(message[20:size])[cta_timeout], "big")
        while struct.unpack_from("4xH", message)[0] != 3:
            message = netlink.recv(1 << 16)


@face("NFULA_TIMESTAMP", "date")
def logged() -> Iterator[float]:
    """The stamp of a packet that the firewall passes on by netlink."""
    config, packet, group = 0x401, 0x400, b"\0\5"
    namespace = own_network()
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        rule = "iptables -A INPUT -p udp -j NFLOG --nflog-group 5 --nflog-threshold 1"
        for command in ("ip link set lo up", rule):
            subprocess.run(command.split(), check=True, capture_output=True, timeout=600)
    finally:
        enter(namespace)
    netlink.settimeout(600)
    # NFULNL_CFG_CMD_BIND, and NFULNL_COPY_PACKET of 64 bytes.
    for attribute in (struct.pack("HHB3x", 5, 1, 1), struct.pack("HH4sBx2x", 10, 2, b"\0\0\0@", 2)):
        body = struct.pack("BB2s", 0, 0, group) + attribute
        netlink.send(struct.pack("IHHII", 16 + len(body), config, REQUEST | 4, 1, 0) + body)
        answer = struct.unpack_from("16xi", netlink.recv(4096))[0]
        assert answer == 0, os.strerror(-answer)
    for _ in range(2):
        sender.sendto(b"x", ("127.0.0.1", 9))
        message = netlink.recv(1 << 16)
        assert struct.unpack_from("4xH", message)[0] == packet
        yield int.from_bytes(attributes(message[20:])[3][:8], "big")


@face("PROC_EVENT_*", "span")
def event_of_process() -> Iterator[float]:
    """The stamp of an event of the connector: a process begins."""
    for _ in range(2):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR) as netlink:
            netlink.bind((0, 1))
            listen = struct.pack("IIIIHHI", 1, 1, 0, 0, 4, 0, 1)
            netlink.send(struct.pack("IHHII", 16 + len(listen), 3, 0, 0, 0) + listen)
            yield stamp_of_a_fork(netlink)


def stamp_of_a_fork(netlink: socket.socket) -> float:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    netlink.setblocking(False)
    while True:
        # struct proc_event behind the two headers: what, cpu, stamp; of a fork: the parent's
        # thread and process, and the child's.
        message = netlink.recv(4096)
        if len(message) >= 68:
            what, _, stamp, _, _, begun, _ = struct.unpack_from("<36xIIQ4I", message)
            if what == 1 and begun == child:
                return stamp / 1e9


# ------------------------------------------------------------------------ of sockets


def mptcp() -> Iterator[float]:
    """mptcpi_last_data_sent, ms ago."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    server.bind(("127.0.0.1", 0))
    server.listen()
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    client.connect(server.getsockname())
    peer = server.accept()[0]
    client.send(b"x")
    peer.recv(1)
    for _ in range(2):
        info = client.getsockopt(284, 1, 256)
        assert len(info) >= 96, "this kernel tells no times there"
        yield struct.unpack_from("I", info, LAST_DATA_SENT)[0] / 1e3


#: Its place in struct mptcp_info.
LAST_DATA_SENT = 84
face("MPTCP_INFO", "span")(mptcp)


def connection() -> tuple[socket.socket, socket.socket]:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    return client, server.accept()[0]


@face("TCP_TIMESTAMP", "span")
def tcp_clock() -> Iterator[float]:
    """The clock of TCP's time stamps, ms."""
    client, _peer = connection()
    for _ in range(2):
        yield client.getsockopt(socket.IPPROTO_TCP, 24) % (1 << 32) / 1e3


SO_TIMESTAMPING, SCM_OPT_STATS, EARLIEST_DEPARTURE = 37, 54, 25
TX_SOFTWARE, SOFTWARE, OPT_TSONLY, OPT_STATS = 1 << 1, 1 << 4, 1 << 11, 1 << 12


@face("SCM_TIMESTAMPING_OPT_STATS", "span")
def departure() -> Iterator[float]:
    """TCP_NLA_EDT of a byte that was just sent, ns."""
    client, peer = connection()
    flags = TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_STATS
    client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    client.setsockopt(socket.SOL_SOCKET, 47, 1_000_000)
    for _ in range(2):
        client.send(b"x")
        peer.recv(1)
        yield sent_stamp(client)


def sent_stamp(sender: socket.socket) -> float:
    for _ in range(1000):
        try:
            _, ancillary, _, _ = sender.recvmsg(4096, 4096, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        for _, kind, data in ancillary:
            if kind == SCM_OPT_STATS:
                return struct.unpack("Q", attributes(data)[EARLIEST_DEPARTURE])[0] / 1e9
    raise TimeoutError("no stamp came")


@face("PACKET_TX_TIMESTAMP", "date")
def sent_frame() -> Iterator[float]:
    """The stamp of a frame that a packet socket sent."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind(("lo", 0))
    sender.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE | SOFTWARE)
    for _ in range(2):
        sender.send(bytes(60))
        for _ in range(1000):
            try:
                _, ancillary, _, _ = sender.recvmsg(4096, 4096, socket.MSG_ERRQUEUE)
                break
            except BlockingIOError:
                time.sleep(0.01)
        found = {(level, kind): data for level, kind, data in ancillary}
        assert (263, 16) in found, "no PACKET_TX_TIMESTAMP"
        yield struct.unpack_from("q", found[socket.SOL_SOCKET, SO_TIMESTAMPING])[0]
