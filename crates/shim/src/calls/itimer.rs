//! Interval timers: setitimer, getitimer, alarm.

use super::timer::setting_of;
use crate::call::Call;
use crate::clocks::{self, Timebase};
use crate::layout::clock;
use crate::sys::{
    sys, Errno, ItimerId, Itimerspec, Itimerval, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use crate::timers::{arm, remaining, Entry, Kernel};
use crate::user::Access;
use lorentz_clock::{Span, Timer, TimerKind};

/// setitimer(2).
pub fn setitimer(
    _: &Call,
    which: ItimerId,
    new: Option<UserPtr<Itimerval>>,
    old: Option<UserPtr<Itimerval>>,
) -> SysResult {
    let new = new.map_or(Ok(Itimerval::default()), Access::read)?;
    let valid = |time: Timeval| time.secs >= 0 && time.is_normal();
    if !valid(new.value) || !valid(new.interval) {
        return Err(Errno::EINVAL);
    }
    let new = from_micros(new);
    let before = match which {
        ItimerId::ITIMER_REAL => set_real_timer(&new)?,
        other => set_cpu_interval(other, &new)?,
    };
    if let Some(old) = old {
        old.write(to_micros(before))?;
    }
    Ok(0)
}

fn from_micros(value: Itimerval) -> Itimerspec {
    Itimerspec { interval: value.interval.to_timespec(), value: value.value.to_timespec() }
}

fn to_micros(value: Itimerspec) -> Itimerval {
    // An armed timer never shows zero.
    let armed = value.value != Timespec::default();
    let mut left = Timeval::from_timespec(value.value);
    if armed && left == Timeval::default() {
        left.micros = 1;
    }
    Itimerval { interval: Timeval::from_timespec(value.interval), value: left }
}

/// Sets ITIMER_REAL; returns its setting before.
fn set_real_timer(new: &Itimerspec) -> SysResult<Itimerspec> {
    let setting = setting_of(new, false, Timebase::MONOTONIC).ok_or(Errno::EINVAL)?;
    let set = |timer: &Timer| {
        let kernel = Kernel::of(timer, TimerKind::Interval, 0);
        let before = remaining(timer, kernel)?;
        arm(timer, kernel, setting);
        Ok(before)
    };
    Entry::with_claimed(TimerKind::Interval, 0, set).ok_or(Errno::ENOMEM)?
}

/// Sets ITIMER_VIRTUAL or ITIMER_PROF, which count CPU time.
fn set_cpu_interval(which: ItimerId, new: &Itimerspec) -> SysResult<Itimerspec> {
    let real = clock().policy().real_cpu_clocks;
    let scale = |time: Timespec| {
        let span = time.to_span().unwrap_or(Span::ZERO);
        Timeval::from_span_up(if real { span } else { clocks::real_span(span) })
    };
    let value = Itimerval { interval: scale(new.interval), value: scale(new.value) };
    let mut before = Itimerval::default();
    // SAFETY: reads `value`, writes `before`.
    unsafe { sys!(Sysno::setitimer, which, &raw const value, &raw mut before)? };
    Ok(reported_of_cpu(from_micros(before)))
}

fn reported_of_cpu(value: Itimerspec) -> Itimerspec {
    if clock().policy().real_cpu_clocks {
        return value;
    }
    let scale = |time: Timespec| {
        Timespec::from_span(clocks::virtual_span(time.to_span().unwrap_or(Span::ZERO)))
    };
    Itimerspec { interval: scale(value.interval), value: scale(value.value) }
}

/// getitimer(2).
pub fn getitimer(_: &Call, which: ItimerId, out: UserPtr<Itimerval>) -> SysResult {
    let value = if which == ItimerId::ITIMER_REAL {
        let left = |timer: &Timer| remaining(timer, Kernel::of(timer, TimerKind::Interval, 0));
        let entry = Entry::find(TimerKind::Interval, 0);
        let found = entry.and_then(|entry| entry.exclusively(left));
        found.unwrap_or(Ok(Itimerspec::default()))?
    } else {
        let mut value = Itimerval::default();
        // SAFETY: writes to `value`.
        unsafe { sys!(Sysno::getitimer, which, &raw mut value)? };
        reported_of_cpu(from_micros(value))
    };
    out.write(to_micros(value))?;
    Ok(0)
}

/// alarm(2).
pub fn alarm(_: &Call, seconds: u32) -> SysResult {
    let value = Timespec { secs: seconds.into(), nanos: 0 };
    let new = Itimerspec { interval: Timespec::default(), value };
    let Ok(Itimerspec { value: left, .. }) = set_real_timer(&new) else { return Ok(0) };
    // Rounded to the nearest second, but an armed timer never shows zero.
    let up = left.nanos >= 500_000_000 || (left.secs == 0 && left.nanos > 0);
    Ok((left.secs + up as i64) as isize)
}
