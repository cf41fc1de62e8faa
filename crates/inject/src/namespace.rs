//! Process id namespaces: which one a process is in, and the number that it has there.

use crate::shared::SharedClock;
use lorentz_clock::Space;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The process id namespace that a process or thread is in, by its inode; `pid` may be `self`.
///
/// # Errors
///
/// A process that has ended, or may not be looked into.
pub fn of(pid: impl std::fmt::Display) -> io::Result<u32> {
    // The kernel numbers namespaces with 32 bits.
    fs::metadata(format!("/proc/{pid}/ns/pid")).map(|file| file.ino() as u32)
}

/// The number that a process or thread has in its own process id namespace.
///
/// # Errors
///
/// One that has ended.
pub fn number_inside(pid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // From the outermost namespace that the reader sees to its own.
    let own = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last()?.parse().ok());
    own.ok_or_else(|| io::Error::other("the kernel does not tell its number inside"))
}

/// How the programs on a clock name the namespace that `pid` is in, where the monitors are in `own`. One that the clock has
/// no room for is taken for that of the monitors.
pub(crate) fn space_of(
    pid: i32,
    own: u32,
    clock: impl FnOnce() -> io::Result<SharedClock>,
) -> io::Result<Space> {
    let namespace = of(pid)?;
    if namespace == own {
        return Ok(Space::MONITORS);
    }
    Ok(clock()?.registry().spaces.of(namespace).unwrap_or(Space::MONITORS))
}
