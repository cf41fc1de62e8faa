//! Process id namespaces: the namespace of a process, and the process's number in it. Time namespaces: their offsets.

use crate::shared::SharedClock;
use lorentz_clock::{PidNamespace, ProcessId};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Returns the inode of the process id namespace of a process or thread; `pid` may be `self`.
///
/// # Errors
///
/// The process has ended, or this process may not look into it.
pub(crate) fn of(pid: impl std::fmt::Display) -> io::Result<u32> {
    // The kernel numbers namespaces with 32 bits.
    fs::metadata(format!("/proc/{pid}/ns/pid")).map(|file| file.ino() as u32)
}

/// Returns the number that a process or thread has in its own process id namespace.
///
/// # Errors
///
/// The process has ended.
pub(crate) fn number_inside(pid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own = ProcessId::number_inside(&status);
    own.ok_or_else(|| io::Error::other("the kernel does not tell its number inside"))
}

/// Returns CLOCK_MONOTONIC and CLOCK_BOOTTIME of a time namespace minus those of the machine, in nanoseconds. The namespace is
/// the one in which the children of `pid` begin. `None` if the kernel has no time namespaces.
pub(crate) fn time_offsets(pid: impl std::fmt::Display) -> Option<[i64; 2]> {
    let text = fs::read(format!("/proc/{pid}/timens_offsets")).ok()?;
    let offsets = lorentz_shim::time_namespace::parse(&text)?;
    Some([offsets.monotonic.0, offsets.boot.0])
}

/// Returns the same differences for the namespace in which this process's children begin; zeros if the kernel has no time
/// namespaces.
pub fn own_time_offsets() -> [i64; 2] {
    time_offsets("self").unwrap_or_default()
}

/// Returns the same differences for the time namespace of `pid` itself, relative to the namespace of this process. `own` are
/// the offsets of this process's namespace.
///
/// # Errors
///
/// The process has ended, or is in another namespace than its children will be: the kernel does not tell its offsets then.
pub(crate) fn time_offsets_from(own: [i64; 2], pid: i32) -> io::Result<[i64; 2]> {
    let inode = |pid: &dyn std::fmt::Display, name: &str| {
        fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|file| file.ino())
    };
    let theirs = match inode(&pid, "time") {
        // The kernel has no time namespaces.
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

/// Returns the name that the clock's registry has for the process id namespace of `pid`. `own` is the monitors' namespace. If
/// the registry has no room for another namespace, the result is the name of the monitors' one.
pub(crate) fn registry_name_of(
    pid: i32,
    own: u32,
    clock: impl FnOnce() -> io::Result<SharedClock>,
) -> io::Result<PidNamespace> {
    let namespace = of(pid)?;
    if namespace == own {
        return Ok(PidNamespace::MONITOR);
    }
    Ok(clock()?.registry().pid_namespaces.find_or_add(namespace).unwrap_or(PidNamespace::MONITOR))
}
