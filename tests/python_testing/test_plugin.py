"""The pytest plugin, in sessions of pytest of its own."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from framework import lorentz, suites
from framework.build import REPO


@pytest.fixture
def suite(tmp_path: Path):
    """Runs pytest on a file with these tests."""
    return lambda text, *flags, **options: suites.suite(tmp_path, text, *flags, **options)


def test_the_package_names_the_plugin_as_an_entry_point(tmp_path):
    """As an installed wheel does it: pytest finds the plugin by the package's metadata alone."""
    folder = tmp_path / "lorentz-0.dist-info"
    folder.mkdir()
    text = (REPO / "python/pyproject.toml").read_text()
    section = text.partition("[project.entry-points.pytest11]\n")[2].partition("\n\n")[0]
    name, _, module = section.replace('"', "").partition(" = ")
    (folder / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lorentz\nVersion: 0\n")
    (found,) = importlib.metadata.Distribution.at(folder).entry_points
    assert (found.name, found.value) == ("lorentz", "lorentz.pytest_plugin")
    help_text = suites.pytest_output("--help", PYTHONPATH=f"{tmp_path}:{REPO / 'python'}")
    assert "--lorentz-at" in help_text and "--lorentz-rate" in help_text


def test_marks(suite):
    suite("""
        import subprocess, sys, threading, time, unittest
        import pytest

        def year():
            return time.gmtime().tm_year

        NOW = year()

        @pytest.fixture(scope="module")
        def of_the_module():
            return year()

        @pytest.fixture
        def of_the_test():
            yield year()
            assert year() == 2038

        @pytest.mark.lorentz(at="2038-01-19")
        def test_at(of_the_test, of_the_module):
            assert year() == 2038 == of_the_test
            assert of_the_module == NOW
            shown = subprocess.run(["date", "+%Y"], capture_output=True, text=True)
            assert shown.stdout == "2038\\n"

        @pytest.mark.lorentz("2038-01-19")
        def test_positional():
            assert year() == 2038

        @pytest.mark.lorentz(at="2038-01-19", rate=20)
        def test_rate():
            begun = time.monotonic()
            time.sleep(2)
            assert time.monotonic() - begun >= 2

        @pytest.mark.lorentz(skip_idle=True)
        def test_skip_idle():
            time.sleep(3600)

        @pytest.mark.lorentz(at="2024-02-29", frozen=True)
        def test_frozen():
            assert time.time_ns() == 1_709_164_800 * 10**9 == time.time_ns()
            time.sleep(60)
            assert time.time_ns() >= (1_709_164_800 + 60) * 10**9

        def test_none():
            assert year() == NOW

        @pytest.mark.lorentz(at="2038-01-19")
        class TestClass:
            def test_of_the_class(self):
                assert year() == 2038

            @pytest.mark.lorentz(at="2001-09-09")
            def test_nearer(self):
                assert year() == 2001

        @pytest.mark.lorentz(at="2038-01-19")
        class TestUnittest(unittest.TestCase):
            def setUp(self):
                assert year() == 2038

            def test_unittest(self):
                assert year() == 2038
    """).passed()


def test_the_fixture_clock(suite):
    suite("""
        import time
        import pytest

        def test_changes(clock):
            clock.travel("2038-01-19")
            assert time.gmtime().tm_year == 2038
            clock.freeze()
            before = time.time_ns(), time.monotonic_ns()
            clock.leap("30d")
            assert time.monotonic_ns() - before[1] == 30 * 86400 * 10**9
            assert time.time_ns() - before[0] == 30 * 86400 * 10**9
            clock.unfreeze()
            clock.dilate("1/20")
            assert clock.time().tdf.denominator == 20

        def test_given_back(clock):
            assert clock.time().tdf == 1
            assert time.gmtime().tm_year == clock.time().host_wall_ns // 10**9 // 31556952 + 1970

        @pytest.mark.lorentz(at="2001-09-09")
        def test_within_a_mark(clock):
            assert time.gmtime().tm_year == 2001
            clock.step("1h")
            assert time.gmtime().tm_hour == 1
    """).passed()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("at='yesteryear'", ["yesteryear", "expected"]),
        ("date='2038-01-19'", ["date: no keyword", "at, rate, skip_idle, frozen"]),
        ("'2038-01-19', 1", ["2 arguments", "expected one time"]),
        ("", ["no keyword", "at, rate"]),
        ("rate=0", ["rate 0", "1/1000000"]),
        ("rate=2, frozen=True", ["frozen, rate", "expected one of them"]),
        ("skip_idle='maybe'", ["skip_idle 'maybe'", "force"]),
    ],
)
def test_a_wrong_mark_fails_with_one_line(suite, mark, words):
    session = suite(f"""
        import pytest
        @pytest.mark.lorentz({mark})
        def test_wrong(): pass
        def test_right(): pass
    """)
    assert session.outcomes == {"test_wrong": "error", "test_right": "passed"}
    line = next(row for row in session.output.splitlines() if row.startswith("ERROR test_it"))
    assert all(word in session.output for word in words), session.output
    assert "Traceback" not in session.output and "_lorentz_mark" not in line


def test_where_the_kernel_refuses_one_line_names_the_flag(suite):
    """strace traces pytest, and follows no children."""
    from framework import needs

    strace = needs.tool("strace")
    session = suite(
        """
        import pytest
        @pytest.mark.lorentz(at="2038-01-19")
        def test_mark(): pass
        def test_fixture(clock): pass
        def test_without(): pass
        """,
        launcher=(strace, "-o", "/dev/null", "-e", "trace=none"),
    )
    outcomes = {"test_mark": "error", "test_fixture": "error", "test_without": "passed"}
    assert session.outcomes == outcomes, session.output
    assert session.output.count("pytest with --lorentz-at") >= 2
    assert "is traced by process" in session.output and "Traceback" not in session.output


