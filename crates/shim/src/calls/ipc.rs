//! Signals, semaphores, message queues and asynchronous I/O waited for with a timeout.

use crate::clocks::Timebase;
use crate::signals::waiting_mask;
use crate::sys::{errno, sig, sys, Request, Sysno, Timespec};
use crate::timeout::Timeout;
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, Span, NANOS_PER_SEC};

/// A relative timeout at `at`; never where there is none.
fn relative(call: &Call, at: u64) -> Result<Deadline, isize> {
    if at == 0 {
        return Ok(Deadline::Never);
    }
    match user::read_timespec(at)?.to_span() {
        Some(span) => Ok(call.after(span)),
        None => Err(-errno::EINVAL),
    }
}

/// rt_sigtimedwait(2). The signals of ours are not the program's to take.
pub fn rt_sigtimedwait(call: &Call) -> isize {
    let [set, info, timeout, size, ..] = call.args;
    if size != 8 {
        return -errno::EINVAL;
    }
    let (set, deadline) = match (user::read_sigset(set), relative(call, timeout)) {
        (Ok(set), Ok(deadline)) => (set & !sig::OURS, deadline),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let set_at = &set as *const u64 as u64;
    wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut Request::new(Sysno::rt_sigtimedwait, [set_at, info, 0, size, 0, 0]),
        &mut Timeout::length(2),
        |result| result == -errno::EAGAIN,
    )
}

/// semtimedop(2).
pub fn semtimedop(call: &Call) -> isize {
    let [id, operations, count, timeout, ..] = call.args;
    let deadline = match relative(call, timeout) {
        Ok(deadline) => deadline,
        Err(error) => {
            // The kernel may find an error in the operations first.
            let refused = user::refused_timespec(error);
            // SAFETY: the program's own call; it does not wait.
            return unsafe { sys!(Sysno::semtimedop, id, operations, count, refused) };
        }
    };
    wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut Request::new(Sysno::semtimedop, [id, operations, count, 0, 0, 0]),
        &mut Timeout::length(3),
        // A refused IPC_NOWAIT operation says EAGAIN too.
        |result| result == -errno::EAGAIN && !refuses_to_wait(operations, count),
    )
}

/// Whether any of the semaphore operations carries IPC_NOWAIT. struct sembuf is three shorts, the flags last.
fn refuses_to_wait(operations: u64, count: u64) -> bool {
    const IPC_NOWAIT: i16 = 0o4000;
    (0..count as usize).any(|i| {
        // SAFETY: the kernel has just read these operations.
        let flags = unsafe { ((operations as usize + 6 * i + 4) as *const i16).read_unaligned() };
        flags & IPC_NOWAIT != 0
    })
}

/// mq_timedsend(2) and mq_timedreceive(2): absolute wall time, which the kernel takes by its own wall clock.
pub fn mq_timed(call: &Call) -> isize {
    let [queue, message, len, priority, timeout, _] = call.args;
    let ts = match user::read_timespec(timeout) {
        Ok(ts) => ts,
        Err(error) => return error,
    };
    let Some(deadline) = super::sleep::absolute(ts, Timebase::Wall(0)) else {
        return -errno::EINVAL;
    };
    wait::wait(
        call,
        deadline,
        Masking::Restarts,
        &mut Request::new(call.nr, [queue, message, len, priority, 0, 0]),
        &mut Timeout::host_wall(4),
        |result| result == -errno::ETIMEDOUT,
    )
}

/// msgctl, shmctl and semctl that tell of an object: the times in the kernel's answer are made virtual.
pub fn stat(call: &Call) -> isize {
    let result = call.by_kernel();
    if result < 0 {
        return result;
    }
    // Of the structures msqid64_ds, shmid64_ds and semid64_ds.
    let (at, times): (u64, &[u64]) = match call.nr {
        Sysno::msgctl => (call.args[2], &[48, 56, 64]),
        Sysno::shmctl => (call.args[2], &[56, 64, 72]),
        _ => (call.args[3], &[48, 64]),
    };
    for place in times {
        let time = (at + place) as *mut i64;
        // SAFETY: within the structure that the kernel has just written, wherever it lies.
        unsafe { time.write_unaligned(super::proc_files::ipc_time(time.read_unaligned())) };
    }
    result
}

/// A relative timeout of a call for which the kernel does not check it: it adds the two numbers up, and never comes to an end with
/// a negative sum.
fn unchecked(call: &Call, ts: Timespec) -> Deadline {
    let nanos = ts.secs.saturating_mul(NANOS_PER_SEC).saturating_add(ts.nanos);
    match nanos {
        0.. => call.after(Span(nanos)),
        _ => Deadline::Never,
    }
}

/// io_getevents(2) and io_pgetevents(2).
pub fn io_getevents(call: &Call) -> isize {
    let [context, min, max, events, timeout, mask_and_size] = call.args;
    let deadline = match (timeout, user::read_timespec(timeout)) {
        (0, _) => Deadline::Never,
        (_, Ok(ts)) => unchecked(call, ts),
        (_, Err(error)) => return error,
    };
    let mask = match call.nr {
        Sysno::io_pgetevents if mask_and_size != 0 => user::read_timespec(mask_and_size)
            .and_then(|pair| waiting_mask(call, pair.secs as u64, pair.nanos as u64)),
        _ => Ok(call.mask()),
    };
    let mask = match mask {
        Ok(mask) => mask,
        Err(error) => return error,
    };
    let mask_and_size = [&mask as *const u64 as u64, 8];
    let mask_at = mask_and_size.as_ptr() as u64;
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut Request::new(Sysno::io_pgetevents, [context, min, max, events, 0, mask_at]),
        &mut Timeout::length(4),
        |result| result == 0,
    )
}
