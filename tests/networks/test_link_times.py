"""Effects of links on frames, by the network's own clock: exact where the emulator computes
them."""

from __future__ import annotations

import time

import pytest
from framework import lorentz, oracle
from framework.networks import Capture, Lab, pair

#: Ethernet, IP and UDP headers.
HEADERS = 14 + 20 + 8
MS = 1_000_000
#: Time that a loaded machine may add to a round trip, besides its measured noise, real ms.
SLOW = 400


@pytest.mark.parametrize("tdf", ["1", "10"])
def test_rate_and_delay_are_exact_to_the_nanosecond(tdf):
    count, size = 50, 958
    with Lab(f"tdf: {tdf}\n" + pair("rate: 1mbit", "delay: 3ms")) as lab:
        lab.learn()
        sender, receiver = Capture(lab, "a:eth0"), Capture(lab, "b:eth0")
        lab.send("a", "10.0.0.2", count, size)
        arrived, sent = receiver.probes(count), sender.probes(count)
    wire = (size + HEADERS) * 8 * 1_000
    assert [frame.number for frame in arrived] == list(range(count))
    assert {frame.way for frame in arrived} == {"in"} and {frame.way for frame in sent} == {"out"}
    assert arrived[0].at - sent[0].at == wire + 3 * MS
    # The link is idle before each frame, or busy to the end of the one before.
    done = 0
    for out, frame in zip(sent, arrived, strict=True):
        done = max(done, out.at) + wire
        assert frame.at == done + 3 * MS


@pytest.mark.parametrize("tdf", ["1", "10"])
def test_ping_sees_the_delay_by_its_own_clock(tdf):
    with Lab(f"tdf: {tdf}\n" + pair("delay: 25ms")) as lab:
        lab.learn()
        with oracle.HostNoise() as noise:
            # ping waits for its last reply no longer than for the others: one request each.
            times = [lab.ping("a", "10.0.0.2", 1)[0] for _ in range(3)]
    assert min(times) >= 50
    assert min(times) <= 50 + (SLOW + 1000 * noise.slack) / float(tdf), noise.worst


def test_directions_differ():
    with Lab(pair("delay: 10ms", "from: {'b:eth0': {delay: 40ms}}")) as lab:
        lab.learn()
        ends = [Capture(lab, "a:eth0"), Capture(lab, "b:eth0")]
        lab.send("a", "10.0.0.2", 1, 100)
        lab.send("b", "10.0.0.1", 1, 100)
        one, other = (end.probes(2) for end in ends)
    there = next(f.at for f in other if f.way == "in") - next(f.at for f in one if f.way == "out")
    back = next(f.at for f in one if f.way == "in") - next(f.at for f in other if f.way == "out")
    assert (there, back) == (10 * MS, 40 * MS)


def test_time_stamps_are_the_networks():
    with Lab("at: 2038-01-19T03:14:00Z\nrate: 5\n" + pair("delay: 1ms")) as lab:
        lab.learn()
        capture = Capture(lab, "a:eth0")
        lab.send("a", "10.0.0.2", 1, 100)
        stamp = capture.probes(1)[0].at
        since = lab.status()["virtual_ns"]
    start = 2_147_483_640 * 1_000 * MS
    assert start <= stamp <= start + since


def test_what_is_on_its_way_stands_still_with_the_clock():
    frozen = 1.5
    with Lab(pair("delay: 700ms")) as lab:
        lab.learn()
        ends = [Capture(lab, "a:eth0"), Capture(lab, "b:eth0")]
        lab.send("a", "10.0.0.2", 1, 100)
        lorentz.ok("freeze", lab.name)
        before = lab.status()
        if lab.direction("a:eth0")["in_flight"] == 0:
            pytest.skip("too slow here to freeze a frame on its way")
        time.sleep(frozen)
        after = lab.status()
        assert after["virtual_ns"] == before["virtual_ns"] and after["state"] == "frozen"
        assert lab.direction("a:eth0")["in_flight"] >= 1
        lorentz.ok("unfreeze", lab.name)
        (sent,), (arrived,) = (end.probes(1) for end in ends)
    assert arrived.at - sent.at == 700 * MS


@pytest.mark.parametrize(
    ("head", "delay", "change"),
    [
        # At this rate it would take 1000 s.
        ("tdf: 50\n", "20s", ("dilate", "--rate", "100")),
        ("", "1h", ("leap", "--by", "1h")),
    ],
)
def test_a_change_of_the_clock_reaches_frames_on_their_way(head, delay, change):
    with Lab(head + pair(f"delay: {delay}")) as lab:
        lab.learn()
        capture = Capture(lab, "b:eth0")
        lab.send("a", "10.0.0.2", 1, 100)
        verb, *options = change
        lorentz.ok(verb, lab.name, *options)
        capture.probes(1)


def test_nothing_is_early_and_lateness_is_told():
    with Lab(pair("delay: 5ms")) as lab:
        lab.learn()
        lab.ping("a", "10.0.0.2", 20, 0.01)
        late = lab.status()["lateness"]
    assert late["count"] >= 40
    assert 0 <= late["median_ns"] <= late["p99_ns"] <= late["max_ns"]


def test_scheduled_changes_come_at_their_virtual_instants():
    schedule = """\
schedule:
  - {at: 3s, link: 'a:eth0', state: down}
  - {at: 2s, link: 'a:eth0', set: {delay: 30ms, loss: 1%}, both: true}
  - {at: 4s, link: 'b:eth0', state: up}
"""
    with Lab("rate: 4\n" + pair("delay: 5ms") + schedule) as lab:
        seen = set()

        def is_over() -> bool:
            # One answer is one instant.
            status = lab.status()
            link, since = status["links"][0], status["virtual_ns"] / 1e9
            delays = {way["impairments"]["delay"] for way in link["directions"]}
            assert delays == {"30ms" if since >= 2 else "5ms"}, since
            assert link["up"] == (not 3 <= since < 4), since
            assert status["changes_to_come"] == (since < 2) + (since < 3) + (since < 4)
            seen.add(link["up"])
            return since > 4

        lab.wait_until(is_over, "four virtual seconds")
        lab.wait_for_carrier("a", "b")
        assert lab.ping("a", "10.0.0.2", 2)
