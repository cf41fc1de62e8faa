//! Reading and writing the program's memory where it may have given a bad pointer.
//!
//! A fault inside the trap handler would end the program where the kernel would have said EFAULT. So the
//! kernel is asked first, by a call that only copies: each of those below fails for another reason right after
//! it has copied, or writes what is overwritten at once. What it found readable is then read directly.

use crate::sys::{clk, errno, nr, sys, Itimerspec, Timespec};

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
    let result = unsafe { sys!(nr::FUTEX, MISALIGNED, FUTEX_WAIT, 0u64, at) };
    if result == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just read these 16 bytes.
    Ok(unsafe { (at as *const Timespec).read_unaligned() })
}

/// Writes a timespec or timeval to the program.
pub fn write_timespec(at: u64, value: Timespec) -> Result<(), isize> {
    // SAFETY: clock_gettime writes 16 bytes or says EFAULT.
    if unsafe { sys!(nr::CLOCK_GETTIME, clk::MONOTONIC as i64, at) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just written these 16 bytes.
    unsafe { (at as *mut Timespec).write_unaligned(value) };
    Ok(())
}

/// Copies an itimerspec or itimerval from the program.
pub fn read_itimer(at: u64) -> Result<Itimerspec, isize> {
    let at = given(at)?;
    const NO_FD: i64 = -1;
    // SAFETY: timerfd_settime copies the setting, then refuses the descriptor.
    if unsafe { sys!(nr::TIMERFD_SETTIME, NO_FD, 0u64, at, 0u64) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just read these 32 bytes.
    Ok(unsafe { (at as *const Itimerspec).read_unaligned() })
}

/// Writes an itimerspec or itimerval to the program.
pub fn write_itimer(at: u64, value: Itimerspec) -> Result<(), isize> {
    const ITIMER_PROF: u64 = 2;
    // SAFETY: getitimer writes 32 bytes or says EFAULT.
    if unsafe { sys!(nr::GETITIMER, ITIMER_PROF, at) } == FAULT {
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
    if unsafe { sys!(nr::RT_SIGPROCMASK, NO_SUCH_HOW, at, 0u64, 8u64) } == FAULT {
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
    if unsafe { sys!(nr::RT_SIGPROCMASK, SIG_BLOCK, 0u64, at, 8u64) } == FAULT {
        return Err(FAULT);
    }
    // SAFETY: the kernel has just written these 8 bytes.
    unsafe { (at as *mut u64).write_unaligned(value) };
    Ok(())
}

/// Copies `into.len()` bytes from the program by one call; false where that is not possible.
pub fn read_bytes(at: u64, into: &mut [u8]) -> bool {
    #[repr(C)]
    struct Iovec(u64, u64);
    let local = Iovec(into.as_mut_ptr() as u64, into.len() as u64);
    let remote = Iovec(at, into.len() as u64);
    let pid = crate::sys::getpid();
    // SAFETY: writes to `into`; reads from this process's own memory or says EFAULT.
    let got = unsafe {
        sys!(
            nr::PROCESS_VM_READV,
            pid,
            &local as *const Iovec,
            1u64,
            &remote as *const Iovec,
            1u64,
            0u64
        )
    };
    got == into.len() as isize
}
