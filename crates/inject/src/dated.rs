//! Looks at another process, each with the instant at which it was so.
//!
//! Race: this thread loses its processor between the look and the clock. A timer would go off later by that time; one that does so
//! more often than that, at other instants of its series. Therefore it looks again.

use lorentz_clock::{RealInstant, NANOS_PER_SEC};
use std::io;

/// Where the clock before a look and the clock after it are nearer than this, ns, the look is as good as it gets: a borrowed thread
/// makes a call in half of it.
const NEAR: i64 = 100_000;

/// The result of a look.
pub(crate) struct Dated<T> {
    pub found: T,
    /// The real instant just after the look: a time that was left then ends rather late than early.
    pub seen: RealInstant,
}

impl<T> Dated<T> {
    /// Looks, again where that took long.
    pub fn of(look: impl FnMut() -> io::Result<T>) -> io::Result<Dated<T>> {
        Dated::by(host_now, look)
    }

    /// The same by the clock `now`. Of the looks that all took long, it returns the shortest.
    fn by(
        mut now: impl FnMut() -> RealInstant,
        mut look: impl FnMut() -> io::Result<T>,
    ) -> io::Result<Dated<T>> {
        const MAX_TRIES: u32 = 8;
        let mut timed = || {
            let before = now();
            let found = look()?;
            let seen = now();
            Ok::<_, io::Error>((seen.since(before).0, Dated { found, seen }))
        };
        let mut best = timed()?;
        for _ in 1..MAX_TRIES {
            if best.0 < NEAR {
                break;
            }
            let next = timed()?;
            if next.0 < best.0 {
                best = next;
            }
        }
        Ok(best.1)
    }
}

/// The host's CLOCK_MONOTONIC.
pub(crate) fn host_now() -> RealInstant {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(RealInstant(0), |ts| RealInstant(ts.tv_sec() * NANOS_PER_SEC + ts.tv_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Looks that take so long, one after the other: the number of looks, which one is taken, and its instant.
    fn of_looks(taking: &[i64]) -> (usize, usize, RealInstant) {
        let (clock, looks) = (Cell::new(0), Cell::new(0));
        let now = || RealInstant(clock.get());
        let dated = Dated::by(now, || {
            let number = looks.replace(looks.get() + 1);
            clock.set(clock.get() + taking[number.min(taking.len() - 1)]);
            Ok(number)
        });
        let dated = dated.expect("the look does not fail");
        (looks.get(), dated.found, dated.seen)
    }

    #[test]
    fn a_look_that_was_interrupted_is_taken_again() {
        assert_eq!(of_looks(&[20_000]), (1, 0, RealInstant(20_000)));
        assert_eq!(of_looks(&[9_700_000, 20_000]), (2, 1, RealInstant(9_720_000)));
    }

    #[test]
    fn of_slow_looks_the_shortest_counts() {
        let (looks, taken, seen) = of_looks(&[900_000, 300_000, 500_000]);
        assert_eq!((looks, taken, seen), (8, 1, RealInstant(1_200_000)));
    }
}
