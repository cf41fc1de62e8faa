//! Attempts to set a clock: clock_settime, settimeofday, adjtimex, clock_adjtime.
//!
//! A program that may set clocks sets its container's wall clock, by way of the monitor: the page is read-only here. Bad
//! arguments are refused in the order in which the kernel looks at them. Nothing here sets a clock of the host.

use crate::call::Call;
use crate::filter::{ASK_ADJTIME, ASK_MONITOR, ASK_SET_WALL, ASK_STEP_WALL};
use crate::layout::clock;
use crate::process;
use crate::read;
use crate::sys::{
    self, sys, AdjModes, ClockId, Errno, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use crate::user::{self, Access};
use lorentz_clock::{MAX_SETTABLE_SECS, NANOS_PER_SEC};
use lorentz_syscalls::timex::{status, Timex};

const NANOS_PER_MICRO: i64 = 1000;

/// clock_settime(2).
pub fn clock_settime(call: &Call, clock: ClockId, new: UserPtr<Timespec>) -> SysResult {
    if clock != ClockId::REALTIME {
        return on_other_clock(call, clock);
    }
    let new = new.read()?;
    if !is_settable(new) {
        return Err(Errno::EINVAL);
    }
    if !may_set_clocks() {
        return Err(Errno::EPERM);
    }
    ask_monitor(ASK_SET_WALL, new)
}

/// A clock other than the wall clock: the kernel says what is wrong. A PTP device's clock shows its own time inside, and is set as
/// natively. The kernel's auxiliary clocks, where it has them, are the host's, and not for a container to set.
fn on_other_clock(call: &Call, clock: ClockId) -> SysResult {
    if clock.is_auxiliary() && sys::clock_gettime(clock).is_ok() {
        return Err(Errno::EPERM);
    }
    call.by_kernel()
}

/// struct timezone: minutes west of Greenwich, and a number that has no use any more.
pub type Timezone = [u32; 2];

/// settimeofday(2).
pub fn settimeofday(
    _: &Call,
    time: Option<UserPtr<Timeval>>,
    zone: Option<UserPtr<Timezone>>,
) -> SysResult {
    let time = match time.map(Access::read).transpose()? {
        // A whole second of microseconds is invalid too; the kernel sees that later.
        Some(time) if !(0..=1_000_000).contains(&time.micros) => return Err(Errno::EINVAL),
        time => time.map(Timeval::to_timespec),
    };
    let zone = zone.map(Access::read).transpose()?;
    if time.is_some_and(|time| !is_settable(time)) {
        return Err(Errno::EINVAL);
    }
    if !may_set_clocks() {
        return Err(Errno::EPERM);
    }
    if let Some(zone) = zone {
        check_zone(zone)?;
    }
    time.map_or(Ok(0), |time| ask_monitor(ASK_SET_WALL, time))
}

/// Refuses a struct timezone that is out of range, or not the kernel's own, of which there is one for the whole machine.
fn check_zone(zone: Timezone) -> SysResult<()> {
    const MAX_MINUTES: i32 = 15 * 60;
    if !(-MAX_MINUTES..=MAX_MINUTES).contains(&(zone[0] as i32)) {
        return Err(Errno::EINVAL);
    }
    let mut kernels: Timezone = [0; 2];
    // SAFETY: writes eight bytes.
    let _ = unsafe { sys!(Sysno::gettimeofday, 0, &raw mut kernels) };
    if zone == kernels {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// A time that the kernel lets a wall clock be set to.
fn is_settable(new: Timespec) -> bool {
    (0..MAX_SETTABLE_SECS).contains(&new.secs) && (0..NANOS_PER_SEC).contains(&new.nanos)
}

/// Has the monitor set or step the wall clock. It answers EINVAL where that would be before CLOCK_MONOTONIC. Without a monitor the
/// kernel says ENOSYS.
fn ask_monitor(request: u64, time: Timespec) -> SysResult {
    // SAFETY: numbers only.
    unsafe { sys!(ASK_MONITOR, request, time.secs, time.nanos) }
}

fn may_set_clocks() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    clock().policy().may_set_clock || process::has_capability(CAP_SYS_TIME)
}

/// Everything that disciplines a clock: offset, frequency, errors, status, time constant, TAI, tick.
const DISCIPLINE: AdjModes = AdjModes::ADJ_OFFSET
    .with(AdjModes::ADJ_FREQUENCY)
    .with(AdjModes::ADJ_MAXERROR)
    .with(AdjModes::ADJ_ESTERROR)
    .with(AdjModes::ADJ_STATUS)
    .with(AdjModes::ADJ_TIMECONST)
    .with(AdjModes::ADJ_TAI)
    .with(AdjModes::ADJ_TICK);

fn read_timex(from: UserPtr<Timex>) -> SysResult<Timex> {
    let mut bytes = [0; Timex::LEN];
    user::read_bytes(from.field(0), &mut bytes)?;
    Ok(Timex::from_bytes(bytes))
}

/// adjtimex(2).
pub fn adjtimex(_: &Call, timex: UserPtr<Timex>) -> SysResult {
    adjust(read_timex(timex)?, timex)
}

/// clock_adjtime(2).
pub fn clock_adjtime(call: &Call, clock: ClockId, timex: UserPtr<Timex>) -> SysResult {
    let read = read_timex(timex)?;
    if clock != ClockId::REALTIME {
        return on_other_clock(call, clock);
    }
    adjust(read, timex)
}

/// The monitor carries it out on the container's clock. It answers ENOSYS where it cannot.
fn adjust(timex: Timex, out: UserPtr<Timex>) -> SysResult {
    let mut answer = timex;
    // SAFETY: the monitor reads and writes this copy.
    match unsafe { sys!(ASK_MONITOR, ASK_ADJTIME, &raw mut answer) } {
        Err(Errno::ENOSYS) => adjust_shared(timex, out),
        Err(refused) => Err(refused),
        Ok(state) => {
            out.write(answer)?;
            Ok(state)
        }
    }
}

/// A clock of several containers may be stepped. All that disciplines it is refused; reads show the host's state.
fn adjust_shared(timex: Timex, out: UserPtr<Timex>) -> SysResult {
    timex.check(may_set_clocks())?;
    let modes = timex.modes();
    let reads_adjtime = modes.contains(AdjModes::ADJ_ADJTIME);
    let disciplines = match reads_adjtime {
        true => !modes.contains(AdjModes::ADJ_READONLY),
        false if modes.contains(AdjModes::ADJ_SETOFFSET) => modes.intersects(DISCIPLINE),
        false => {
            let units = AdjModes::ADJ_NANO.with(AdjModes::ADJ_MICRO);
            modes.intersects(DISCIPLINE.with(units))
        }
    };
    if disciplines {
        return Err(Errno::EPERM);
    }
    if let Some((secs, nanos)) = timex.step() {
        ask_monitor(ASK_STEP_WALL, Timespec { secs, nanos })?;
    }
    let read_only = match reads_adjtime {
        true => AdjModes::ADJ_ADJTIME.with(AdjModes::ADJ_READONLY).with(AdjModes::ADJ_SINGLESHOT),
        false => AdjModes::new(0),
    };
    let mut reported = timex.with_modes(read_only);
    // A copy: what the program has there may change meanwhile, and must set no clock of the host.
    // SAFETY: reads and writes the copy.
    let result = unsafe { sys!(Sysno::adjtimex, &raw mut reported)? };
    let wall = read::clock_time(ClockId::REALTIME).unwrap_or_default();
    let unit = if reported.status & status::NANO != 0 { 1 } else { NANOS_PER_MICRO };
    (reported.secs, reported.fraction) = (wall.secs, wall.nanos / unit);
    out.write(reported.with_modes(modes))?;
    Ok(result)
}
