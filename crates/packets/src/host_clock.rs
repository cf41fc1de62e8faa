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
/// The thread may lose its processor between two readings. So each reading of CLOCK_REALTIME lies between two of the other clock,
/// and of several such triples the one counts that took the shortest time. It is wrong by half of that at most.
///
/// # Errors
///
/// None on Linux.
pub fn wall_offset() -> Result<u64, PacketsError> {
    offset_of(|| Ok([monotonic()?, nanos(ClockId::CLOCK_REALTIME)?, monotonic()?]))
}

/// Returns the offset by the shortest of several triples of readings: CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC, ns.
fn offset_of(
    mut read: impl FnMut() -> Result<[u64; 3], PacketsError>,
) -> Result<u64, PacketsError> {
    /// No more triples are read after one as short as this, ns.
    const SHORT: u64 = 1_000;
    const MAX_TRIPLES: u32 = 8;
    let (mut shortest, mut offset) = (u64::MAX, 0);
    for _ in 0..MAX_TRIPLES {
        let [before, wall, after] = read()?;
        let length = after.saturating_sub(before);
        if length < shortest {
            (shortest, offset) = (length, wall.saturating_sub(before + length / 2));
        }
        if shortest <= SHORT {
            break;
        }
    }
    Ok(offset)
}

fn nanos(clock: ClockId) -> Result<u64, PacketsError> {
    let time = clock_gettime(clock).map_err(std::io::Error::from)?;
    Ok(Duration::from(time).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_between_two_readings_does_not_count() {
        let wall = 1_000_000_000_000;
        let mut triples = [
            [10, wall + 500_000_000, 500_000_010],
            [20, wall + 30, 300_000_040],
            [30, wall + 50, 80],
        ]
        .into_iter();
        let offset = offset_of(|| Ok(triples.next().unwrap_or([0, 0, u64::MAX]))).unwrap();
        assert_eq!(offset, wall - 5);
        // A machine that is never quick enough: the best of some.
        let mut at = 0;
        let slow = || {
            at += 1;
            Ok([0, wall + at * 2_000, at * 4_000])
        };
        assert_eq!(offset_of(slow).unwrap(), wall);
        assert!(wall_offset().unwrap() > 0);
    }
}
