"""An NTP server with a true clock, which announces a leap second and inserts it.

    leap_server.py SECOND    the Unix time at whose beginning a second is inserted

The server's own clock has no leap seconds: afterwards it tells one second less. The fields of an
answer are those of RFC 5905, section 7.3.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

#: NTP counts from 1900.
ERA = 2_208_988_800
SERVER, VERSION = 4, 4
ADDS_A_SECOND = 1
#: About a microsecond, as a power of two.
PRECISION = -20


def stamp(now: int, leap: int) -> int:
    """The NTP timestamp of a Unix time in ns, in a day that ends with a leap second."""
    if now >= leap * 10**9:
        now -= 10**9
    return ((now + ERA * 10**9) << 32) // 10**9


def answer(request: bytes, received: int, leap: int) -> bytes:
    indicator = ADDS_A_SECOND if 0 < leap * 10**9 - received <= 86_400 * 10**9 else 0
    flags = indicator << 6 | VERSION << 3 | SERVER
    poll = request[2]
    head = struct.pack("!BBBbII4s", flags, 1, poll, PRECISION, 0, 0, b"TRUE")
    asked = request[40:48]
    now = stamp(received, leap)
    sent = stamp(time.time_ns(), leap)
    return head + struct.pack("!Q", now) + asked + struct.pack("!QQ", now, sent)


def main() -> None:
    leap = int(sys.argv[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("", 123))
        while True:
            request, client = channel.recvfrom(1_024)
            if len(request) >= 48:
                channel.sendto(answer(request, time.time_ns(), leap), client)


if __name__ == "__main__":
    main()
