//! Futex waits. Every one becomes a wait until an absolute instant of the host's monotonic clock.

use crate::call::Call;
use crate::clocks::{self, Timebase};
use crate::sys::{request, ClockId, Errno, FutexOp, Request, SysResult, Sysno, Timespec, UserPtr};
use crate::time_namespace::offsets;
use crate::timeout::Timeout;
use crate::user::{self, Access};
use crate::wait::{self, Masking};
use lorentz_clock::Deadline;

const ANY_BIT: u32 = u32::MAX;
/// The places of the timeouts.
const FUTEX_TIMEOUT: usize = 3;
const FUTEX_WAIT_TIMEOUT: usize = 4;
const FUTEX_WAITV_TIMEOUT: usize = 3;

/// futex(2), the operations that wait.
pub fn futex(
    call: &Call,
    address: UserPtr<u32>,
    op: FutexOp,
    value: u32,
    timeout: UserPtr<Timespec>,
    address2: UserPtr<u32>,
    value3: u32,
) -> SysResult {
    const PRIVATE: FutexOp = FutexOp::FUTEX_PRIVATE_FLAG;
    let command = op.command();
    if !matches!(
        command,
        FutexOp::FUTEX_WAIT
            | FutexOp::FUTEX_WAIT_BITSET
            | FutexOp::FUTEX_LOCK_PI
            | FutexOp::FUTEX_LOCK_PI2
            | FutexOp::FUTEX_WAIT_REQUEUE_PI
    ) {
        // A number beyond the commands, of which the filter sees the low bits alone: no such call waits.
        return call.by_kernel();
    }
    let time = timeout.read()?;
    let span = time.to_span().ok_or(Errno::EINVAL)?;
    let is_realtime = op.contains(FutexOp::FUTEX_CLOCK_REALTIME);
    if is_realtime && matches!(command, FutexOp::FUTEX_WAIT | FutexOp::FUTEX_LOCK_PI) {
        return Err(Errno::ENOSYS);
    }
    let on_wall = command == FutexOp::FUTEX_LOCK_PI || is_realtime;
    let deadline = match command {
        FutexOp::FUTEX_WAIT => call.after(span),
        _ if on_wall => absolute(time, Timebase::Wall(0)),
        _ => absolute(time, monotonic()),
    };
    let (command, value3) = match command {
        FutexOp::FUTEX_WAIT => (FutexOp::FUTEX_WAIT_BITSET, ANY_BIT),
        FutexOp::FUTEX_LOCK_PI => (FutexOp::FUTEX_LOCK_PI2, value3),
        other => (other, value3),
    };
    let masking = match command {
        FutexOp::FUTEX_LOCK_PI2 => Masking::Restarts,
        _ => Masking::Interrupts,
    };
    let op = command.with(op.among(PRIVATE));
    let request = request!(Sysno::futex, address, op, value, 0, address2, value3);
    wait_until(call, deadline, masking, request, FUTEX_TIMEOUT)
}

/// futex_wait(2).
pub fn futex_wait(
    call: &Call,
    address: UserPtr<u32>,
    value: u64,
    mask: u64,
    flags: u32,
    timeout: UserPtr<Timespec>,
    clock: ClockId,
) -> SysResult {
    match deadline_on(clock, timeout) {
        Err(error) => refused(call, FUTEX_WAIT_TIMEOUT, error),
        Ok(deadline) => {
            let clock = ClockId::MONOTONIC;
            let request = request!(Sysno::futex_wait, address, value, mask, flags, 0, clock);
            wait_until(call, deadline, Masking::Interrupts, request, FUTEX_WAIT_TIMEOUT)
        }
    }
}

/// futex_waitv(2). The waiters are structures that the kernel alone reads.
pub fn futex_waitv(
    call: &Call,
    waiters: u64,
    count: u32,
    flags: u32,
    timeout: UserPtr<Timespec>,
    clock: ClockId,
) -> SysResult {
    match deadline_on(clock, timeout) {
        Err(error) => refused(call, FUTEX_WAITV_TIMEOUT, error),
        Ok(deadline) => {
            let clock = ClockId::MONOTONIC;
            let request = request!(Sysno::futex_waitv, waiters, count, flags, 0, clock);
            wait_until(call, deadline, Masking::Interrupts, request, FUTEX_WAITV_TIMEOUT)
        }
    }
}

/// Makes a call whose timeout, argument `argument`, the kernel refuses with `error`, unless it finds another error before.
fn refused(call: &Call, argument: usize, error: Errno) -> SysResult {
    // SAFETY: the kernel does not read the timeout, or reads one of ours. The call does not wait.
    unsafe { call.by_kernel_with(argument, user::refused_timespec(error)) }
}

fn deadline_on(clock: ClockId, timeout: UserPtr<Timespec>) -> SysResult<Deadline> {
    let base = match clock {
        ClockId::REALTIME => Timebase::Wall(0),
        ClockId::MONOTONIC => monotonic(),
        _ => return Err(Errno::EINVAL),
    };
    clocks::absolute(timeout.read()?, base).ok_or(Errno::EINVAL)
}

fn monotonic() -> Timebase {
    Timebase::Virtual(offsets().monotonic)
}

fn absolute(time: Timespec, base: Timebase) -> Deadline {
    clocks::absolute(time, base).unwrap_or(Deadline::Never)
}

/// Makes `request`, whose argument number `argument` is an instant of CLOCK_MONOTONIC.
fn wait_until(
    call: &Call,
    deadline: Deadline,
    masking: Masking,
    mut request: Request,
    argument: usize,
) -> SysResult {
    let mut timeout = Timeout::monotonic(argument);
    let timed_out = |result| result == Err(Errno::ETIMEDOUT);
    wait::wait(call, deadline, masking, &mut request, &mut timeout, timed_out)
}
