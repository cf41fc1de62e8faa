"""Real programs over a checkpoint: their timers and transactions go on, their data is there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from framework import build, checkpoints, lorentz, needs
from framework.checkpoints import Restored, begun, save
from framework.experiments import until
from framework.oracle import HostNoise
from framework.running import Inside

AWAY = 2.0

THREADS = """
import json, os, queue, threading, time
def tell(**line):
    # print() writes the end of the line apart, and another thread comes between.
    os.write(1, json.dumps(line).encode() + b"\\n")
def ticks(name, period):
    begun = time.monotonic()
    for n in range(1, 1000):
        time.sleep(max(0, begun + n * period - time.monotonic()))
        late = time.monotonic() - begun - n * period
        tell(ev="tick", thread=name, n=n, late=late)
def gets():
    q = queue.Queue()
    begun = time.monotonic()
    try:
        q.get(timeout=3)
    except queue.Empty:
        tell(ev="empty", after=time.monotonic() - begun)
for name, period in [("a", 0.05), ("b", 0.07), ("c", 0.11)]:
    threading.Thread(target=ticks, args=(name, period)).start()
gets()
"""

ASYNC = """
import asyncio, json, time
async def main():
    begun = time.monotonic()
    async def tick():
        n = 0
        while True:
            n += 1
            await asyncio.sleep(max(0, begun + n * 0.05 - time.monotonic()))
            late = time.monotonic() - begun - n * 0.05
            print(json.dumps({"ev": "tick", "thread": "a", "n": n, "late": late}), flush=True)
    task = asyncio.create_task(tick())
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 3)
    except TimeoutError:
        print(json.dumps({"ev": "empty", "after": time.monotonic() - begun}), flush=True)
    await task
asyncio.run(main())
"""

MEMORY = """
import hashlib, json, time
memory = bytearray(b"".join((b"%08d" % n) * 8 for n in range(500_000)))
begun = time.monotonic()
while True:
    after = time.monotonic() - begun
    digest = hashlib.sha256(memory).hexdigest()
    print(json.dumps({"ev": "hash", "hash": digest, "after": after}), flush=True)
    time.sleep(3 - (time.monotonic() - begun) % 3)
"""

PAIR = """
import json, os, socket, time
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    peer = socket.create_connection(listener.getsockname())
    for n in range(10000):
        peer.sendall(b"%d\\n" % n)
        time.sleep(0.02)
connection, _ = listener.accept()
for n, line in enumerate(connection.makefile()):
    assert int(line) == n
    print(json.dumps({"ev": "line", "n": n}), flush=True)
