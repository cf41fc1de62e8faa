//! Interval timers: setitimer, getitimer, alarm.

use super::timer::setting_of;
use crate::clocks::{self, Timebase};
use crate::layout::{clock, registry};
use crate::process;
use crate::sys::{errno, sys, Itimerspec, Sysno, Timespec};
use crate::timers::{alone, arm, in_micros, told, Kernel};
use crate::trap::Call;
use crate::user;
use lorentz_clock::{Span, TimerKind};

const ITIMER_REAL: u64 = 0;
const MICRO: i64 = 1000;

/// setitimer(2).
pub fn setitimer(call: &Call) -> isize {
    let [which, new, old, ..] = call.args;
    let which = u64::from(which as u32);
    let new = match new {
        0 => Itimerspec::default(),
        at => match user::read_itimer(at) {
            Ok(new) => new,
            Err(error) => return error,
        },
    };
    let valid = |tv: Timespec| tv.secs >= 0 && (0..1_000_000).contains(&tv.nanos);
    if !valid(new.value) || !valid(new.interval) {
        return -errno::EINVAL;
    }
    let new = from_micros(new);
    let result =
        if which == ITIMER_REAL { set_real_timer(&new) } else { set_cpu_interval(which, &new) };
    match result {
        Err(error) => error,
        Ok(before) if old != 0 => user::write_itimer(old, to_micros(before)).err().unwrap_or(0),
        Ok(_) => 0,
    }
}

fn from_micros(value: Itimerspec) -> Itimerspec {
    let nanos = |tv: Timespec| Timespec { secs: tv.secs, nanos: tv.nanos * MICRO };
    Itimerspec { interval: nanos(value.interval), value: nanos(value.value) }
}

fn to_micros(value: Itimerspec) -> Itimerspec {
    // A timer that is armed is never told as zero.
    let armed = value.value != Timespec::default();
    let mut left = Timespec { secs: value.value.secs, nanos: value.value.nanos / MICRO };
    if armed && left == Timespec::default() {
        left.nanos = 1;
    }
    let interval = Timespec { secs: value.interval.secs, nanos: value.interval.nanos / MICRO };
    Itimerspec { interval, value: left }
}

/// Sets ITIMER_REAL; gives what it was.
fn set_real_timer(new: &Itimerspec) -> Result<Itimerspec, isize> {
    let Some(timer) = registry().claim_timer(process::own(), TimerKind::Interval, 0) else {
        return Err(-errno::ENOMEM);
    };
    let kernel = Kernel::of(timer, TimerKind::Interval, 0);
    let setting = setting_of(new, false, Timebase::Virtual(Span::ZERO)).ok_or(-errno::EINVAL)?;
    alone(timer, || {
        let before = told(timer, kernel)?;
        arm(timer, kernel, setting, 0);
        Ok(before)
    })
}

/// Sets ITIMER_VIRTUAL or ITIMER_PROF, which count CPU time.
fn set_cpu_interval(which: u64, new: &Itimerspec) -> Result<Itimerspec, isize> {
    let real = clock().policy().real_cpu_clocks;
    let scale = |ts: Timespec| {
        let span = ts.to_span().unwrap_or(Span::ZERO);
        in_micros(if real { span } else { clocks::real_span(span) })
    };
    let value = Itimerspec { interval: scale(new.interval), value: scale(new.value) };
    let mut before = Itimerspec::default();
    // SAFETY: reads `value`, writes `before`.
    let result = unsafe {
        sys!(Sysno::setitimer, which, &value as *const Itimerspec, &mut before as *mut Itimerspec)
    };
    if result < 0 {
        return Err(result);
    }
    Ok(told_of_cpu(from_micros(before)))
}

fn told_of_cpu(value: Itimerspec) -> Itimerspec {
    if clock().policy().real_cpu_clocks {
        return value;
    }
    let scale = |ts: Timespec| {
        Timespec::from_span(clocks::virtual_span(ts.to_span().unwrap_or(Span::ZERO)))
    };
    Itimerspec { interval: scale(value.interval), value: scale(value.value) }
}

/// getitimer(2).
pub fn getitimer(call: &Call) -> isize {
    let [which, at, ..] = call.args;
    let which = u64::from(which as u32);
    let value = if which == ITIMER_REAL {
        match registry().find_timer(process::own(), TimerKind::Interval, 0) {
            None => Ok(Itimerspec::default()),
            Some(timer) => alone(timer, || told(timer, Kernel::of(timer, TimerKind::Interval, 0))),
        }
    } else {
        let mut value = Itimerspec::default();
        // SAFETY: writes to `value`.
        match unsafe { sys!(Sysno::getitimer, which, &mut value as *mut Itimerspec) } {
            0 => Ok(told_of_cpu(from_micros(value))),
            error => Err(error),
        }
    };
    match value {
        Err(error) => error,
        Ok(value) => user::write_itimer(at, to_micros(value)).err().unwrap_or(0),
    }
}

/// alarm(2).
pub fn alarm(call: &Call) -> isize {
    let value = Timespec { secs: call.args[0] as u32 as i64, nanos: 0 };
    let new = Itimerspec { interval: Timespec::default(), value };
    match set_real_timer(&new) {
        Err(_) => 0,
        Ok(before) => {
            let left = before.value;
            // Rounded to the nearest second, but an armed timer is never told as zero.
            let up = left.nanos >= 500_000_000 || (left.secs == 0 && left.nanos > 0);
            (left.secs + up as i64) as isize
        }
    }
}
