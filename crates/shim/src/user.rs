//! Reading and writing the program's memory where it may have given a bad pointer.
//!
//! A fault inside the trap handler would end the program where the kernel would have said EFAULT. So the
//! kernel is asked first, by a call that only copies: each of those below fails for another reason right after
//! it has copied, or writes bytes that are overwritten at once. The shim then reads the memory directly.

use crate::sys::{
    sys, ClockId, Errno, Fd, FutexOp, ItimerId, Itimerspec, Itimerval, SigHow, SigSet, Sigaction,
    Stack, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use lorentz_syscalls::Timex;

/// A type of the kernel's that is read from the program's memory and written there.
///
/// # Safety
/// Any bytes must be a value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($plain:ty)*) => {$(
        // SAFETY: integers, and structures of integers.
        unsafe impl Plain for $plain {}
    )*};
}

plain! {
    u8 i16 i32 u32 i64 u64 usize Timespec Timeval Itimerspec Itimerval SigSet Sigaction Stack Timex
}

// SAFETY: as for its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Access to the program's memory behind a pointer. Every access may be misaligned.
pub trait Access<T>: Copy {
    /// Copies the value from the program, or returns EFAULT.
    fn read(self) -> SysResult<T>;

    /// Writes a value to the program, or returns EFAULT.
    fn write(self, value: T) -> SysResult<()>;

    /// Copies the value from the program.
    ///
    /// # Safety
    /// The kernel must have accessed this memory just before, for this call of the program's.
    unsafe fn get(self) -> T;

    /// Writes a value to the program.
    ///
    /// # Safety
    /// The kernel must have accessed this memory just before, for this call of the program's.
    unsafe fn set(self, value: T);
}

impl<T: Plain> Access<T> for UserPtr<T> {
    #[inline(always)]
    fn read(self) -> SysResult<T> {
        const { assert!(matches!(size_of::<T>(), 8 | 16 | 24 | 32)) };
        let at = self.address();
        match size_of::<T>() {
            8 => probe_8(at)?,
            16 => probe_16(at)?,
            24 => probe_16(at).and_then(|()| probe_8(at.wrapping_add(16)))?,
            _ => probe_32(at)?,
        }
        // SAFETY: the kernel has just read these bytes, and any bytes are a value.
        Ok(unsafe { self.get() })
    }

    #[inline(always)]
    fn write(self, value: T) -> SysResult<()> {
        const { assert!(size_of::<T>() == 8 || size_of::<T>().is_multiple_of(16)) };
        let at = self.address();
        match size_of::<T>() {
            8 => overwrite_8(at)?,
            32 => overwrite_32(at)?,
            len => {
                (0..len as u64).step_by(16).try_for_each(|i| overwrite_16(at.wrapping_add(i)))?;
            }
        }
        // SAFETY: the kernel has just written these bytes.
        unsafe { self.set(value) };
        Ok(())
    }

