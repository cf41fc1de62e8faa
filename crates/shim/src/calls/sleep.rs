//! nanosleep and clock_nanosleep.

use crate::call::Call;
use crate::clocks::{self, Timebase};
use crate::deadline::reached;
use crate::layout::clock;
use crate::sole_thread;
use crate::sys::{request, sys, ClockId, Errno, SysResult, Sysno, TimerFlags, Timespec, UserPtr};
use crate::timeout::Timeout;
use crate::user::Access;
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, Span};

/// nanosleep(2).
pub fn nanosleep(
    call: &Call,
    request: UserPtr<Timespec>,
    remaining: Option<UserPtr<Timespec>>,
) -> SysResult {
    relative(call, Timebase::MONOTONIC, request, remaining)
}

/// clock_nanosleep(2).
pub fn clock_nanosleep(
    call: &Call,
    clock: ClockId,
    flags: TimerFlags,
    request: UserPtr<Timespec>,
    remaining: Option<UserPtr<Timespec>>,
) -> SysResult {
    if clock.is_alarm_clock() {
        may_sleep_on(clock, flags, request)?;
    }
    match clocks::timebase(clock) {
        Err(_) | Ok(Timebase::Cpu) => on_cpu_clock(call, request),
        Ok(base) if !flags.contains(TimerFlags::TIMER_ABSTIME) => {
            relative(call, base, request, remaining)
        }
        Ok(base) => {
            let deadline = clocks::absolute(request.read()?, base).ok_or(Errno::EINVAL)?;
            sleep(call, deadline).0
        }
    }
}

/// The kernel says whether there is such an alarm clock, and whether this program may use it: asked to sleep until a time that is
/// past. It looks at the program's own time first.
fn may_sleep_on(clock: ClockId, flags: TimerFlags, request: UserPtr<Timespec>) -> SysResult {
    request.read()?.to_span().ok_or(Errno::EINVAL)?;
    let flags = flags.with(TimerFlags::TIMER_ABSTIME);
    let past = Timespec::default();
    // SAFETY: reads `past`.
    unsafe { sys!(Sysno::clock_nanosleep, clock, flags, &raw const past, 0) }
}

fn relative(
    call: &Call,
    base: Timebase,
    request: UserPtr<Timespec>,
    remaining: Option<UserPtr<Timespec>>,
) -> SysResult {
    let span = request.read()?.to_span().ok_or(Errno::EINVAL)?;
    let (result, left) = sleep(call, call.after_on(base, span));
    if let (Err(Errno::EINTR), Some(remaining)) = (result, remaining) {
        remaining.write(Timespec::from_span(left))?;
    }
    result
}

/// Sleeps; the result, and the time that was left when a signal broke it off.
fn sleep(call: &Call, deadline: Deadline) -> (SysResult, Span) {
    if reached(deadline) || sole_thread::leap_to(deadline, call.mask()) {
        return (Ok(0), Span::ZERO);
    }
    let mut timeout = Timeout::sleep(2);
    let result = wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut request!(Sysno::clock_nanosleep, ClockId::MONOTONIC),
        &mut timeout,
        |result| result == Ok(0),
    );
    (result, timeout.left_at_interruption(deadline))
}

/// A sleep counted in CPU time, or on a clock that cannot be slept on: the kernel's, with the length scaled.
fn on_cpu_clock(call: &Call, request: UserPtr<Timespec>) -> SysResult {
    let scaled = match request.read().map(Timespec::to_span) {
        Ok(Some(span)) if !clock().policy().real_cpu_clocks => {
            Some(Timespec::from_span(clocks::real_span(span)))
        }
        _ => None,
    };
    let length = scaled.as_ref().map_or(request, UserPtr::to);
    wait::wait_untimed(call, &call.request().with(2, length), Masking::Interrupts)
}
