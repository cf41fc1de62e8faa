//! nanosleep and clock_nanosleep.

use crate::alone;
use crate::clocks::{self, Timebase};
use crate::deadline::reached;
use crate::sys::{clk, errno, sys, Request, Sysno, Timespec};
use crate::timeout::Timeout;
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, Span, WallTime};

const ABSTIME: u64 = 1;

/// nanosleep(2).
pub fn nanosleep(call: &Call) -> isize {
    let [request, remaining, ..] = call.args;
    relative(call, request, remaining)
}

/// clock_nanosleep(2).
pub fn clock_nanosleep(call: &Call) -> isize {
    let [clock, flags, request, remaining, ..] = call.args;
    if clocks::is_alarm_clock(clock as i32) {
        if let Err(error) = may_sleep_on(clock, flags, request) {
            return error;
        }
    }
    match clocks::timebase(clock as i32, &clocks::snapshot()) {
        Err(_) | Ok(Timebase::Cpu) => on_cpu_clock(call, request),
        Ok(_) if flags & ABSTIME == 0 => relative(call, request, remaining),
        Ok(base) => match user::read_timespec(request).map(|ts| absolute(ts, base)) {
            Err(error) => error,
            Ok(None) => -errno::EINVAL,
            Ok(Some(deadline)) => sleep(call, deadline).0,
        },
    }
}

/// The kernel says whether there is such an alarm clock, and whether this program may use it: asked to sleep until a time that is
/// past. It looks at the program's own time first.
fn may_sleep_on(clock: u64, flags: u64, request: u64) -> Result<(), isize> {
    if user::read_timespec(request)?.to_span().is_none() {
        return Err(-errno::EINVAL);
    }
    let past = Timespec::default();
    // SAFETY: reads `past`.
    let result = unsafe {
        sys!(Sysno::clock_nanosleep, clock, flags | ABSTIME, &past as *const Timespec, 0u64)
    };
    match result {
        0 => Ok(()),
        error => Err(error),
    }
}

/// What an absolute time on a time base is as a deadline; `None` where it is no valid time.
pub fn absolute(ts: Timespec, base: Timebase) -> Option<Deadline> {
    let span = ts.to_span()?;
    Some(match base {
        Timebase::Virtual(offset) => {
            Deadline::Virtual(lorentz_clock::VirtualInstant(span.0.saturating_sub(offset.0)))
        }
        Timebase::Wall(ahead) => {
            Deadline::Wall(WallTime { secs: ts.secs.saturating_sub(ahead), nanos: ts.nanos as u32 })
        }
        Timebase::Cpu => return None,
    })
}

fn relative(call: &Call, request: u64, remaining: u64) -> isize {
    let span = match user::read_timespec(request).map(Timespec::to_span) {
        Err(error) => return error,
        Ok(None) => return -errno::EINVAL,
        Ok(Some(span)) => span,
    };
    let deadline = call.after(span);
    let (result, left) = sleep(call, deadline);
    if result == -errno::EINTR && remaining != 0 {
        if let Err(error) = user::write_timespec(remaining, Timespec::from_span(left)) {
            return error;
        }
    }
    result
}

/// Sleeps; the result, and what was left when a signal broke it off.
fn sleep(call: &Call, deadline: Deadline) -> (isize, Span) {
    if reached(deadline) || alone::leap_to(deadline, call.mask()) {
        return (0, Span::ZERO);
    }
    let mut timeout = Timeout::sleep(2);
    let clock = clk::MONOTONIC as u64;
    let result = wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut Request::new(Sysno::clock_nanosleep, [clock, 0, 0, 0, 0, 0]),
        &mut timeout,
        |result| result == 0,
    );
    (result, timeout.left_at_interruption(deadline))
}

/// A sleep counted in CPU time, or on a clock that cannot be slept on: the kernel's, with the length scaled.
fn on_cpu_clock(call: &Call, request: u64) -> isize {
    let scaled = match user::read_timespec(request).map(Timespec::to_span) {
        Ok(Some(span)) if !crate::layout::clock().policy().real_cpu_clocks => {
            Some(Timespec::from_span(clocks::real_span(span)))
        }
        _ => None,
    };
    let request = scaled.as_ref().map_or(request, |ts| ts as *const Timespec as u64);
    let [clock, flags, _, remaining, ..] = call.args;
    let request = Request::new(Sysno::clock_nanosleep, [clock, flags, request, remaining, 0, 0]);
    wait::wait_untimed(call, &request, Masking::Interrupts)
}
