//! Clock reads made as system calls, and attempts to set a clock.

use crate::clocks;
use crate::filter::{ASK_MONITOR, ASK_SET_WALL};
use crate::sys::{clk, errno, nr, sys, Timespec};
use crate::trap::Call;
use crate::user;

/// clock_gettime(2).
pub fn gettime(call: &Call) -> isize {
    let value = match clocks::read(call.args[0] as i32) {
        Ok(value) => value,
        Err(error) => return error,
    };
    user::write_timespec(call.args[1], value).err().unwrap_or(0)
}

/// gettimeofday(2).
pub fn gettimeofday(call: &Call) -> isize {
    let [out, zone, ..] = call.args;
    if out != 0 {
        let snapshot = clocks::snapshot();
        let wall = clocks::wall_timespec(&snapshot, snapshot.now());
        let value = Timespec { secs: wall.secs, nanos: wall.nanos / 1000 };
        if let Err(error) = user::write_timespec(out, value) {
            return error;
        }
    }
    if zone != 0 {
        // SAFETY: the kernel checks the pointer.
        return unsafe { sys!(nr::GETTIMEOFDAY, 0u64, zone) };
    }
    0
}

/// time(2).
pub fn time(call: &Call) -> isize {
    let secs = clocks::seconds();
    if call.args[0] != 0 {
        if let Err(error) = user::write_u64(call.args[0], secs as u64) {
            return error;
        }
    }
    secs as isize
}

/// clock_settime, settimeofday, adjtimex, clock_adjtime: a program that may set clocks sets its container's wall clock.
/// Reading through adjtimex is the kernel's; disciplining the clock is refused.
pub fn set(call: &Call) -> isize {
    match call.nr {
        nr::ADJTIMEX => adjust(call, clk::REALTIME, call.args[0]),
        nr::CLOCK_ADJTIME => adjust(call, call.args[0] as i32, call.args[1]),
        nr::CLOCK_SETTIME => match (call.args[0] as i32, user::read_timespec(call.args[1])) {
            (_, Err(error)) => error,
            (clk::REALTIME, Ok(new)) if new.to_span().is_some() => set_wall(new),
            _ => -errno::EINVAL,
        },
        _ => match (call.args[0], call.args[1]) {
            // A time zone alone, or nothing: nobody's time.
            (0, 0) => 0,
            (0, zone) => user::read_u64(zone).err().unwrap_or(-errno::EPERM),
            (at, _) => match user::read_timespec(at) {
                Err(error) => error,
                Ok(new) if new.secs < 0 || !(0..1_000_000).contains(&new.nanos) => -errno::EINVAL,
                Ok(new) => set_wall(Timespec { secs: new.secs, nanos: new.nanos * 1000 }),
            },
        },
    }
}

/// Has the monitor step the container's wall clock to `new`: the page is read-only here.
fn set_wall(new: Timespec) -> isize {
    if !may_set_clocks() {
        return -errno::EPERM;
    }
    // SAFETY: numbers only. Without a monitor the kernel says ENOSYS.
    unsafe { sys!(ASK_MONITOR, ASK_SET_WALL, new.secs, new.nanos) }
}

/// CAP_SYS_TIME in force.
fn may_set_clocks() -> bool {
    const CAPGET: u32 = 125;
    const CAP_SYS_TIME: u32 = 25;
    const VERSION_3: u64 = 0x2008_0522;
    let header = [VERSION_3];
    // Effective, permitted, inheritable; twice, for the low and the high capabilities.
    let mut sets = [0u32; 6];
    // SAFETY: reads the header, writes the sets.
    let result = unsafe { sys!(CAPGET, header.as_ptr(), sets.as_mut_ptr()) };
    result == 0 && sets[0] & 1 << CAP_SYS_TIME != 0
}

/// struct timex begins with `modes`; its time stands at byte 72, and microseconds or nanoseconds by its status.
fn adjust(call: &Call, clock: i32, at: u64) -> isize {
    const TIME_AT: u64 = 72;
    const STATUS_AT: u64 = 40;
    const STA_NANO: u64 = 0x2000;
    let modes = match user::read_u64(at) {
        Ok(word) => word as u32,
        Err(error) => return error,
    };
    const ADJ_OFFSET_SS_READ: u32 = 0xa001;
    if modes != 0 && modes != ADJ_OFFSET_SS_READ {
        return -errno::EPERM;
    }
    let result = call.by_kernel();
    if result >= 0 && clock == clk::REALTIME {
        let wall = clocks::read(clk::REALTIME).unwrap_or_default();
        let nano = user::read_u64(at + STATUS_AT).unwrap_or(0) & STA_NANO != 0;
        let value =
            Timespec { secs: wall.secs, nanos: if nano { wall.nanos } else { wall.nanos / 1000 } };
        if let Err(error) = user::write_timespec(at + TIME_AT, value) {
            return error;
        }
    }
    result
}
