//! Expiries of a timer descriptor that nobody has read.

use crate::sys::{sys, Errno, Fd, Itimerspec, SysResult, Sysno, Timespec};

/// Takes the expiries from a timer descriptor. Never waits, although a thread of the program may read the descriptor first, or close
/// it.
pub fn take(fd: Fd) -> i64 {
    let mut count = 0u64;
    let taken = read_at_once(fd, &mut count);
    if needs_read(taken) && is_timer(fd) && is_readable(fd) {
        // The kernel is older than 6.10, or the program's own filter denies preadv2.
        // Race: a thread of the program reads first. This thread then waits for the next expiry.
        // SAFETY: writes to `count`.
        let _ = unsafe { sys!(Sysno::read, fd, &raw mut count, size_of::<u64>()) };
    }
    count as i64
}

/// Whether a read that does not wait was refused, and not answered. A descriptor that another thread has closed is an answer: a third one
/// may make another timer in its place, for which nobody but the program waits.
fn needs_read(taken: SysResult) -> bool {
    !matches!(taken, Ok(_) | Err(Errno::EAGAIN | Errno::EBADF | Errno::ECANCELED))
}

/// preadv2(2) with RWF_NOWAIT.
fn read_at_once(fd: Fd, count: &mut u64) -> SysResult {
    const NO_OFFSET: i64 = -1;
    const RWF_NOWAIT: u32 = 8;
    let vector = [count as *mut u64 as usize, size_of::<u64>()];
    // SAFETY: writes to `count`.
    unsafe { sys!(Sysno::preadv2, fd, vector.as_ptr(), 1, NO_OFFSET, NO_OFFSET, RWF_NOWAIT) }
}

/// Whether it is a timer descriptor still, and not another file that has got its number.
fn is_timer(fd: Fd) -> bool {
    let mut value = Itimerspec::default();
    // SAFETY: writes to `value`.
    unsafe { sys!(Sysno::timerfd_gettime, fd, &raw mut value).is_ok() }
}

fn is_readable(fd: Fd) -> bool {
    const POLLIN: u64 = 1;
    let mut poll = u64::from(fd.number()) | POLLIN << 32;
    let at_once = Timespec::default();
    // SAFETY: asks whether it can be read without waiting.
    let found = unsafe { sys!(Sysno::ppoll, &raw mut poll, 1, &raw const at_once, 0, 8) };
    // A descriptor that is closed is found too.
    found == Ok(1) && poll >> 48 & POLLIN != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_is_not_read_again() {
        assert!(!needs_read(Err(Errno::EBADF)));
        assert!(!needs_read(Err(Errno::EAGAIN)));
        assert!(needs_read(Err(Errno::EPERM)), "the program's own filter");
        assert!(!is_readable(Fd::new(100_000)), "poll finds one that is closed");
    }
}
