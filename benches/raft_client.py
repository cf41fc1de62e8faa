"""A client of an etcd cluster with a true clock: how long a lease lasts, and whether what was
written can be read.

    raft_client.py leader ADDRESS...
        waits for a leader; prints its place among the addresses, and the term
    raft_client.py lease SECONDS ADDRESS...
        has a lease expire; prints how it went

It speaks etcd's JSON over HTTP, and prints JSON.
"""

from __future__ import annotations

import base64
import http.client
import json
import sys
import time

PORT = 2379
#: Seconds between two looks at the key of a lease.
LOOK = 0.05
#: Seconds after which an answer is not waited for any more.
TIMEOUT = 2.0


def text(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


def ask(address: str, path: str, **what: object) -> dict:
    """Asks one member. Raises OSError if it does not answer, or refuses."""
    connection = http.client.HTTPConnection(address, PORT, timeout=TIMEOUT)
    try:
        connection.request("POST", f"/v3/{path}", json.dumps(what))
        response = connection.getresponse()
        body = json.loads(response.read() or b"{}")
        if response.status != 200:
            raise OSError(f"{path}: {body}")
        return body
    except http.client.HTTPException as error:
        raise OSError(f"{path}: {error}") from error
    finally:
        connection.close()


def ask_any(addresses: list[str], path: str, **what: object) -> dict:
    """Asks one member after the other until one answers."""
    deadline = time.monotonic() + 60
    while True:
        for address in addresses:
            try:
                return ask(address, path, **what)
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(LOOK)


def leader(addresses: list[str]) -> dict:
    """The place of the leader, and the term in which it was elected."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for at, address in enumerate(addresses):
            try:
                status = ask(address, "maintenance/status")
            except OSError:
                continue
            if status.get("leader") == status["header"]["member_id"]:
                return {"leader": at, "term": int(status["raftTerm"])}
        time.sleep(LOOK)
    sys.exit("no leader within 60 s")


def lease(seconds: int, addresses: list[str]) -> dict:
    """Attaches a key to a lease and waits until it is gone, at most for three times as long.
    Meanwhile it writes, and reads what it wrote from another member."""
    granted = ask_any(addresses, "lease/grant", TTL=seconds)
    ask_any(addresses, "kv/put", key=text("held"), value=text("me"), lease=granted["ID"])
    begun = time.monotonic()
    print(json.dumps({"ev": "begun"}), flush=True)
    wrong = number = revision = 0
    while True:
        number += 1
        written = ask_any(addresses, "kv/put", key=text("number"), value=text(str(number)))
        turned = addresses[number % len(addresses) :] + addresses[: number % len(addresses)]
        found = ask_any(turned, "kv/range", key=text("number"))
        at = int(written["header"]["revision"])
        wrong += found["kvs"][0]["value"] != text(str(number)) or at <= revision
        revision = at
        if "kvs" not in ask_any(turned, "kv/range", key=text("held")):
            lasted = time.monotonic() - begun
            return {"ev": "gone", "lasted": lasted, "written": number, "wrong": wrong}
        if time.monotonic() - begun > 3 * seconds:
            return {"ev": "there", "lasted": None, "written": number, "wrong": wrong}
        time.sleep(LOOK)


def main() -> None:
    verb, *words = sys.argv[1:]
    answer = leader(words) if verb == "leader" else lease(int(words[0]), words[1:])
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
