//! Clock reads made as system calls.

use crate::clocks;
use crate::sys::{sys, Sysno, Timespec};
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
        return unsafe { sys!(Sysno::gettimeofday, 0u64, zone) };
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
