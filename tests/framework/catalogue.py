"""The cases of the programs in programs/waits, and their properties.

tests/native checks that this list and the programs' own lists are the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One case of a wait program."""

    #: The program, programs/waits/FAMILY.c, and the case's name there.
    family: str
    name: str
    #: Effect of a step of the wall clock: "stays", "follows" (its deadline is on the wall clock),
    #: "cancels" (ECANCELED), "any" (the kernel does not define it).
    step: str = "stays"
    #: The clock may change during it: one wait, from "ready" until `nominal` has passed.
    live: bool = True
    #: May share its process with the others, in a thread.
    threads: bool = True
    #: Timed by the kernel's timer wheel: up to an eighth late.
    coarse: bool = False
    #: Waits for whole seconds only.
    whole_seconds: bool = False

    def __str__(self) -> str:
        return self.name


def _cases(family: str, names: str, **known: object) -> list[Case]:
    return [Case(family, name, **known) for name in names.split()]


WAITS: list[Case] = [
    *_cases(
        "sleep",
        """nanosleep usleep clock_nanosleep-realtime-rel clock_nanosleep-monotonic-rel
        clock_nanosleep-boottime-rel clock_nanosleep-monotonic-abs
        clock_nanosleep-boottime-abs""",
    ),
    *_cases("sleep", "clock_nanosleep-realtime-abs clock_nanosleep-tai-abs", step="follows"),
    *_cases("sleep", "clock_nanosleep-tai-rel", step="any"),
    *_cases("sleep", "clock_nanosleep-past nanosleep-many", live=False),
    *_cases(
        "poll",
        """poll ppoll ppoll-libc select select-libc pselect6 epoll_wait epoll_pwait epoll_pwait2
        poll-no-fds select-no-fds""",
    ),
    *_cases(
        "poll",
        """poll-event ppoll-event ppoll-libc-event select-event select-libc-event pselect6-event
        epoll_wait-event epoll_pwait-event epoll_pwait2-event select-ready epoll_wait-ready
        epoll_wait-forever poll-forever""",
        live=False,
    ),
    *_cases(
        "futex",
        """futex-wait futex-wait_bitset-monotonic futex-lock_pi2-monotonic
        futex-wait_requeue_pi-monotonic futex_wait-monotonic futex_waitv-monotonic
        pthread_cond-monotonic""",
    ),
    *_cases(
        "futex",
        """futex-wait_bitset-realtime futex-lock_pi futex-lock_pi2-realtime
        futex-wait_requeue_pi-realtime futex_wait-realtime futex_waitv-realtime
        pthread_cond-realtime pthread_mutex sem""",
        step="follows",
    ),
    *_cases("futex", "futex-wait-woken futex-wait-stale", live=False),
    *_cases("ipc", "rt_sigtimedwait semtimedop io_getevents io_pgetevents"),
    *_cases("ipc", "mq_timedreceive mq_timedsend", step="follows"),
    *_cases("ipc", "recvmmsg", threads=False),
    *_cases("ipc", "rt_sigtimedwait-signal", live=False, threads=False),
    *_cases(
        "ipc",
        "rcvtimeo-recv rcvtimeo-read rcvtimeo-recvmsg rcvtimeo-accept sndtimeo-send",
        coarse=True,
    ),
    *_cases("ipc", "rcvtimeo-data", live=False),
    *_cases("timers", "alarm", whole_seconds=True, threads=False),
    *_cases("timers", "alarm-left getitimer setitimer-periodic", live=False, threads=False),
    *_cases(
        "timers",
        """setitimer setitimer-pause timer-realtime-rel timer-monotonic-rel timer-boottime-rel
        timer-monotonic-abs timer-boottime-abs timer-thread_id timer-thread timer-periodic
        timer-overrun timerfd-fork""",
        threads=False,
    ),
    *_cases("timers", "timer-realtime-abs timer-tai-abs", step="follows", threads=False),
    *_cases(
        "timers",
        """timer-none timerfd-realtime-rel timerfd-monotonic-rel timerfd-boottime-rel
        timerfd-monotonic-abs timerfd-boottime-abs timerfd-poll timerfd-epoll timerfd-periodic
        timerfd-counts""",
    ),
    *_cases("timers", "timerfd-realtime-abs", step="follows"),
    *_cases("timers", "timerfd-cancel_on_set", step="cancels"),
    *_cases("timers", "timer-gettime timerfd-gettime", live=False),
]

#: The calls that programs/waits/signals.c interrupts, stops and restarts.
_CALLS = [
    *("nanosleep", "clock_nanosleep", "clock_nanosleep-abs", "poll", "ppoll", "select"),
    *("pselect6", "epoll_wait", "epoll_pwait2", "futex", "futex-bitset", "sigtimedwait"),
    *("semtimedop", "mq_timedreceive", "rcvtimeo"),
]

SIGNALS: list[Case] = [
    *_cases(
        "signals",
        """full-mask blocked-signal blocked-child ppoll-mask pselect-mask epoll_pwait-mask
        own-sigsys nested-sleep altstack-32k altstack-16k altstack-4k siglongjmp
        pthread_cancel""",
        live=False,
        threads=False,
    ),
    *(
        Case("signals", f"{kind}:{call}", live=False, threads=False, coarse=call == "rcvtimeo")
        for kind in ("eintr", "restart", "stopcont")
        for call in _CALLS
    ),
]

ALL = WAITS + SIGNALS
FAMILIES = sorted({case.family for case in ALL})


def of(family: str) -> list[Case]:
    """The cases of one program."""
    return [case for case in ALL if case.family == family]
