//! The time namespace of this process.
//!
//! The clock page speaks of CLOCK_MONOTONIC as the monitor reads it. A process in another time namespace reads it with an offset
//! from there. The shim subtracts that offset wherever it takes the host's time, and adds it to absolute times for the kernel. The
//! program set the same number of seconds for its own clocks, so what it reads of the virtual clocks has the offset added.
//!
//! A process comes into a time namespace in three ways:
//!
//! - at exec, or before it is brought in: the monitor passes the offsets ([`crate::boot::BootArgs`]);
//! - by setns: the handler reads them after the call;
//! - by fork, after its parent has called unshare(CLONE_NEWTIME): it reads them when it first needs them. A child that shares its
//!   parent's memory stays in its parent's namespace, until it execs.
//!
//! With an offset the vDSO's fast path is closed.

use crate::layout::{data, fork_data};
use crate::sys::{close, sys, to_fd, Fd, OpenFlags, Sysno};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lorentz_clock::{Span, NANOS_PER_SEC};

/// By how much the clocks of a time namespace are ahead of another's.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Offsets {
    /// CLOCK_MONOTONIC and its relatives.
    pub monotonic: Span,
    /// CLOCK_BOOTTIME.
    pub boot: Span,
}

/// The offsets of this process from the namespace that the clock page speaks of.
pub fn offsets() -> Offsets {
    // With the fast path open there are none.
    if data().clock_gettime.load(Relaxed) != 0 {
        return Offsets::default();
    }
    if data().children_elsewhere.load(Relaxed) != 0 && fork_data().time_known.load(Acquire) == 0 {
        look();
    }
    known()
}

fn known() -> Offsets {
    let [monotonic, boot] = &data().time_offsets;
    Offsets { monotonic: Span(monotonic.load(Relaxed)), boot: Span(boot.load(Relaxed)) }
}

/// Reads the offsets from /proc. Where it cannot be read they are taken to be those that are known.
fn look() {
    if let Some(own) = read() {
        let [base_monotonic, base_boot] = &data().base_offsets;
        let [monotonic, boot] = &data().time_offsets;
        monotonic.store(own.monotonic.0.wrapping_sub(base_monotonic.load(Relaxed)), Relaxed);
        boot.store(own.boot.0.wrapping_sub(base_boot.load(Relaxed)), Relaxed);
    }
    fork_data().time_known.store(1, Release);
}

/// Says that children come into another time namespace from now on.
pub fn begin_elsewhere_for_children() {
    offsets();
    data().clock_gettime.store(0, Relaxed);
    fork_data().time_known.store(1, Release);
    data().children_elsewhere.store(1, Relaxed);
}

/// Reads the offsets anew after setns(2), which may have led into another time namespace. `before` are the offsets before the call.
/// The kernel lets only a process with one thread and its own memory in.
pub fn entered(before: Offsets) {
    // Otherwise it was another namespace, and /proc tells the offsets of the one that children come into.
    if is_own(c"/proc/self/ns/time_for_children") {
        look();
        let function = match known() == before && before == Offsets::default() {
            true => data().clock_gettime.load(Relaxed),
            false => 0,
        };
        data().clock_gettime.store(function, Relaxed);
    }
}

/// Whether the link names the time namespace that this process is in.
fn is_own(link: &core::ffi::CStr) -> bool {
    let read = |path: &core::ffi::CStr| {
        let mut text = [0u8; 40];
        // SAFETY: a name that lasts; writes to the text.
        let len = unsafe {
            sys!(Sysno::readlinkat, Fd::AT_FDCWD, path.as_ptr(), text.as_mut_ptr(), text.len())
        };
        (len, text)
    };
    read(link) == read(c"/proc/self/ns/time")
}

/// The offsets from the machine's first time namespace, as the kernel shows them.
fn read() -> Option<Offsets> {
    const PATH: &core::ffi::CStr = c"/proc/self/timens_offsets";
    let mut text = [0u8; 128];
    // SAFETY: a name that lasts.
    let file = unsafe { sys!(Sysno::openat, Fd::AT_FDCWD, PATH.as_ptr(), OpenFlags::O_CLOEXEC) };
    let file = to_fd(file.ok()?);
    // SAFETY: writes to the text.
    let len = unsafe { sys!(Sysno::read, file, text.as_mut_ptr(), text.len()) };
    close(file);
    parse(text.get(..len.ok()? as usize)?)
}

/// Two lines: the name of a clock, seconds, nanoseconds.
pub fn parse(text: &[u8]) -> Option<Offsets> {
    let mut words = text.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut line = |name: &[u8]| {
        words.next().filter(|word| *word == name)?;
        let (secs, nanos) = (number(words.next()?)?, number(words.next()?)?);
        Some(Span(secs.checked_mul(NANOS_PER_SEC)?.checked_add(nanos)?))
    };
    Some(Offsets { monotonic: line(b"monotonic")?, boot: line(b"boottime")? })
}

fn number(word: &[u8]) -> Option<i64> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = digits.iter().try_fold(0i64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_the_kernel_writes_them() {
        let text = b"monotonic         -86400 500000000\nboottime            3600         0\n";
        let expect =
            Offsets { monotonic: Span(-86_399_500_000_000), boot: Span(3_600_000_000_000) };
        assert_eq!(parse(text), Some(expect));
        assert_eq!(parse(b"monotonic 1 2"), None);
        assert_eq!(parse(b"boottime 1 2\nmonotonic 1 2"), None);
        assert_eq!(parse(b"monotonic x 2\nboottime 1 2\n"), None);
    }
}
