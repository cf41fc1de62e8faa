//! The host's clocks.

use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

use crate::error::PacketsError;

/// Returns CLOCK_MONOTONIC, ns.
///
/// # Errors
///
/// None on Linux.
pub(crate) fn monotonic() -> Result<u64, PacketsError> {
    nanos(ClockId::CLOCK_MONOTONIC)
}

/// Returns the offset of CLOCK_REALTIME from CLOCK_MONOTONIC, ns: the `wall_offset` of packets.
///
/// # Errors
///
/// None on Linux.
pub fn wall_offset() -> Result<u64, PacketsError> {
    Ok(nanos(ClockId::CLOCK_REALTIME)?.saturating_sub(monotonic()?))
}

fn nanos(clock: ClockId) -> Result<u64, PacketsError> {
    let time = clock_gettime(clock).map_err(std::io::Error::from)?;
    Ok(Duration::from(time).as_nanos() as u64)
}
