//! The virtual clock and its time bases, as every other part of the shim asks for them.

use crate::layout::{clock, data, registry};
use crate::sys::{self, ClockId, Errno, SysResult, Timespec};
use crate::time_namespace::offsets;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{
    Deadline, RealInstant, Snapshot, Span, VirtualInstant, WallTime, NANOS_PER_SEC,
};

/// The host's CLOCK_MONOTONIC, through the kernel's vDSO where that works without a system call.
#[inline(always)]
pub fn host() -> RealInstant {
    let ts = host_by(ClockId::MONOTONIC);
    RealInstant(ts.secs * NANOS_PER_SEC + ts.nanos)
}

#[inline(always)]
pub fn host_by(clock: ClockId) -> Timespec {
    let function = data().clock_gettime.load(Relaxed);
    if function == 0 {
        return host_elsewhere(clock);
    }
    by_function(function, clock)
}

/// The same in a time namespace with an offset, or by a system call.
#[cold]
#[inline(never)]
fn host_elsewhere(clock: ClockId) -> Timespec {
    let shown = match data().host_gettime.load(Relaxed) {
        0 => sys::host_clock(clock),
        function => by_function(function, clock),
    };
    let nanos = shown.secs * NANOS_PER_SEC + shown.nanos;
    from_virtual(VirtualInstant(nanos.saturating_sub(offsets().monotonic.0)))
}

/// The host's wall clock at its last tick. This costs a fifth of a look at the clock itself.
pub fn host_wall_at_tick() -> Timespec {
    match data().host_gettime.load(Relaxed) {
        0 => sys::host_clock(ClockId::REALTIME_COARSE),
        function => by_function(function, ClockId::REALTIME_COARSE),
    }
}

/// A real instant as the kernel takes it from this process: on CLOCK_MONOTONIC, and not zero, which would disarm a timer.
pub fn for_kernel(real: RealInstant) -> Timespec {
    let nanos = real.0.saturating_add(offsets().monotonic.0);
    Timespec::from_span(Span(nanos.max(1)))
}

#[inline(always)]
fn by_function(function: usize, clock: ClockId) -> Timespec {
    let mut ts = core::mem::MaybeUninit::<Timespec>::uninit();
    // SAFETY: the boot code found this function in the kernel's vDSO; for the clocks asked here it always writes.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(
            clock.number(),
            ts.as_mut_ptr(),
        );
        ts.assume_init()
    }
}

/// A consistent look at the clock, now.
#[inline(always)]
pub fn snapshot() -> Snapshot {
    clock().look(registry(), &host)
}

/// The wall clock at `virt` as a timespec.
#[inline(always)]
pub fn wall_timespec(snapshot: &Snapshot, virt: VirtualInstant) -> Timespec {
    let offset = snapshot.segment.wall;
    let (secs, nanos) = if virt.0 >= 0 {
        let virt = virt.0 as u64;
        ((virt / NANOS_PER_SEC as u64) as i64, (virt % NANOS_PER_SEC as u64) as i64)
    } else {
        (virt.0.div_euclid(NANOS_PER_SEC), virt.0.rem_euclid(NANOS_PER_SEC))
    };
    let nanos = nanos + offset.nanos as i64;
    let carry = (nanos >= NANOS_PER_SEC) as i64;
    Timespec { secs: secs + offset.secs + carry, nanos: nanos - carry * NANOS_PER_SEC }
}

/// The same as a [`WallTime`].
pub fn wall(snapshot: &Snapshot) -> WallTime {
    snapshot.segment.wall_at(snapshot.now())
}

/// CLOCK_BOOTTIME, with the offset of this process's time namespace.
pub fn boot(snapshot: &Snapshot) -> VirtualInstant {
    snapshot.now().plus(snapshot.segment.boot).plus(offsets().boot)
}

/// The time base of a clock, for waits and timers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timebase {
    /// The virtual monotonic clock plus a constant.
    Virtual(Span),
    /// The wall clock plus a constant number of seconds.
    Wall(i64),
    /// CLOCK_BOOTTIME plus a constant.
    Boot(Span),
    /// CPU time.
    Cpu,
}

impl Timebase {
    /// The clock of all timeouts that name none.
    pub const MONOTONIC: Timebase = Timebase::Virtual(Span::ZERO);
}

/// An absolute time on a time base as a deadline; `None` where it is no valid time.
pub fn absolute(time: Timespec, base: Timebase) -> Option<Deadline> {
    let span = time.to_span()?;
    Some(match base {
        Timebase::Virtual(offset) => {
            Deadline::Virtual(VirtualInstant(span.0.saturating_sub(offset.0)))
        }
        Timebase::Wall(ahead) => Deadline::Wall(WallTime {
            secs: time.secs.saturating_sub(ahead),
            nanos: time.nanos as u32,
        }),
        Timebase::Boot(offset) => Deadline::Boot(VirtualInstant(span.0.saturating_sub(offset.0))),
        Timebase::Cpu => return None,
    })
}

/// The deadline `span` after a look. CLOCK_BOOTTIME counts a suspend that comes meanwhile; the wall clock's steps change no such
/// deadline.
pub fn after(span: Span, base: Timebase, look: &Snapshot) -> Deadline {
    let instant = look.now().plus(span);
    match base {
        Timebase::Boot(_) => Deadline::Boot(instant.plus(look.segment.boot)),
        _ => Deadline::Virtual(instant),
    }
}

/// The time base of a clock that can be waited on; EINVAL for the others.
pub fn timebase(clock: ClockId) -> SysResult<Timebase> {
    match clock {
        ClockId::MONOTONIC => Ok(Timebase::Virtual(offsets().monotonic)),
        ClockId::BOOTTIME | ClockId::BOOTTIME_ALARM => Ok(Timebase::Boot(offsets().boot)),
        ClockId::REALTIME | ClockId::REALTIME_ALARM => Ok(Timebase::Wall(0)),
        ClockId::TAI => Ok(Timebase::Wall(data().tai.load(Relaxed) as i64)),
        _ if clock.is_cpu_clock() => Ok(Timebase::Cpu),
        _ => Err(Errno::EINVAL),
    }
}

/// An instant as a timespec; times before zero as the kernel has them, floored.
pub fn from_virtual(virt: VirtualInstant) -> Timespec {
    Timespec { secs: virt.0.div_euclid(NANOS_PER_SEC), nanos: virt.0.rem_euclid(NANOS_PER_SEC) }
}

/// `span` of virtual time as real time at the rate in force, rounded up; for lengths that the kernel takes only once.
pub fn real_span(span: Span) -> Span {
    let rate = snapshot().rate;
    let nanos = (span.0.max(0) as u128 * rate.den() as u128).div_ceil(rate.num() as u128);
    Span(nanos.min(i64::MAX as u128) as i64)
}

/// `span` of real time as virtual time at the rate in force, rounded down.
pub fn virtual_span(span: Span) -> Span {
    let rate = snapshot().rate;
    let nanos = span.0.max(0) as u128 * rate.num() as u128 / rate.den() as u128;
    Span(nanos.min(i64::MAX as u128) as i64)
}
