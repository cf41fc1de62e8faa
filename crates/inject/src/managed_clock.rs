//! The clocks of a monitor, and what a program on them needs.

use crate::boot_stub;
use crate::host::{tsc_hz, HostInfo};
use crate::image::Image;
use crate::shared::SharedClock;
use crate::wall::{Adjust, SetWall};
use crate::{Error, Result};
use lorentz_clock::Policy;
use lorentz_shim::boot::BootArgs;
use std::io;
use std::os::fd::OwnedFd;

/// The clock onto which programs are brought.
pub struct TargetClock {
    /// The clock's file, open for reading and writing.
    pub clock: OwnedFd,
    /// The clock's policy. It decides which calls the filter traps.
    pub policy: Policy,
    /// Whether programs get the filter and the shim. Without them the monitor only starts programs and waits for them: their
    /// clocks are those of their time namespace.
    pub shim: bool,
}

/// A managed clock, and all that a program on it needs.
pub(crate) struct ManagedClock {
    pub target: TargetClock,
    /// The clock's file, open for reading only.
    pub page: OwnedFd,
    pub args: BootArgs,
    pub set_wall: Option<SetWall>,
    /// Carries out adjtimex(2) for a program.
    pub adjust: Option<Adjust>,
}

impl ManagedClock {
    pub fn new(target: TargetClock, image: &Image) -> Result<ManagedClock> {
        let page = read_only(&target.clock)?;
        let hz = if target.policy.trap_tsc { tsc_hz() } else { 0 };
        let args = boot_stub::args(image, &HostInfo::read(), hz);
        Ok(ManagedClock { target, page, args, set_wall: None, adjust: None })
    }

    /// Maps the clock's file.
    pub fn map(&self) -> io::Result<SharedClock> {
        SharedClock::map(&self.target.clock)
    }
}

/// Opens the same file anew, for reading only.
fn read_only(file: &OwnedFd) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let again = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.map(OwnedFd::from).map_err(|e| Error::System("opening the clock for reading", e))
}
