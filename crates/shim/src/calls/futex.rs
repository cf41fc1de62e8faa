//! Futex waits. Every one becomes a wait until an absolute instant of the host's monotonic clock.

use crate::clocks::Timebase;
use crate::sys::{self, clk, errno, Request, Sysno, Timespec};
use crate::time_namespace::offsets;
use crate::timeout::Timeout;
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use lorentz_clock::Deadline;

const WAIT: u64 = 0;
const LOCK_PI: u64 = 6;
const WAIT_BITSET: u64 = 9;
const WAIT_REQUEUE_PI: u64 = 11;
const LOCK_PI2: u64 = 13;
const PRIVATE: u64 = 128;
const CLOCK_REALTIME: u64 = 256;
const ANY_BIT: u64 = 0xffff_ffff;

/// futex(2), the operations that wait.
pub fn futex(call: &Call) -> isize {
    let [address, op, value, timeout, address2, value3] = call.args;
    let op = u64::from(op as u32);
    let command = op & !(PRIVATE | CLOCK_REALTIME);
    if !matches!(command, WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2 | WAIT_REQUEUE_PI) {
        // A number beyond the commands, of which the filter sees the low bits alone: no such call waits.
        return call.by_kernel();
    }
    let ts = match user::read_timespec(timeout) {
        Ok(ts) => ts,
        Err(error) => return error,
    };
    let Some(span) = ts.to_span() else { return -errno::EINVAL };
    if op & CLOCK_REALTIME != 0 && matches!(command, WAIT | LOCK_PI) {
        return -errno::ENOSYS;
    }
    let on_wall = command == LOCK_PI || op & CLOCK_REALTIME != 0;
    let deadline = match command {
        WAIT => call.after(span),
        _ if on_wall => absolute(ts, Timebase::Wall(0)),
        _ => absolute(ts, monotonic()),
    };
    let private = op & PRIVATE;
    let (op, value3) = match command {
        WAIT => (WAIT_BITSET | private, ANY_BIT),
        LOCK_PI | LOCK_PI2 => (LOCK_PI2 | private, value3),
        _ => (command | private, value3),
    };
    let masking = if op & !PRIVATE == LOCK_PI2 { Masking::Restarts } else { Masking::Interrupts };
    let request = Request::new(Sysno::futex, [address, op, value, 0, address2, value3]);
    wait_until(call, deadline, masking, request, 3)
}

/// futex_wait(2): address, value, mask, flags, timeout, clock.
pub fn futex_wait(call: &Call) -> isize {
    let [address, value, mask, flags, timeout, clock] = call.args;
    match deadline_on(clock as i32, timeout) {
        Err(error) => refused(call, 4, error),
        Ok(deadline) => {
            let args = [address, value, mask, flags, 0, clk::MONOTONIC as u64];
            let request = Request::new(Sysno::futex_wait, args);
            wait_until(call, deadline, Masking::Interrupts, request, 4)
        }
    }
}

/// futex_waitv(2): waiters, count, flags, timeout, clock.
pub fn futex_waitv(call: &Call) -> isize {
    let [waiters, count, flags, timeout, clock, _] = call.args;
    match deadline_on(clock as i32, timeout) {
        Err(error) => refused(call, 3, error),
        Ok(deadline) => {
            let args = [waiters, count, flags, 0, clk::MONOTONIC as u64, 0];
            let request = Request::new(Sysno::futex_waitv, args);
            wait_until(call, deadline, Masking::Interrupts, request, 3)
        }
    }
}

/// A call whose timeout, argument `at`, the kernel refuses with `error`, unless it finds another error before.
fn refused(call: &Call, at: usize, error: isize) -> isize {
    let mut args = call.args;
    args[at] = user::refused_timespec(error);
    // SAFETY: the program's own call; it does not wait.
    unsafe { sys::syscall(call.nr, args) }
}

fn deadline_on(clock: i32, timeout: u64) -> Result<Deadline, isize> {
    let base = match clock {
        clk::REALTIME => Timebase::Wall(0),
        clk::MONOTONIC => monotonic(),
        _ => return Err(-errno::EINVAL),
    };
    let ts = user::read_timespec(timeout)?;
    if ts.to_span().is_none() {
        return Err(-errno::EINVAL);
    }
    Ok(absolute(ts, base))
}

fn monotonic() -> Timebase {
    Timebase::Virtual(offsets().monotonic)
}

fn absolute(ts: Timespec, base: Timebase) -> Deadline {
    super::sleep::absolute(ts, base).unwrap_or(Deadline::Never)
}

/// Makes `request`, whose argument number `argument` is an instant of CLOCK_MONOTONIC.
fn wait_until(
    call: &Call,
    deadline: Deadline,
    masking: Masking,
    mut request: Request,
    argument: usize,
) -> isize {
    let mut timeout = Timeout::monotonic(argument);
    let timed_out = |result| result == -errno::ETIMEDOUT;
    wait::wait(call, deadline, masking, &mut request, &mut timeout, timed_out)
}
