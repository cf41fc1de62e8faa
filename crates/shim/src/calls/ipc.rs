//! Signals, semaphores, message queues and asynchronous I/O waited for with a timeout.

use crate::call::Call;
use crate::clocks::{self, Timebase};
use crate::signals::{waiting_mask_of, MaskAndSize};
use crate::sys::{request, sig, Errno, SigSet, Siginfo, SysResult, Sysno, Timespec, UserPtr};
use crate::timeout::Timeout;
use crate::user::{self, Access};
use crate::wait::{self, Masking};
use lorentz_clock::{Deadline, Span, NANOS_PER_SEC};

/// rt_sigtimedwait(2). The signals of ours are not the program's to take.
pub fn rt_sigtimedwait(
    call: &Call,
    set: UserPtr<SigSet>,
    info: UserPtr<Siginfo>,
    timeout: Option<UserPtr<Timespec>>,
    size: usize,
) -> SysResult {
    if size != SigSet::LEN {
        return Err(Errno::EINVAL);
    }
    let set = set.read()?.without(sig::OURS);
    let deadline = call.deadline(timeout)?;
    wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut request!(Sysno::rt_sigtimedwait, &raw const set, info, 0, size),
        &mut Timeout::length(2),
        |result| result == Err(Errno::EAGAIN),
    )
}

/// struct sembuf: the semaphore, the operation, the flags.
pub type SemBuf = [i16; 3];

/// semtimedop(2).
pub fn semtimedop(
    call: &Call,
    id: i32,
    operations: UserPtr<SemBuf>,
    count: u32,
    timeout: Option<UserPtr<Timespec>>,
) -> SysResult {
    const TIMEOUT: usize = 3;
    let deadline = match call.deadline(timeout) {
        Ok(deadline) => deadline,
        Err(error) => {
            // The kernel may find an error in the operations first.
            // SAFETY: the kernel does not read the timeout, or reads one of ours. The call does not wait.
            return unsafe { call.by_kernel_with(TIMEOUT, user::refused_timespec(error)) };
        }
    };
    wait::wait(
        call,
        deadline,
        Masking::Interrupts,
        &mut request!(Sysno::semtimedop, id, operations, count),
        &mut Timeout::length(TIMEOUT),
        // A refused IPC_NOWAIT operation says EAGAIN too.
        |result| result == Err(Errno::EAGAIN) && !refuses_to_wait(operations, count),
    )
}

/// Whether any of the semaphore operations carries IPC_NOWAIT.
fn refuses_to_wait(operations: UserPtr<SemBuf>, count: u32) -> bool {
    const IPC_NOWAIT: i16 = 0o4000;
    (0..count).any(|i| {
        // SAFETY: the kernel has just read these operations.
        let [_, _, flags] = unsafe { operations.element(i.into()).get() };
        flags & IPC_NOWAIT != 0
    })
}

/// mq_timedsend(2) and mq_timedreceive(2): absolute wall time, which the kernel takes by its own wall clock.
pub fn mq_timed(call: &Call) -> SysResult {
    const TIMEOUT: usize = 4;
    let timeout: UserPtr<Timespec> = call.arg(TIMEOUT);
    let deadline = clocks::absolute(timeout.read()?, Timebase::Wall(0)).ok_or(Errno::EINVAL)?;
    wait::wait(
        call,
        deadline,
        Masking::Restarts,
        &mut call.request(),
        &mut Timeout::host_wall(TIMEOUT),
        |result| result == Err(Errno::ETIMEDOUT),
    )
}

/// msgctl, shmctl and semctl that describe an object: the shim makes the times in the kernel's answer virtual.
pub fn stat(call: &Call) -> SysResult {
    let result = call.by_kernel()?;
    // Of the structures msqid64_ds, shmid64_ds and semid64_ds.
    let (object, times): (UserPtr<u8>, &[u64]) = match call.nr {
        Sysno::msgctl => (call.arg(2), &[48, 56, 64]),
        Sysno::shmctl => (call.arg(2), &[56, 64, 72]),
        _ => (call.arg(3), &[48, 64]),
    };
    for offset in times {
        let time: UserPtr<i64> = object.field(*offset);
        // SAFETY: within the structure that the kernel has just written, wherever it lies.
        unsafe { time.set(super::proc_files::ipc_time(time.get())) };
    }
    Ok(result)
}

/// A relative timeout of a call for which the kernel does not check it: it adds the two numbers up, and never comes to an end with
/// a negative sum.
fn unchecked(call: &Call, time: Timespec) -> Deadline {
    let nanos = time.secs.saturating_mul(NANOS_PER_SEC).saturating_add(time.nanos);
    match nanos {
        0.. => call.after(Span(nanos)),
        _ => Deadline::Never,
    }
}

/// io_getevents(2) and io_pgetevents(2). The context and the events are for the kernel alone.
pub fn io_getevents(
    call: &Call,
    context: u64,
    min: i64,
    max: i64,
    events: u64,
    timeout: Option<UserPtr<Timespec>>,
) -> SysResult {
    const TIMEOUT: usize = 4;
    let deadline = match timeout {
        None => Deadline::Never,
        Some(timeout) => unchecked(call, timeout.read()?),
    };
    let mask_and_size: Option<UserPtr<MaskAndSize>> = call.arg(5);
    let mask = match mask_and_size {
        Some(pair) if call.nr == Sysno::io_pgetevents => waiting_mask_of(call, pair.read()?)?,
        _ => call.mask(),
    };
    let mask_and_size: MaskAndSize = [&raw const mask as u64, SigSet::LEN as u64];
    let pair = mask_and_size.as_ptr();
    wait::wait(
        call,
        deadline,
        Masking::ByCall,
        &mut request!(Sysno::io_pgetevents, context, min, max, events, 0, pair),
        &mut Timeout::length(TIMEOUT),
        |result| result == Ok(0),
    )
}