"""


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def name() -> str:
    name.count = getattr(name, "count", 0) + 1
    return f"p{os.getpid()}-{name.count}"


def goes_on_ticking(command: list[str], directory: Path, threads: str = "a", **how: str) -> None:
    """Checkpoints a program that ticks, and waits for 3 s: what follows is as if it had stayed.

    On a busy machine it may be late, but never for the time in which it was away.
    """
    with HostNoise() as noise:
        with Inside(*command, **how) as inside:
            inside.wait_for(20, ev="tick")
            save(inside, directory)
            inside.finish()
        time.sleep(AWAY)
        with Restored(directory, name()) as restored:
            empty = restored.line(ev="empty")
    speed = float(how.get("rate", "1"))
    late = AWAY / 2 + noise.worst * speed
    assert late < AWAY * speed, f"nothing is shown: this machine is late by {noise.worst} s"
    assert 3 <= empty["after"] < 3 + late
    for thread in threads:
        before = inside.lines(ev="tick", thread=thread)
        after = restored.lines(ev="tick", thread=thread)
        assert after[0]["n"] == before[-1]["n"] + 1
        assert max(line["late"] for line in after) < late


@pytest.mark.parametrize("rate", ["1", "2"])
def test_threads_of_python(rate, tmp_path):
    goes_on_ticking([sys.executable, "-c", THREADS], tmp_path / "saved", "abc", rate=rate)


@pytest.mark.parametrize("rate", ["1", "2"])
def test_asyncio(rate, tmp_path):
    goes_on_ticking([sys.executable, "-c", ASYNC], tmp_path / "saved", rate=rate)


def test_the_scheduler_of_a_jvm(tmp_path):
    """It works off what it believes to have missed, where the clock has jumped."""
    command = build.java("checkpoint/Ticks")
    goes_on_ticking(command, tmp_path / "saved", at="2038-01-19", rate="1")


def test_timers_of_node(tmp_path):
    script = build.PROGRAMS / "checkpoint" / "ticks.js"
    goes_on_ticking([needs.tool("node"), str(script)], tmp_path / "saved", rate="2")


def test_go_with_tickers(tmp_path):
    goes_on_ticking([build.go("checkpoint/go")], tmp_path / "saved", "ab", rate="2")


def test_a_pipeline_of_a_shell(tmp_path):
    script = (
        "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); echo $i; sleep 0.01; done | "
        'while read -r n; do echo "{\\"ev\\":\\"n\\",\\"n\\":$n}"; done | cat'
    )
    with Inside("/bin/sh", "-c", script) as inside:
        inside.wait_for(50, ev="n")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
        before = inside.lines(ev="n")
    with Restored(directory, name()) as restored:
        restored.line(ev="n", n=300)
        restored.wait_until_ended()
        numbers = [line["n"] for line in before + restored.lines(ev="n")]
        assert numbers == list(range(1, 301))


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*"))


def test_a_program_that_may_install_no_filter(tmp_path):
    """It is lent what the adoption needs, and has its own capabilities afterwards."""
    needs.tool("setpriv")
    without = ("--bounding-set=-sys_admin,-setpcap", "--inh-caps=-all", "--ambient-caps=-all")

    def capabilities(pid: int) -> list[str]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return [line for line in lines if line.startswith("Cap")]

    with Inside("setpriv", *without, "sleep", "100000", rate="10") as inside:
        inside.wait_until_shown()
        until = time.monotonic() + 10
        while capabilities(begun(inside)[0]) == capabilities(os.getpid()):
            assert time.monotonic() < until
        own = capabilities(begun(inside)[0])
        saved = save(inside, tmp_path / "saved")
        inside.finish()
    with Restored(saved, name()) as restored:
        assert capabilities(restored.row()["pids"][0]) == own


def test_compressed_memory(tmp_path):
    with Inside(sys.executable, "-c", MEMORY) as inside:
        first = inside.line(ev="hash")["hash"]
        plain = save(inside, tmp_path / "plain", "--leave-running")
        compressed = save(inside, tmp_path / "compressed", "--compress")
        inside.finish()
    # Of the 32 MB of numbers, each of which comes eight times.
    assert size(plain) - size(compressed) > 16_000_000
    time.sleep(AWAY)
    with HostNoise() as noise, Restored(compressed, name()) as restored:
        again = restored.line(ev="hash")
        # The copy for CRIU is gone.
        left = [path.name for path in lorentz.session.state_dir().rglob("images-*")]
        assert left == []
    assert again["hash"] == first and 3 <= again["after"] < 3.1 + noise.slack


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def ask(at: int, *words: str) -> str:
    command = ["redis-cli", "-p", str(at), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def test_redis_keeps_its_data_and_its_expiries(tmp_path):
    checkpoints.internet_sockets()
    needs.tool("redis-server")
    at = port()
    redis = ("redis-server", "--port", str(at), "--save", "", "--dir", str(tmp_path))
    with Inside(*redis, at="2038-01-19") as inside:
        deadline = time.monotonic() + 10
        while subprocess.run(["redis-cli", "-p", str(at), "ping"], capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        fill = "for i = 1, 20000 do redis.call('set', 'key:' .. i, string.rep('x', 1000)) end"
        ask(at, "eval", fill, "0")
        ask(at, "set", "short", "x", "px", "3000")
        ask(at, "set", "long", "x", "ex", "1000")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    time.sleep(AWAY + 2)
    with Restored(directory, name()) as restored:
        assert ask(at, "dbsize") == "20002"
        assert 0 < int(ask(at, "pttl", "short")) <= 3000
        assert 995 <= int(ask(at, "ttl", "long")) <= 1000
        assert abs(int(ask(at, "time").split()[0]) - 2147472000) < 30
        restored.verb("leap", "--by", "10s")
        assert ask(at, "exists", "short") == "0"


#: The present of a transaction stands still, that of the clock does not.
TRANSACTION = """
create table t (n int);
begin;
insert into t values (1);
select json_build_object('ev', 'begun', 'year', extract(year from now()));
select pg_sleep(3);
select json_build_object('ev', 'slept', 'after', extract(epoch from clock_timestamp() - now()));
commit;
select json_build_object('ev', 'rows', 'n', count(*)) from t;
"""
#: Arguments: the directory of its data, and the library that hides that it runs as root.
POSTGRESQL = """
LD_PRELOAD="$2" postgres -D "$1" -k "$1" -c listen_addresses= & server=$!
until psql -h "$1" -U postgres -qAt -c 'select 1' > /dev/null 2>&1; do sleep 0.1; done
psql -h "$1" -U postgres -qAt -f "$1/transaction.sql"
kill $server; wait $server
"""


#: CRIU saves programs of other users only where root has CAP_SYS_RESOURCE.
NOT_ROOT = """
#include <unistd.h>
uid_t getuid(void) { return 65534; }
uid_t geteuid(void) { return 65534; }
"""


def test_postgresql_in_a_transaction(tmp_path):
    """In an IPC namespace of its own: CRIU saves memory of System V no other way."""
    for program in ("postgres", "initdb", "psql", "setpriv", "unshare", "gcc"):
        needs.tool(program)
    library = tmp_path / "not_root.so"
    compile = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compile, input=NOT_ROOT, text=True, check=True, timeout=60)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with tempfile.TemporaryDirectory(prefix="lorentz-postgresql-") as folder:
        data = f"{folder}/data"
        os.chown(folder, 65534, 65534)
        make = [*user, "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(make, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd=folder)
        Path(data, "transaction.sql").write_text(TRANSACTION)
        run = ["unshare", "--ipc", "sh", "-c", POSTGRESQL, "sh", data, str(library)]
        with Inside(*run, at="2038-01-19", rate="1") as inside:
            assert inside.line(ev="begun")["year"] == 2038
            directory = save(inside, tmp_path / "saved")
            inside.finish()
        time.sleep(AWAY)
        with HostNoise() as noise, Restored(directory, name()) as restored:
            slept = restored.line(ev="slept")["after"]
            assert restored.line(ev="rows")["n"] == 1
            restored.wait_until_ended()
        assert 3 <= slept < 3.1 + noise.slack


def test_a_connection_within_the_container_goes_on(tmp_path):
    checkpoints.internet_sockets()
    with Inside(sys.executable, "-c", PAIR) as inside:
        inside.wait_for(10, ev="line")
        directory = save(inside, tmp_path / "saved", "--tcp-established")
        inside.finish()
    refused = lorentz.call("restore", str(directory), "--name", name())
    lorentz.refusal(refused, "--tcp-established")
    time.sleep(AWAY)
    with Restored(directory, name(), "--tcp-established") as restored:
        lines = restored.wait_for(20, ev="line")
        assert lines[0]["n"] == inside.lines(ev="line")[-1]["n"] + 1


def test_an_established_connection_needs_the_option(tmp_path):
    checkpoints.internet_sockets()
    with Inside(sys.executable, "-c", PAIR) as inside:
        inside.wait_for(10, ev="line")
        done = lorentz.call("checkpoint", inside.name, "-o", str(tmp_path / "saved"))
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "--tcp-established" in done.stderr
        seen = len(inside.lines(ev="line"))
        inside.wait_for(seen + 5, ev="line")


def test_cron_that_skips_idle_time(tmp_path):
    """Each hour's job runs once, before the checkpoint and after it."""
    tabs, ran = tmp_path / "tabs", tmp_path / "ran"
    tabs.mkdir()
    (tabs / "root").write_text(f"0 * * * * date +\\%s >>{ran}\n")

    def hours() -> list[int]:
        return [round(int(line) / 3600) for line in ran.read_text().split()] if ran.exists() else []

    cron = (needs.tool("busybox"), "crond", "-f", "-c", str(tabs), "-L", str(tmp_path / "log"))
    with Inside(*cron, at="2027-01-01", options=["--skip-idle"]) as inside:
        until(lambda: len(hours()) > 20, "twenty hours")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    before = len(hours())
    with Restored(directory, name()):
        until(lambda: len(hours()) > before + 20, "twenty more")
        seen = hours()
    assert seen == list(range(seen[0], seen[0] + len(seen)))
