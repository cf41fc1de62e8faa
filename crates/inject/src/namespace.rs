//! Process id namespaces: which one a process is in, and the number that it has there. Time namespaces: their offsets.

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

/// By how many nanoseconds CLOCK_MONOTONIC and CLOCK_BOOTTIME of the time namespace that the children of `pid` are in are ahead of
/// the machine's. `None` where the kernel has no time namespaces.
pub(crate) fn time_offsets(pid: impl std::fmt::Display) -> Option<[i64; 2]> {
    let text = fs::read(format!("/proc/{pid}/timens_offsets")).ok()?;
    let offsets = lorentz_shim::time_namespace::parse(&text)?;
    Some([offsets.monotonic.0, offsets.boot.0])
}

/// The same of the time namespace that `pid` is in itself, from that of this process, which is `own` ahead of the machine's.
///
/// # Errors
///
/// A process that has ended, or whose offsets the kernel does not tell: it is in another namespace than its children.
pub(crate) fn time_offsets_from(own: [i64; 2], pid: i32) -> io::Result<[i64; 2]> {
    let inode = |pid: &dyn std::fmt::Display, name: &str| {
        fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|file| file.ino())
    };
    let theirs = match inode(&pid, "time") {
        // A kernel without time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok([0; 2]),
        theirs => theirs?,
    };
    if theirs == inode(&"self", "time")? {
        return Ok([0; 2]);
    }
    let [monotonic, boot] = time_offsets(pid)
        .filter(|_| inode(&pid, "time_for_children").is_ok_and(|children| children == theirs))
        .ok_or_else(|| io::Error::other("the offsets of its time namespace are not known"))?;
    Ok([monotonic.wrapping_sub(own[0]), boot.wrapping_sub(own[1])])
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
