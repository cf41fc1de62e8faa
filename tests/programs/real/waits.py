"""Python's own ways to spend time. argv[1]: nominal seconds. Lines as lt.h describes them."""

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time

NOMINAL = float(sys.argv[1])


def say(**fields):
    os.write(1, (json.dumps(fields) + "\n").encode())


def item(name, call):
    say(ev="ready", case=name)
    start = time.monotonic()
    call()
    say(ev="done", case=name, elapsed=time.monotonic() - start, expect=NOMINAL)


def raises(error, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except error:
        return
    raise SystemExit(f"{call} did not raise {error}")


def subprocess_timeout():
    with subprocess.Popen(["sleep", "1000"]) as child:
        raises(subprocess.TimeoutExpired, child.wait, NOMINAL)
        child.kill()


def socket_timeout():
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(NOMINAL)
        raises(TimeoutError, left.recv, 1)


def accept_timeout():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(NOMINAL)
        raises(TimeoutError, server.accept)


def condition():
    cond = threading.Condition()
    with cond:
        cond.wait(NOMINAL)


def held_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=NOMINAL)


def timer():
    done = threading.Event()
    threading.Timer(NOMINAL, done.set).start()
    done.wait()


def itimer():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, NOMINAL)
    signal.pause()


def poll():
    read, write = os.pipe()
    poller = select.poll()
    poller.register(read, select.POLLIN)
    poller.poll(NOMINAL * 1000)
    os.close(read)
    os.close(write)


def process():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(NOMINAL,))
    child.start()
    child.join()


def future():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = threading.Event()
        raises(concurrent.futures.TimeoutError, pool.submit(done.wait).result, NOMINAL)
        done.set()


async def wait_for():
    raises_timeout = False
    try:
        await asyncio.wait_for(asyncio.Event().wait(), NOMINAL)
    except asyncio.TimeoutError:
        raises_timeout = True
    assert raises_timeout


async def gather():
    await asyncio.gather(*(asyncio.sleep(NOMINAL) for _ in range(100)))


item("time.sleep", lambda: time.sleep(NOMINAL))
item("threading.Event", lambda: threading.Event().wait(NOMINAL))
item("threading.Condition", condition)
item("threading.Lock", held_lock)
item("threading.Timer", timer)
item("queue.get", lambda: raises(queue.Empty, queue.Queue().get, timeout=NOMINAL))
item("select.select", lambda: select.select([], [], [], NOMINAL))
item("select.poll", poll)
item("asyncio.sleep", lambda: asyncio.run(asyncio.sleep(NOMINAL)))
item("asyncio.wait_for", lambda: asyncio.run(wait_for()))
item("asyncio.gather", lambda: asyncio.run(gather()))
item("subprocess.wait", subprocess_timeout)
item("socket.recv", socket_timeout)
item("socket.accept", accept_timeout)
item("signal.setitimer", itimer)
item("multiprocessing", process)
item("futures.result", future)
say(ev="year", year=time.gmtime().tm_year)
say(ev="end")
