"""One line, exit status 2, nothing started."""

from __future__ import annotations

import pytest
from framework import lorentz, needs

WRONG = [
    ("watch", "expected CONTAINER|NETNS"),
    ("watch no-such-thing --outer lo", "no-such-thing: no such container or network namespace"),
    ("watch 4294967294 --outer lo", "4294967294: no such container or network namespace"),
    ("watch /etc/passwd --outer lo", "/etc/passwd: no such container or network namespace"),
    ("watch self --outer nowhere0", "--outer nowhere0: no such device"),
    ("watch self self --outer lo", "given more than once; expected once"),
    ("watch self --outer lo --ring 1000", "--ring 1000: expected a power of two from 4096"),
    ("watch self --outer lo --ring 2147483648", "--ring 2147483648: expected a power of two"),
    ("watch self --outer lo --for 0", "--for 0: expected a duration above 0"),
    ("watch self --outer lo --for soon", "--for soon: expected a duration"),
    ("watch self --outer lo --hardware", "--hardware: lo has no hardware timestamps"),
    ("watch self --outer lo --json --prometheus", "exclude each other"),
    ("watch self --outer lo --hardware --in-band", "exclude each other"),
    ("serve self 1 --outer lo --at /tmp/x", "--at: expected one namespace"),
    ("on no-such-thing", "no-such-thing: no such container or network namespace"),
    ("run --rule nonsense -- true", "--rule nonsense: No such file or directory"),
    ("dance", "dance: no such command; expected one of"),
]


@pytest.mark.parametrize(("words", "expected"), WRONG)
def test_each(words, expected):
    needs.root()
    words = words.replace("self", "/proc/self/ns/net")
    done = lorentz.call("latency", *words.split())
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1 and expected in done.stderr, done.stderr
    assert done.stdout == ""


def test_without_rights():
    needs.root()
    done = lorentz.call("latency", "watch", "/proc/self/ns/net", "--outer", "lo", unprivileged=True)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1 and "root is needed" in done.stderr, done.stderr
