import socket
import threading

import ntplib

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))


def answer() -> None:
    """A server's answer: the client's own time as the time of receipt and of sending."""
    packet, client = server.recvfrom(48)
    now = packet[40:48]
    server.sendto(b"\x24\x01\x00\xe9" + bytes(12) + now + now + now + now, client)


threading.Thread(target=answer, daemon=True).start()
try:
    stats = ntplib.NTPClient().request("127.0.0.1", port=server.getsockname()[1], timeout=2)
    print("the server answered, offset", round(stats.offset, 3))
except ntplib.NTPException as error:
    print("NTPException:", error)
