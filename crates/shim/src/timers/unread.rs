//! Expiries of a timer descriptor that nobody has read.

use crate::sys::{sys, Errno, Fd, SysResult, Sysno, Timespec};

/// Takes the expiries from a timer descriptor. Never waits, although a thread of the program may read the descriptor first.
pub fn take(fd: Fd) -> i64 {
    let mut count = 0u64;
    if !matches!(read_at_once(fd, &mut count), Ok(8) | Err(Errno::EAGAIN)) && is_readable(fd) {
        // The kernel is older than 6.10, or the program's own filter denies preadv2.
        // Race: a thread of the program reads first. This thread then waits for the next expiry.
        // SAFETY: writes to `count`.
        let _ = unsafe { sys!(Sysno::read, fd, &raw mut count, size_of::<u64>()) };
    }
    count as i64
}

/// preadv2(2) with RWF_NOWAIT.
fn read_at_once(fd: Fd, count: &mut u64) -> SysResult {
    const NO_OFFSET: i64 = -1;
    const RWF_NOWAIT: u32 = 8;
    let vector = [count as *mut u64 as usize, size_of::<u64>()];
    // SAFETY: writes to `count`.
    unsafe { sys!(Sysno::preadv2, fd, vector.as_ptr(), 1, NO_OFFSET, NO_OFFSET, RWF_NOWAIT) }
}

fn is_readable(fd: Fd) -> bool {
    const POLLIN: u64 = 1;
    let poll = u64::from(fd.number()) | POLLIN << 32;
    let at_once = Timespec::default();
    // SAFETY: asks whether it can be read without waiting.
    unsafe { sys!(Sysno::ppoll, &raw const poll, 1, &raw const at_once, 0, 8) == Ok(1) }
}
