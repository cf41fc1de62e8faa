#!/usr/bin/env python3
"""Stamps of the ICMP echoes on a device, by a packet socket.

    outer_stamps.py DEVICE

It says "ready". At the end of its input it prints the kernel's stamps as JSON: for each echo, by
the number that the payload begins with, when its request and its reply were on the device, ns.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

ETH_P_ALL = 3
ETH_P_IP = 0x0800
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
#: Room for all packets of a run: nobody reads while they pass.
ROOM = 64 << 20
#: Bytes of the headers of IP and ICMP.
IP, ICMP = 20, 8
REQUEST, REPLY = 8, 0


def stamps(device: socket.socket) -> dict[int, list[int]]:
    """Returns number -> [stamp of the request, stamp of the reply] of all that has passed."""
    found: dict[int, list[int]] = {}
    end = time.time_ns()
    device.setblocking(False)
    while True:
        try:
            packet, extra, _, address = device.recvmsg(2048, 128)
        except BlockingIOError:
            return found
        seconds, nanos = struct.unpack("qq", extra[0][2])
        stamp = seconds * 10**9 + nanos
        if stamp > end:
            # Others send more than is read.
            return found
        if address[1] != ETH_P_IP or packet[9] != socket.IPPROTO_ICMP:
            continue
        kind = packet[IP]
        if kind not in (REQUEST, REPLY) or len(packet) < IP + ICMP + 4:
            continue
        (number,) = struct.unpack_from(">I", packet, IP + ICMP)
        found.setdefault(number, [0, 0])[kind == REPLY] = stamp


def main() -> int:
    """Reads at the end of the input."""
    device = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    device.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    device.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    device.bind((sys.argv[1], ETH_P_ALL))
    print("ready", flush=True)
    sys.stdin.read()
    json.dump(stamps(device), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
