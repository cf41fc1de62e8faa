//! The fd table: properties of file descriptors, and the filters that the shim adds when one of them needs it.

use crate::filter::{flag, Extra, Program};
use crate::install_filter::{install, set_no_new_privs};
use crate::layout::{data, registry, FdEntry, FD_TABLE_LEN};
use crate::sys::{Errno, Fd, Stat};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lorentz_clock::{failpoint, Failpoint};

/// A socket with timestamps on its messages.
pub const TIMESTAMPS: u32 = 1;
/// A socket with a receive timeout.
pub const RECEIVE_TIMEOUT: u32 = 2;
/// A socket with a send timeout.
pub const SEND_TIMEOUT: u32 = 4;
/// A timer descriptor that a step of the wall clock cancels.
pub const CANCEL_ON_SET: u32 = 8;
/// Stands for /proc/uptime.
pub const UPTIME: u32 = 16;
/// Stands for another file of /proc. The places of the timeouts hold its numbers.
pub const PROC: u32 = 32;

/// The entry of `fd`, if it has one and still stands for the same file.
pub fn find(fd: Fd) -> Option<&'static FdEntry> {
    let entry = entry_of(fd)?;
    if entry.file.load(Relaxed) == file_of(fd) {
        return Some(entry);
    }
    // It was closed, and the number given to another.
    entry.properties.store(0, Relaxed);
    entry.key.store(0, Release);
    None
}

fn entry_of(fd: Fd) -> Option<&'static FdEntry> {
    let fds = &data().fds;
    let fd = fd.number();
    slots(fd).map(|i| &fds[i]).find(|entry| entry.key.load(Acquire) == fd.wrapping_add(1))
}

/// The identity of a file.
pub fn file_identity(device: u64, inode: u64) -> u64 {
    inode ^ device.rotate_left(40)
}

fn file_of(fd: Fd) -> u64 {
    // The device, then the inode.
    Stat::of(fd).map_or(0, |Stat(words)| file_identity(words[0], words[1]))
}

/// Gives `fd` the property `property`, and returns its entry; none where there is no room.
pub fn add(fd: Fd, property: u32) -> Option<&'static FdEntry> {
    let entry = find(fd).or_else(|| {
        let (fds, fd) = (&data().fds, fd.number());
        let free = |entry: &&FdEntry| {
            entry.key.compare_exchange(0, fd.wrapping_add(1), AcqRel, Relaxed).is_ok()
        };
        slots(fd).map(|i| &fds[i]).find(free)
    })?;
    failpoint(registry(), Failpoint::FdEntryHalf);
    entry.file.store(file_of(fd), Relaxed);
    entry.properties.fetch_or(property, AcqRel);
    Some(entry)
}

/// Takes the property `property` from `fd`.
pub fn remove(fd: Fd, property: u32) {
    if let Some(entry) = find(fd) {
        if entry.properties.fetch_and(!property, AcqRel) & !property == 0 {
            entry.key.store(0, Release);
        }
    }
}

/// Whether `fd` has the property `property`.
pub fn has(fd: Fd, property: u32) -> bool {
    find(fd).is_some_and(|entry| entry.properties.load(Relaxed) & property != 0)
}

/// The places of the table where the entry of `fd` may lie.
pub fn slots(fd: u32) -> impl Iterator<Item = usize> {
    (0..16).map(move |i| (fd as usize + i) % FD_TABLE_LEN)
}

/// Traps the calls of `extra` from now on, in all threads. Where the kernel refuses (the program has given up its
/// privileges since it began), they stay as they are: `docs/limits.md` says what that means. But a daemon that asks for the times at
/// which messages came compares them with its clock: it gets no_new_privs rather than the host's time.
pub fn also_trap(extra: Extra) {
    let filters = &data().extra_filters;
    if filters.load(Acquire) & extra.there() != 0 {
        return;
    }
    failpoint(registry(), Failpoint::BeforeFilter);
    // Two threads that come here at once both add it, and so does the child of a fork in between: it traps the same calls twice.
    let program = Program::of_extra(extra);
    let refused = install(&program, flag::ALL_THREADS) == Err(Errno::EACCES);
    if refused && extra == Extra::Messages {
        set_no_new_privs();
        let _ = install(&program, flag::ALL_THREADS);
    }
    failpoint(registry(), Failpoint::AfterFilter);
    filters.fetch_or(extra.there(), AcqRel);
}
