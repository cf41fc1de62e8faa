//! Clock reads made as system calls.

use crate::call::Call;
use crate::clocks;
use crate::read;
use crate::sys::{sys, ClockId, SysResult, Sysno, Timespec, Timeval, UserPtr};
use crate::user::Access;

/// clock_gettime(2).
pub fn clock_gettime(_: &Call, clock: ClockId, out: UserPtr<Timespec>) -> SysResult {
    out.write(read::clock_time(clock)?)?;
    Ok(0)
}

/// gettimeofday(2).
pub fn gettimeofday(
    _: &Call,
    out: Option<UserPtr<Timeval>>,
    zone: Option<UserPtr<[i32; 2]>>,
) -> SysResult {
    if let Some(out) = out {
        let snapshot = clocks::snapshot();
        let wall = clocks::wall_timespec(&snapshot, snapshot.now());
        out.write(Timeval::from_timespec(wall))?;
    }
    if zone.is_some() {
        // SAFETY: the kernel checks the pointer.
        return unsafe { sys!(Sysno::gettimeofday, 0, zone) };
    }
    Ok(0)
}

/// time(2).
pub fn time(_: &Call, out: Option<UserPtr<i64>>) -> SysResult {
    time_into(out)
}

/// The same for a call without a trap.
pub fn time_into(out: Option<UserPtr<i64>>) -> SysResult {
    let secs = read::seconds();
    if let Some(out) = out {
        out.write(secs)?;
    }
    Ok(secs as isize)
}
