//! How long the machine and the process have been running: sysinfo, times, resource usage.

use crate::call::Call;
use crate::clocks;
use crate::cpu;
use crate::layout::clock;
use crate::read;
use crate::sys::{host_clock, ClockId, RusageWho, SysResult, Sysno, Timeval, UserPtr};
use crate::user::Access;
use crate::wait::{self, Masking};
use lorentz_clock::{Span, NANOS_PER_SEC};

/// sysinfo(2): its first word is the uptime in seconds, rounded up.
pub fn sysinfo(call: &Call, out: UserPtr<i64>) -> SysResult {
    let result = call.by_kernel()?;
    let boot = read::clock_time(ClockId::BOOTTIME).unwrap_or_default();
    out.write(boot.secs + (boot.nanos > 0) as i64)?;
    Ok(result)
}

/// times(2): CPU times of the process and its children in ticks, and the time since some moment in the past.
pub fn times(call: &Call, out: Option<UserPtr<[i64; 4]>>) -> SysResult {
    const TICK: i64 = NANOS_PER_SEC / 100;
    call.by_kernel()?;
    if let Some(out) = out.filter(|_| !clock().policy().real_cpu_clocks) {
        // SAFETY: the kernel has just written four words there, wherever they lie.
        let ticks = unsafe { out.get() };
        let [user, system, children, children_system] =
            ticks.map(|ticks| Span(ticks.saturating_mul(TICK)));
        let (user, system) = shared(own(ClockId::PROCESS_CPUTIME_ID), user, system);
        let others = [children, children_system].map(cpu::reported_of_others);
        let reported = [user, system, others[0], others[1]].map(|span| span.0 / TICK);
        // SAFETY: as above.
        unsafe { out.set(reported) };
    }
    Ok((clocks::snapshot().now().0 / TICK) as isize)
}

/// The start of struct rusage: user and system time.
pub type Rusage = [Timeval; 2];

/// getrusage(2).
pub fn getrusage(call: &Call, who: RusageWho, out: UserPtr<Rusage>) -> SysResult {
    let result = call.by_kernel()?;
    let clock = match who {
        RusageWho::RUSAGE_SELF => Some(ClockId::PROCESS_CPUTIME_ID),
        RusageWho::RUSAGE_THREAD => Some(ClockId::THREAD_CPUTIME_ID),
        _ => None,
    };
    translate_rusage(out, clock);
    Ok(result)
}

/// wait4 and waitid with resource usage: of a child.
pub fn wait(call: &Call) -> SysResult {
    let result = wait::blocking(call, Masking::Restarts)?;
    let is_wait4 = call.nr == Sysno::wait4;
    // wait4 returns 0 where no child has ended.
    if is_wait4 == (result > 0) {
        translate_rusage(call.arg(if is_wait4 { 3 } else { 4 }), None);
    }
    Ok(result)
}

fn translate_rusage(usage: UserPtr<Rusage>, clock: Option<ClockId>) {
    // SAFETY: the kernel has just written it, wherever it lies.
    let [user, system] = unsafe { usage.get() }.map(Timeval::to_span);
    let reported = match clock {
        Some(clock) => own(clock),
        None => cpu::reported_of_others(Span(user.0 + system.0)),
    };
    let (user, system) = shared(reported, user, system);
    // SAFETY: as above.
    unsafe { usage.set([user, system].map(Timeval::from_span)) };
}

/// CPU time of the caller, by its own CPU clock. Elsewhere the kernel rounds it, by up to a tick: behind a look at
/// the clock that would be time going back.
pub fn own(clock: ClockId) -> Span {
    cpu::reported(clock, host_clock(clock).to_span().unwrap_or_default())
}

/// Divides `reported` as user and system time are divided.
pub fn shared(reported: Span, user: Span, system: Span) -> (Span, Span) {
    let both = user.0 as i128 + system.0 as i128;
    if both == 0 {
        return (Span::ZERO, Span::ZERO);
    }
    let user = (reported.0 as i128 * user.0 as i128 / both) as i64;
    (Span(user), Span(reported.0 - user))
}
