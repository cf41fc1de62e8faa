//! Reading any clock by its id.

use crate::clocks::{boot, from_virtual, host_by, snapshot, wall_timespec};
use crate::cpu;
use crate::layout::{clock, data, registry};
use crate::spinning;
use crate::sys::{self, ClockId, SysResult, Timespec};
use crate::time_namespace::offsets;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{RealInstant, SkipMode, Snapshot, Span, NANOS_PER_SEC};

/// Whole seconds of the wall clock, by the coarse clock, as the kernel has it.
pub fn seconds() -> i64 {
    pay();
    let snapshot = coarse_snapshot();
    wall_timespec(&snapshot, snapshot.now()).secs
}

/// Where reading a clock costs virtual time, so that a program which spins on it comes to an end: pays.
fn pay() {
    spinning::count_read();
    if clock().leaps_enabled() {
        let skipping = clock().skipping();
        if skipping.mode != SkipMode::Off && skipping.read_cost > Span::ZERO {
            registry().leaps.add_read_cost(skipping.read_cost);
        }
    }
}

/// The clock as it was at the last tick of the host's coarse clock, but not before the piece in force began. The kernel stamps
/// files by the same clock: a file that is written next is never older than this.
fn coarse_snapshot() -> Snapshot {
    let tick = host_by(ClockId::MONOTONIC_COARSE);
    let tick = RealInstant(tick.secs * NANOS_PER_SEC + tick.nanos);
    let look = snapshot();
    Snapshot { real: tick.max(look.segment.real), ..look }
}

/// Reads any clock, or returns the kernel's error.
pub fn clock_time(clock: ClockId) -> SysResult<Timespec> {
    pay();
    let snapshot = match clock {
        ClockId::REALTIME_COARSE | ClockId::MONOTONIC_COARSE => coarse_snapshot(),
        _ => snapshot(),
    };
    match clock {
        ClockId::MONOTONIC | ClockId::MONOTONIC_RAW | ClockId::MONOTONIC_COARSE => {
            Ok(from_virtual(snapshot.now().plus(offsets().monotonic)))
        }
        ClockId::REALTIME | ClockId::REALTIME_COARSE => {
            Ok(wall_timespec(&snapshot, snapshot.now()))
        }
        ClockId::BOOTTIME => Ok(from_virtual(boot(&snapshot))),
        ClockId::TAI => {
            let wall = wall_timespec(&snapshot, snapshot.now());
            Ok(Timespec { secs: wall.secs + data().tai.load(Relaxed) as i64, nanos: wall.nanos })
        }
        _ => read_by_kernel(clock, &snapshot),
    }
}

/// The clocks that exist only where the kernel says so: alarm clocks, CPU clocks, devices.
fn read_by_kernel(clock: ClockId, snapshot: &Snapshot) -> SysResult<Timespec> {
    let time = sys::clock_gettime(clock)?;
    match clock {
        ClockId::REALTIME_ALARM => Ok(wall_timespec(snapshot, snapshot.now())),
        ClockId::BOOTTIME_ALARM => Ok(from_virtual(boot(snapshot))),
        _ if clock.is_cpu_clock() => {
            Ok(Timespec::from_span(cpu::reported(clock, time.to_span().unwrap_or(Span::ZERO))))
        }
        // A clock of a device has its own time, which is not virtual.
        _ => Ok(time),
    }
}
