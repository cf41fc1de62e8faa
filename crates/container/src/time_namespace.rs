//! The lightest mechanism: a time namespace of the kernel, where the options are only offsets of CLOCK_MONOTONIC and
//! CLOCK_BOOTTIME. It needs no shim, and costs no more than the kernel's own code; but the offsets cannot be changed later.

use std::fs::{self, File};
use std::io;

use anyhow::Context;
use lorentz_control::Clock;
use nix::sched::{setns, unshare, CloneFlags};

use crate::Container;

/// CLONE_NEWTIME, which nix does not have.
const NEW_TIME: CloneFlags = CloneFlags::from_bits_retain(0x80);

/// Makes later children of this process start in the time namespace of `container`: that of its programs, or a new one if there are
/// none. Returns false if the kernel does not allow it.
///
/// # Errors
///
/// If a new namespace was made and its offsets cannot be set.
pub fn enter(container: &Container, clock: &Clock) -> anyhow::Result<bool> {
    let programs = container.record().monitors.iter().filter_map(|monitor| monitor.program);
    for pid in programs {
        if let Ok(namespace) = File::open(format!("/proc/{pid}/ns/time")) {
            return Ok(setns(namespace, NEW_TIME).is_ok());
        }
    }
    if unshare(NEW_TIME).is_err() {
        return Ok(false);
    }
    set_offsets(clock).context("setting the offsets of a new time namespace")?;
    Ok(true)
}

/// Sets the offsets of the new namespace. The kernel counts them from the host's own clocks, and not from those of the namespace of
/// this process.
fn set_offsets(clock: &Clock) -> io::Result<()> {
    const PATH: &str = "/proc/self/timens_offsets";
    let reading = clock.reading();
    let monotonic = reading.virt.0 - reading.real.0;
    let boottime = reading.boot.0 - reading.host_boot.0;
    let lines = [
        ("monotonic", monotonic, libc::CLOCK_MONOTONIC),
        ("boottime", boottime, libc::CLOCK_BOOTTIME),
    ];
    let own = own_offsets().unwrap_or_default();
    let text: String = lines
        .iter()
        .map(|(name, offset, clock)| {
            let base = own.iter().find(|(id, _)| id == clock).map_or(0, |(_, offset)| *offset);
            let sum = base + offset;
            let nanos = lorentz_clock::NANOS_PER_SEC;
            format!("{name} {} {}\n", sum.div_euclid(nanos), sum.rem_euclid(nanos))
        })
        .collect();
    fs::write(PATH, text)
}

/// Returns the offsets of this process's own namespace. An unshare makes a new namespace for children only.
fn own_offsets() -> io::Result<Vec<(libc::clockid_t, i64)>> {
    // After unshare the file shows the children's namespace, which begins as a copy of ours.
    let text = fs::read_to_string("/proc/self/timens_offsets")?;
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let clock = match words.next()? {
            "monotonic" => libc::CLOCK_MONOTONIC,
            "boottime" => libc::CLOCK_BOOTTIME,
            _ => return None,
        };
        let (secs, nanos): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((clock, secs * lorentz_clock::NANOS_PER_SEC + nanos))
    };
    Ok(text.lines().filter_map(parse).collect())
}
