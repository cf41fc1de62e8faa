//! The kernel's timer behind a timer of the program's.

use crate::clocks;
use crate::sys::{
    sys, ItimerId, Itimerspec, Itimerval, SysResult, Sysno, TimerFlags, Timespec, Timeval,
};
use crate::upcoming::{Shown, AT_ONCE, FAR_FUTURE};
use lorentz_clock::{Armed, RealInstant, Span, Timer, TimerKind, WallTime};

/// [`Kernel::set_behind`] sets a timer so that it does not go off again for so long.
const MAX_BEHIND_INTERVAL: Span = Span(3_600_000_000_000);
/// ... and where the host has not run for long, at least for so long.
const MIN_BEHIND_INTERVAL: Span = Span(20_000_000);

/// The kernel's timer behind a [`Timer`].
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The calls that set it.
    pub kind: TimerKind,
    /// Its number.
    pub id: u32,
    /// It is on a clock that the program chose before the shim came, and is set by lengths, which mean the same on all.
    relative: bool,
}

impl Kernel {
    /// That of `timer`.
    pub fn of(timer: &Timer, kind: TimerKind, id: u32) -> Kernel {
        Kernel { kind, id, relative: timer.clock() & Timer::RELATIVE != 0 }
    }

    /// Reads the kernel's timer, or returns the kernel's error.
    ///
    /// Race: the thread is interrupted between the clock and the timer. Where the two may be more than half of an interval apart,
    /// they are looked at again.
    pub(super) fn shown(self, armed: &Armed) -> SysResult<Shown> {
        const MAX_TRIES: u32 = 8;
        let mut tries = 0;
        loop {
            tries += 1;
            let now = clocks::host();
            let left = self.left()?;
            let after = clocks::host();
            let half = armed.interval.0 / 2;
            if after.since(now).0 < half || armed.interval == Span::ZERO {
                return Ok(Shown { now, left });
            }
            if tries == MAX_TRIES {
                // Rather an expiry too few than one too early.
                return Ok(Shown { now: after.plus(Span(-half)), left });
            }
        }
    }

    pub(super) fn is_interval_timer_with_a_pending_signal(self, timer: &Timer) -> SysResult<bool> {
        let repeats =
            timer.armed().interval != Span::ZERO && timer.armed().at != RealInstant::NEVER;
        Ok(self.kind == TimerKind::Interval && repeats && self.left()? == Span::ZERO)
    }

    /// Real time until it goes off; or the kernel's error.
    pub(super) fn left(self) -> SysResult<Span> {
        if self.kind == TimerKind::Interval {
            let mut value = Itimerval::default();
            // SAFETY: writes to `value`.
            unsafe { sys!(Sysno::getitimer, ItimerId::ITIMER_REAL, &raw mut value)? };
            return Ok(value.value.to_span());
        }
        let call = match self.kind {
            TimerKind::Fd => Sysno::timerfd_gettime,
            _ => Sysno::timer_gettime,
        };
        let mut value = Itimerspec::default();
        // SAFETY: writes to `value`.
        unsafe { sys!(call, self.id, &raw mut value)? };
        Ok(Span(Span::from_secs(value.value.secs).0.saturating_add(value.value.nanos)))
    }

    /// Stops an interval timer. Returns the real time until it would have gone off; zero where it has.
    pub(super) fn stop(self) -> SysResult<Span> {
        let (never, mut before) = (Itimerval::default(), Itimerval::default());
        // SAFETY: reads `never`, writes `before`.
        unsafe {
            sys!(Sysno::setitimer, ItimerId::ITIMER_REAL, &raw const never, &raw mut before)?
        };
        Ok(before.value.to_span())
    }

    /// Disarms it, and forgets its expiries.
    pub fn disarm(self) {
        let at = RealInstant::NEVER;
        self.set(&Armed { at, interval: Span::ZERO, ..Armed::disarmed(WallTime::default()) });
    }

    /// Sets it so that `expiries` (2 or more) have gone off by now, and the next one does not come before it is set anew.
    pub(super) fn set_behind(self, expiries: i64) {
        let now = clocks::host();
        let interval = Span((now.0 / expiries).clamp(MIN_BEHIND_INTERVAL.0, MAX_BEHIND_INTERVAL.0));
        let at = now.0.saturating_sub((expiries - 1).saturating_mul(interval.0));
        let at = RealInstant(at.max(AT_ONCE.0));
        self.set(&Armed { at, interval, ..Armed::disarmed(WallTime::default()) });
    }

    /// Sets it to go off at `armed.at`, for one expiry of a series. A descriptor gets an interval too: otherwise nothing would tell
    /// whether it has been counted.
    pub(super) fn set_once(self, armed: &Armed) {
        let interval = if self.kind == TimerKind::Fd { FAR_FUTURE } else { Span::ZERO };
        self.set(&Armed { interval, ..*armed });
    }

    /// Sets it to go off at `armed.at` and every `armed.interval` after that; never disarms it.
    pub(super) fn set(self, armed: &Armed) {
        let held = armed.at == RealInstant::NEVER;
        let length = || Span(armed.at.since(clocks::host()).0.max(1));
        if self.kind == TimerKind::Interval {
            let value = match held {
                true => Itimerval::default(),
                false => Itimerval {
                    interval: Timeval::from_span_up(armed.interval),
                    value: Timeval::from_span_up(length()),
                },
            };
            // SAFETY: reads `value`.
            let _ = unsafe { sys!(Sysno::setitimer, ItimerId::ITIMER_REAL, &raw const value, 0) };
            return;
        }
        let interval = Timespec::from_span(armed.interval);
        let value = match (held, self.relative) {
            (true, _) => Itimerspec::default(),
            (_, true) => Itimerspec { interval, value: Timespec::from_span(length()) },
            (_, false) => Itimerspec { interval, value: clocks::for_kernel(armed.at) },
        };
        // CRIU adds the present time to an absolute value, also to that of a timer that is not set.
        let relative = self.relative || held;
        let flags = if relative { TimerFlags::new(0) } else { TimerFlags::TIMER_ABSTIME };
        let call = match self.kind {
            TimerKind::Fd => Sysno::timerfd_settime,
            _ => Sysno::timer_settime,
        };
        // SAFETY: reads `value`.
        let _ = unsafe { sys!(call, self.id, flags, &raw const value, 0) };
    }
}