def test_a_whole_session_at_a_time(suite):
    """With capturing, output, the exit status and the command line's flags as without."""
    session = suite(
        """
        import os, sys, time
        AT_IMPORT = time.gmtime().tm_year

        def test_all():
            assert AT_IMPORT == time.gmtime().tm_year == 2038

        def test_fails(capsys):
            print("captured")
            assert capsys.readouterr().out == "captured\\n"
            assert not "this fails"
        """,
        "--lorentz-at=2038-01-19",
        "--lorentz-rate",
        "2",
    )
    assert session.outcomes == {"test_all": "passed", "test_fails": "failed"}, session.output
    assert session.status == 1
    assert "lorentz: --at=2038-01-19T00:00:00Z --rate=2" in session.output
    assert session.output.count("test session starts") == 1


def test_a_session_that_skips_idle_time(suite):
    suite(
        """
        import time
        def test_sleeps():
            time.sleep(86400)
        """,
        "--lorentz-skip-idle=on",
    ).passed()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--lorentz-at=yesteryear"], ["--lorentz-at yesteryear: ", "expected"]),
        (["--lorentz-rate=0"], ["--lorentz-rate 0: ", "expected"]),
        (["--lorentz-skip-idle=maybe"], ["--lorentz-skip-idle", "'on', 'force'"]),
    ],
)
def test_a_wrong_flag_runs_nothing(suite, flags, words):
    session = suite("def test_it(): pass", *flags)
    assert session.status == 4 and not session.outcomes
    assert all(word in session.output for word in words), session.output
    assert "Traceback" not in session.output


def test_a_flag_on_another_clock_is_refused(suite):
    session = suite(
        "def test_it(): pass",
        "--lorentz-at=2038-01-19",
        launcher=(str(lorentz.session.binary), "run", "--rate", "2", "--name", "outer"),
    )
    assert session.status == 4 and not session.outcomes
    assert "--lorentz-at: pytest is on the clock of outer already" in session.output


def test_a_flag_in_a_program_that_calls_pytest_is_refused(tmp_path):
    program = """
import pytest, sys
sys.exit(pytest.main(["-p", "lorentz.pytest_plugin", "--lorentz-at=2038-01-19", "no-such-file"]))
"""
    (tmp_path / "program.py").write_text(program)
    output = suites.output([sys.executable, tmp_path / "program.py"], 4)
    assert "--lorentz-at: expected pytest to be run by its command line" in output


#: Tests that two workers run at the same time, on clocks of their own.
PARALLEL = """
import os, time
import pytest

def year():
    return time.gmtime().tm_year

START = year()

@pytest.mark.parametrize("wanted", [1999, 2001, 2011, 2038] * 5)
def test_year(wanted, clock):
    assert year() == START == {start}
    clock.travel(f"{{wanted}}-06-01")
    for _ in range(10):
        assert year() == wanted
        os.sched_yield()

@pytest.mark.lorentz(frozen=True)
@pytest.mark.parametrize("number", range(4))
def test_sleep(number):
    begun = time.monotonic_ns()
    time.sleep(3600)
    assert 3600 <= (time.monotonic_ns() - begun) / 1e9 < 3601

def test_worker():
    assert os.environ["PYTEST_XDIST_WORKER"].startswith("gw")
"""


def test_xdist_workers_have_clocks_of_their_own(suite):
    suites.module("xdist")
    session = suite(PARALLEL.format(start="time.gmtime().tm_year"), "-n2")
    session.passed()


def test_xdist_workers_begin_at_the_sessions_time(suite):
    suites.module("xdist")
    session = suite(PARALLEL.format(start=2030), "-n2", "--lorentz-at=2030-06-01")
    session.passed()
    assert "lorentz: --at=2030-06-01" in session.output


def test_asyncio(suite):
    """Tests of pytest-asyncio, whose loop is made before or in the block."""
    suites.module("pytest_asyncio")
    suite(
        """
        import asyncio, time
        import pytest

        @pytest.mark.asyncio
        @pytest.mark.lorentz(at="2038-01-19", frozen=True)
        async def test_frozen():
            loop = asyncio.get_running_loop()
            assert loop.time() == pytest.approx(time.monotonic())
            # In whole nanoseconds: a difference of floats may be less than their sum was.
            begun = time.monotonic_ns()
            await asyncio.gather(*(asyncio.sleep(at) for at in (3600, 60, 7200)))
            assert 7200 <= (time.monotonic_ns() - begun) / 1e9 < 7201
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 86400)

        @pytest.mark.asyncio
        async def test_clock(clock):
            clock.travel("2038-01-19")
            task = asyncio.create_task(asyncio.sleep(3600))
            await asyncio.sleep(0)
            clock.leap("1h")
            await asyncio.wait_for(task, 1)
            assert time.gmtime().tm_year == 2038
        """,
    ).passed()


def test_what_a_session_fixture_has_started_travels_too(suite):
    suite("""
        import subprocess, time
        import pytest

        @pytest.fixture(scope="session")
        def server():
            command = ["sh", "-c", "while read line; do date +%Y; done"]
            with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
                yield process
                process.stdin.close()

        def ask(server):
            server.stdin.write("\\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        def test_now(server):
            assert ask(server) == time.gmtime().tm_year

        @pytest.mark.lorentz(at="2038-01-19")
        def test_later(server):
            assert ask(server) == 2038
    """).passed()


def test_the_plugin_costs_tests_without_mark_no_clock(suite):
    session = suite("""
        def test_none():
            from lorentz import _native
            assert _native.OwnClock.find() is None
    """)
    session.passed()
