//! How long the machine and the process have been running: sysinfo, times, resource usage.

use crate::clocks;
use crate::cpu;
use crate::layout::clock;
use crate::sys::{clk, host_clock, Sysno, Timespec};
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use lorentz_clock::{Span, NANOS_PER_SEC};

const MICRO: i64 = 1000;
const RUSAGE_SELF: i32 = 0;
const RUSAGE_THREAD: i32 = 1;

/// sysinfo(2): its first word is the uptime in seconds, rounded up.
pub fn sysinfo(call: &Call) -> isize {
    let result = call.by_kernel();
    if result == 0 {
        let boot = clocks::read(clk::BOOTTIME).unwrap_or_default();
        let uptime = boot.secs + (boot.nanos > 0) as i64;
        return user::write_u64(call.args[0], uptime as u64).err().unwrap_or(0);
    }
    result
}

/// times(2): CPU times of the process and its children in ticks, and the time since some moment in the past.
pub fn times(call: &Call) -> isize {
    const TICK: i64 = NANOS_PER_SEC / 100;
    let result = call.by_kernel();
    if result < 0 {
        return result;
    }
    let at = call.args[0];
    if at != 0 && !clock().policy().real_cpu_clocks {
        let ticks_at = at as *mut [i64; 4];
        // SAFETY: the kernel has just written four words there, wherever they lie.
        let ticks = unsafe { ticks_at.read_unaligned() };
        let [user, system, children, children_system] =
            ticks.map(|ticks| Span(ticks.saturating_mul(TICK)));
        let (user, system) = shared(own(clk::PROCESS_CPUTIME), user, system);
        let others = [children, children_system].map(cpu::told_of_others);
        let told = [user, system, others[0], others[1]].map(|span| span.0 / TICK);
        // SAFETY: as above.
        unsafe { ticks_at.write_unaligned(told) };
    }
    (clocks::snapshot().now().0 / TICK) as isize
}

/// getrusage(2).
pub fn getrusage(call: &Call) -> isize {
    let result = call.by_kernel();
    if result == 0 {
        let clock = match call.args[0] as i32 {
            RUSAGE_SELF => Some(clk::PROCESS_CPUTIME),
            RUSAGE_THREAD => Some(clk::THREAD_CPUTIME),
            _ => None,
        };
        translate_rusage(call.args[1], clock);
    }
    result
}

/// wait4 and waitid with resource usage: of a child.
pub fn wait(call: &Call) -> isize {
    let result = wait::blocking(call, Masking::Restarts);
    let usage = if call.nr == Sysno::wait4 { call.args[3] } else { call.args[4] };
    let reaped = if call.nr == Sysno::wait4 { result > 0 } else { result == 0 };
    if reaped {
        translate_rusage(usage, None);
    }
    result
}

/// struct rusage begins with the user and the system time, as timevals.
fn translate_rusage(at: u64, clock: Option<i32>) {
    let times_at = at as *mut [Timespec; 2];
    // SAFETY: the kernel has just written it, wherever it lies.
    let times = unsafe { times_at.read_unaligned() };
    let span = |tv: Timespec| Span(Span::from_secs(tv.secs).0 + tv.nanos * MICRO);
    let (user, system) = (span(times[0]), span(times[1]));
    let told = match clock {
        Some(clock) => own(clock),
        None => cpu::told_of_others(Span(user.0 + system.0)),
    };
    let (user, system) = shared(told, user, system);
    let timeval = |span: Span| Timespec {
        secs: span.0 / NANOS_PER_SEC,
        nanos: span.0 % NANOS_PER_SEC / MICRO,
    };
    // SAFETY: as above.
    unsafe { times_at.write_unaligned([timeval(user), timeval(system)]) };
}

/// CPU time of the caller, by its own CPU clock. The kernel rounds what it tells elsewhere, by up to a tick: behind a look at
/// the clock that would be time going back.
pub fn own(clock: i32) -> Span {
    cpu::told(clock, host_clock(clock).to_span().unwrap_or_default())
}

/// `told` divided as user and system time are.
pub fn shared(told: Span, user: Span, system: Span) -> (Span, Span) {
    let both = user.0 as i128 + system.0 as i128;
    if both == 0 {
        return (Span::ZERO, Span::ZERO);
    }
    let user = (told.0 as i128 * user.0 as i128 / both) as i64;
    (Span(user), Span(told.0 - user))
}
