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

/// Nanoseconds in a tick of times(2).
const TICK: i64 = NANOS_PER_SEC / 100;

/// times(2): CPU times of the process and its children in ticks, and the time since some moment in the past.
pub fn times(call: &Call, out: Option<UserPtr<[i64; 4]>>) -> SysResult {
    call.by_kernel()?;
    if let Some(out) = out.filter(|_| !clock().policy().real_cpu_clocks) {
        translate_ticks(out, || own(ClockId::PROCESS_CPUTIME_ID), cpu::reported_of_others);
    }
    Ok((clocks::snapshot().now().0 / TICK) as isize)
}

/// Replaces the ticks that the kernel has written. `own` returns the CPU time of the process, `of_others` converts that of children.
fn translate_ticks(
    out: UserPtr<[i64; 4]>,
    own: impl FnOnce() -> Span,
    of_others: impl Fn(Span) -> Span,
) {
    // SAFETY: the kernel has just written four words there, wherever they lie.
    let ticks = unsafe { out.get() };
    let [user, system, children, children_system] =
        ticks.map(|ticks| Span(ticks.saturating_mul(TICK)));
    let (user, system) = shared(own(), user, system);
    let others = [children, children_system].map(of_others);
    let reported = [user, system, others[0], others[1]].map(|span| span.0 / TICK);
    // SAFETY: as above.
    unsafe { out.set(reported) };
}

/// The start of struct rusage: user and system time.
pub type Rusage = [Timeval; 2];

/// getrusage(2).
pub fn getrusage(call: &Call, who: RusageWho, out: UserPtr<Rusage>) -> SysResult {
    let result = call.by_kernel()?;
    match who {
        RusageWho::RUSAGE_SELF => translate_rusage(out, |_| own(ClockId::PROCESS_CPUTIME_ID)),
        RusageWho::RUSAGE_THREAD => translate_rusage(out, |_| own(ClockId::THREAD_CPUTIME_ID)),
        _ => translate_rusage(out, cpu::reported_of_others),
    }
    Ok(result)
}

/// wait4 and waitid with resource usage: of a child.
pub fn wait(call: &Call) -> SysResult {
    let result = wait::blocking(call, Masking::Restarts)?;
    let is_wait4 = call.nr == Sysno::wait4;
    // wait4 returns 0 where no child has ended.
    if is_wait4 == (result > 0) {
        translate_rusage(call.arg(if is_wait4 { 3 } else { 4 }), cpu::reported_of_others);
    }
    Ok(result)
}

/// Replaces the times that the kernel has written. `report` returns the CPU time to report, from the kernel's.
fn translate_rusage(usage: UserPtr<Rusage>, report: impl FnOnce(Span) -> Span) {
    // SAFETY: the kernel has just written it, wherever it lies.
    let [user, system] = unsafe { usage.get() }.map(Timeval::to_span);
    let (user, system) = shared(report(Span(user.0 + system.0)), user, system);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `translate` replace `before`, at addresses of every alignment, and checks that it becomes `after` and that nothing beside
    /// it is written.
    fn at_every_alignment<T: Copy + PartialEq + core::fmt::Debug>(
        [before, after]: [T; 2],
        translate: impl Fn(UserPtr<T>),
    ) {
        const FILL: u8 = 0x55;
        for offset in 0..16 {
            let mut memory = [[FILL; 16]; 4];
            let at = (&raw mut memory).cast::<u8>().wrapping_add(offset).cast::<T>();
            // SAFETY: the value ends within the memory: it has 32 bytes.
            unsafe { at.write_unaligned(before) };
            translate(UserPtr::new(at as u64));
            // SAFETY: as above.
            assert_eq!(unsafe { at.read_unaligned() }, after, "offset {offset}");
            let bytes = memory.as_flattened();
            let beside = [&bytes[..offset], &bytes[offset + size_of::<T>()..]];
            assert!(beside.into_iter().flatten().all(|byte| *byte == FILL), "offset {offset}");
        }
    }

    fn double(span: Span) -> Span {
        Span(2 * span.0)
    }

    #[test]
    fn resource_usage_is_translated_at_any_alignment() {
        let time = |secs, micros| Timeval { secs, micros };
        let usage = [[time(1, 500_000), time(0, 500_000)], [time(3, 0), time(1, 0)]];
        at_every_alignment(usage, |usage| translate_rusage(usage, double));
    }

    #[test]
    fn ticks_are_translated_at_any_alignment() {
        let process = || Span(8 * NANOS_PER_SEC);
        at_every_alignment([[300, 100, 7, 9], [600, 200, 14, 18]], |ticks| {
            translate_ticks(ticks, process, double)
        });
    }
}