    #[inline(always)]
    unsafe fn get(self) -> T {
        // SAFETY: the caller's promise, and any bytes are a value.
        unsafe { (self.address() as *const T).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn set(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { (self.address() as *mut T).write_unaligned(value) }
    }
}

/// The calls below take a null pointer for an argument that is not given, and copy nothing.
fn given(at: u64) -> SysResult<u64> {
    if at == 0 {
        Err(Errno::EFAULT)
    } else {
        Ok(at)
    }
}

/// EFAULT where the call says so. Other errors mean that it has copied.
fn unless_fault(result: SysResult) -> SysResult<()> {
    match result {
        Err(Errno::EFAULT) => Err(Errno::EFAULT),
        _ => Ok(()),
    }
}

/// Whether 8 bytes can be read.
fn probe_8(at: u64) -> SysResult<()> {
    const NO_SUCH_HOW: i32 = 99;
    let at = given(at)?;
    // SAFETY: rt_sigprocmask copies the set, then refuses `how`.
    unless_fault(unsafe { sys!(Sysno::rt_sigprocmask, NO_SUCH_HOW, at, 0, SigSet::LEN) })
}

/// Whether 16 bytes can be read.
fn probe_16(at: u64) -> SysResult<()> {
    const MISALIGNED: u64 = 1;
    let at = given(at)?;
    // SAFETY: FUTEX_WAIT copies the timeout, then refuses the misaligned address.
    unless_fault(unsafe { sys!(Sysno::futex, MISALIGNED, FutexOp::FUTEX_WAIT, 0, at) })
}

/// Whether 32 bytes can be read.
fn probe_32(at: u64) -> SysResult<()> {
    let at = given(at)?;
    // SAFETY: timerfd_settime copies the setting, then refuses the descriptor.
    unless_fault(unsafe { sys!(Sysno::timerfd_settime, Fd::NONE, 0, at, 0) })
}

/// Whether 8 bytes can be written. Overwrites them.
fn overwrite_8(at: u64) -> SysResult<()> {
    let at = given(at)?;
    // SAFETY: rt_sigprocmask without a new set writes the old one, 8 bytes, or says EFAULT.
    unless_fault(unsafe { sys!(Sysno::rt_sigprocmask, SigHow::SIG_BLOCK, 0, at, SigSet::LEN) })
}

/// Whether 16 bytes can be written. Overwrites them.
fn overwrite_16(at: u64) -> SysResult<()> {
    // SAFETY: clock_gettime writes 16 bytes or says EFAULT.
    unless_fault(unsafe { sys!(Sysno::clock_gettime, ClockId::MONOTONIC, at) })
}

/// Whether 32 bytes can be written. Overwrites them.
fn overwrite_32(at: u64) -> SysResult<()> {
    // SAFETY: getitimer writes 32 bytes or says EFAULT.
    unless_fault(unsafe { sys!(Sysno::getitimer, ItimerId::ITIMER_PROF, at) })
}

/// Copies a value from the program, or returns EFAULT, without a question to the kernel where the value lies on this page of the
/// stack.
#[inline(always)]
pub fn read_nearby<T: Plain>(from: UserPtr<T>) -> SysResult<T> {
    match is_on_this_page(from) {
        // SAFETY: the page is that of a stack in use.
        true => Ok(unsafe { from.get() }),
        false => from.read(),
    }
}

/// Whether a value lies on the page of the stack that this function runs on. That page can be read and written: a pointer to a
/// local variable of the program's needs no question to the kernel.
#[inline(always)]
pub fn is_on_this_page<T: Plain>(value: UserPtr<T>) -> bool {
    const PAGE: u64 = 4096;
    let here = 0u8;
    let page = (&raw const here as u64) / PAGE;
    let (first, last) = (value.address(), value.address().wrapping_add(size_of::<T>() as u64 - 1));
    first / PAGE == page && last / PAGE == page
}

/// A pointer to a timespec that the kernel refuses with `error`, as it refuses the program's own. A call that is made with it
/// tells which of several errors the kernel finds first, and never waits.
pub fn refused_timespec(error: Errno) -> UserPtr<Timespec> {
    static INVALID: Timespec = Timespec { secs: 0, nanos: -1 };
    const LAST_PAGE: u64 = -4096i64 as u64;
    match error {
        Errno::EFAULT => UserPtr::new(LAST_PAGE),
        _ => UserPtr::to(&INVALID),
    }
}

/// Copies `into.len()` bytes from the program, or returns EFAULT. At least eight.
pub fn read_bytes(from: UserPtr<u8>, into: &mut [u8]) -> SysResult<()> {
    let at = from.address();
    if !is_readable(at, into.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the kernel has just read these bytes.
    unsafe { core::ptr::copy_nonoverlapping(at as *const u8, into.as_mut_ptr(), into.len()) };
    Ok(())
}

/// Whether `len` bytes, eight or more, can be read at `at`. Asked of semtimedop: it copies its operations, then refuses the
/// semaphore. (process_vm_readv would copy for us, but a program's own filter, which the image is let through, would then keep
/// nobody from reading other processes.)
fn is_readable(at: u64, len: u64) -> bool {
    const OPERATION: u64 = 6;
    const MAX_OPERATIONS: u64 = 500;
    let Some(end) = at.checked_add(len) else { return false };
    let mut from = at;
    while from < end {
        let count = ((end - from) / OPERATION).clamp(1, MAX_OPERATIONS);
        // The last one may overlap with those before.
        let begin = from.min(end - OPERATION);
        // SAFETY: reads the operations only.
        match unsafe { sys!(Sysno::semtimedop, NO_SEMAPHORE, begin, count, 0) } {
            Err(Errno::EINVAL) => {}
            Err(Errno::EFAULT) => return false,
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
    (at..last).step_by(8).chain([last]).all(|word| probe_8(word).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_pointer_is_efault() {
        for bad in [0, 1, u64::MAX - 3, 0xffff_8000_0000_0000] {
            assert_eq!(UserPtr::<u64>::new(bad).read(), Err(Errno::EFAULT));
            assert_eq!(UserPtr::<Timespec>::new(bad).read(), Err(Errno::EFAULT));
            assert_eq!(UserPtr::<Stack>::new(bad).read(), Err(Errno::EFAULT));
            assert!(UserPtr::<Itimerspec>::new(bad).read().is_err());
            assert_eq!(UserPtr::<u64>::new(bad).write(0), Err(Errno::EFAULT));
            assert!(UserPtr::<Itimerspec>::new(bad).write(Itimerspec::default()).is_err());
            assert_eq!(UserPtr::<[u64; 26]>::new(bad).write([0; 26]), Err(Errno::EFAULT));
            assert_eq!(read_bytes(UserPtr::new(bad), &mut [0; 9]), Err(Errno::EFAULT));
        }
        assert_eq!(UserPtr::<Timespec>::new(1).write(Timespec::default()), Err(Errno::EFAULT));
    }

    /// Without a system call, so that Miri runs it.
    #[test]
    fn memory_is_copied_at_any_alignment() {
        for offset in 0..16 {
            let mut memory = [[0x55_u8; 16]; 4];
            let start = &raw mut memory as u64;
            let odd: UserPtr<[u64; 4]> = UserPtr::new(start + offset);
            // SAFETY: all of these lie within the memory.
            unsafe {
                odd.set([1, 2, 3, 4]);
                assert_eq!(odd.get(), [1, 2, 3, 4]);
                assert_eq!(odd.field::<Timespec>(8).get(), Timespec { secs: 2, nanos: 3 });
                assert_eq!(odd.field::<[Timeval; 2]>(0).get()[1], Timeval { secs: 3, micros: 4 });
                assert_eq!(odd.field::<u32>(7).get(), 0x200);
                odd.field::<i16>(31).set(-1);
            }
            let bytes = memory.as_flattened();
            let end = offset as usize + 33;
            assert!(bytes[..offset as usize].iter().all(|byte| *byte == 0x55), "offset {offset}");
            assert_eq!(bytes[end - 2..end], [0xff; 2], "offset {offset}");
            assert!(bytes[end..].iter().all(|byte| *byte == 0x55), "offset {offset}");
        }
    }

    #[test]
    fn memory_is_read_and_written_wherever_it_lies() {
        let mut memory = [0x55u8; 64];
        let odd: UserPtr<[u64; 4]> = UserPtr::new(&raw mut memory as u64 + 3);
        assert_eq!(odd.write([1, 2, 3, 4]), Ok(()));
        assert_eq!(odd.read(), Ok([1, 2, 3, 4]));
        assert_eq!(odd.field::<Timespec>(8).read(), Ok(Timespec { secs: 2, nanos: 3 }));
        assert_eq!(odd.field::<[u64; 3]>(8).read(), Ok([2, 3, 4]));
        assert_eq!(odd.field::<SigSet>(24).write(SigSet::of(1)), Ok(()));
        assert_eq!(odd.field::<u64>(24).read(), Ok(1));
        let mut copy = [0; 11];
        assert_eq!(read_bytes(odd.field(0), &mut copy), Ok(()));
        assert_eq!(copy, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
        assert_eq!((memory[2], memory[35]), (0x55, 0x55));
    }
}
