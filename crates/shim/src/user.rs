//! Reading and writing the program's memory where it may have given a bad pointer.
//!
//! A fault inside the trap handler would end the program where the kernel would have said EFAULT. So the
//! kernel is asked first, by a call that only copies: each of those below fails for another reason right after
//! it has copied, or writes what is overwritten at once. What it found readable is then read directly.

use crate::sys::{clk, errno, sys, Itimerspec, Sysno, Timespec};

/// EFAULT, as a system call returns it.
pub const FAULT: isize = -errno::EFAULT;

/// The calls below take a null pointer for an argument that is not given, and copy nothing.
fn given(at: u64) -> Result<u64, isize> {
    if at == 0 {
        Err(FAULT)
    } else {
        Ok(at)
    }
}

/// Copies a timespec or timeval from the program.
pub fn read_timespec(at: u64) -> Result<Timespec, isize> {
    let at = given(at)?;
    const FUTEX_WAIT: u64 = 0;
    const MISALIGNED: u64 = 1;
    // SAFETY: FUTEX_WAIT copies the timeout, then refuses the misaligned address.
    let result = unsafe { sys!(Sysno::futex, MISALIGNED, FUTEX_WAIT, 0u64, at) };
    if result == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just read these 16 bytes.
    Ok(unsafe { (at as *const Timespec).read_unaligned() })
}

/// Writes a timespec or timeval to the program.
pub fn write_timespec(at: u64, value: Timespec) -> Result<(), isize> {
    // SAFETY: clock_gettime writes 16 bytes or says EFAULT.
    if unsafe { sys!(Sysno::clock_gettime, clk::MONOTONIC as i64, at) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just written these 16 bytes.
    unsafe { (at as *mut Timespec).write_unaligned(value) };
    Ok(())
}

/// A pointer to a timespec that the kernel refuses with `error`, as it refuses the program's own. A call that is made with it
/// tells which of several errors the kernel finds first, and never waits.
pub fn refused_timespec(error: isize) -> u64 {
    static INVALID: Timespec = Timespec { secs: 0, nanos: -1 };
    const LAST_PAGE: u64 = -4096i64 as u64;
    match error {
        FAULT => LAST_PAGE,
        _ => &INVALID as *const Timespec as u64,
    }
}

/// Copies an itimerspec or itimerval from the program.
pub fn read_itimer(at: u64) -> Result<Itimerspec, isize> {
    let at = given(at)?;
    const NO_FD: i64 = -1;
    // SAFETY: timerfd_settime copies the setting, then refuses the descriptor.
    if unsafe { sys!(Sysno::timerfd_settime, NO_FD, 0u64, at, 0u64) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just read these 32 bytes.
    Ok(unsafe { (at as *const Itimerspec).read_unaligned() })
}

/// Writes an itimerspec or itimerval to the program.
pub fn write_itimer(at: u64, value: Itimerspec) -> Result<(), isize> {
    const ITIMER_PROF: u64 = 2;
    // SAFETY: getitimer writes 32 bytes or says EFAULT.
    if unsafe { sys!(Sysno::getitimer, ITIMER_PROF, at) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just written these 32 bytes.
    unsafe { (at as *mut Itimerspec).write_unaligned(value) };
    Ok(())
}

/// Copies a signal set from the program.
pub fn read_sigset(at: u64) -> Result<u64, isize> {
    let at = given(at)?;
    const NO_SUCH_HOW: u64 = 99;
    // SAFETY: rt_sigprocmask copies the set, then refuses `how`.
    if unsafe { sys!(Sysno::rt_sigprocmask, NO_SUCH_HOW, at, 0u64, 8u64) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just read these 8 bytes.
    Ok(unsafe { (at as *const u64).read_unaligned() })
}

/// Copies eight bytes from the program.
pub fn read_u64(at: u64) -> Result<u64, isize> {
    read_sigset(at)
}

/// Writes eight bytes (a signal set, a count of seconds) to the program.
pub fn write_u64(at: u64, value: u64) -> Result<(), isize> {
    let at = given(at)?;
    const SIG_BLOCK: u64 = 0;
    // SAFETY: rt_sigprocmask without a new set writes the old one, 8 bytes, or says EFAULT.
    if unsafe { sys!(Sysno::rt_sigprocmask, SIG_BLOCK, 0u64, at, 8u64) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just written these 8 bytes.
    unsafe { (at as *mut u64).write_unaligned(value) };
    Ok(())
}

/// Writes `bytes`, 16 or a multiple of it, to the program.
pub fn write_words(at: u64, bytes: &[Timespec]) -> Result<(), isize> {
    const LEN: u64 = core::mem::size_of::<Timespec>() as u64;
    (0u64..).zip(bytes).try_for_each(|(i, pair)| write_timespec(at.wrapping_add(i * LEN), *pair))
}

/// Copies `into.len()` bytes from the program; false where that is not possible. At least eight.
pub fn read_bytes(at: u64, into: &mut [u8]) -> bool {
    if !is_readable(at, into.len() as u64) {
        return false;
    }
    // SAFETY: the kernel has just read these bytes.
    unsafe { core::ptr::copy_nonoverlapping(at as *const u8, into.as_mut_ptr(), into.len()) };
    true
}

/// Whether `len` bytes, eight or more, can be read at `at`. Asked of semtimedop: it copies its operations, then refuses the
/// semaphore. (process_vm_readv would copy for us, but a program's own filter, which the image is let through, would then keep
/// nobody from reading other processes.)
fn is_readable(at: u64, len: u64) -> bool {
    const OPERATION: u64 = 6;
    const MOST: u64 = 500;
    let Some(end) = at.checked_add(len) else { return false };
    let mut from = at;
    while from < end {
        let count = ((end - from) / OPERATION).clamp(1, MOST);
        // The last one may overlap with those before.
        let begin = from.min(end - OPERATION);
        // SAFETY: reads the operations only.
        let result = unsafe { sys!(Sysno::semtimedop, NO_SEMAPHORE, begin, count, 0u64) };
        match -result {
            errno::EINVAL => {}
            errno::EFAULT => return false,
            // A kernel without semaphores, or with a lower limit.
            _ => return is_readable_by_words(at, len),
        }
        from = begin + count * OPERATION;
    }
    true
}

/// No semaphore set has this number.
pub const NO_SEMAPHORE: i64 = -1;

fn is_readable_by_words(at: u64, len: u64) -> bool {
    let last = at + len - 8;
    (at..last).step_by(8).chain([last]).all(|word| read_u64(word).is_ok())
}
