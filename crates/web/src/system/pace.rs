//! How often things are read, and how their counters grow.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

/// Shortest time between two looks at the same thing.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for the answer of an emulator or an experiment.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How often something is read: its reads take at most a fiftieth of the time.
#[derive(Default)]
pub struct Pace {
    due: Option<Instant>,
}

impl Pace {
    const SHARE: u32 = 50;
    const LONGEST: Duration = Duration::from_secs(3);

    /// Whether it is time to read.
    pub fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }

    /// Notes that a read began at `begin` and has ended.
    pub fn has_read(&mut self, begin: Instant) {
        let interval = (begin.elapsed() * Pace::SHARE).clamp(LOOK_INTERVAL / 2, Pace::LONGEST);
        self.due = Some(begin + interval);
    }
}

/// Bounds the wait for answers from a socket: a process that is stopped must not stop the page.
pub fn limit_wait(socket: &impl AsFd) {
    let limit = TimeVal::seconds(ANSWER_TIMEOUT.as_secs() as i64);
    let fd = socket.as_fd();
    // Without the limit the page only waits longer.
    let _ = setsockopt(&fd, sockopt::ReceiveTimeout, &limit);
    let _ = setsockopt(&fd, sockopt::SendTimeout, &limit);
}

/// A counter that grows, and its growth over the last second or so.
#[derive(Default)]
pub struct Growth {
    /// The point from which the growth is computed, and a newer one that takes its place.
    from: Option<(f64, f64)>,
    next: Option<(f64, f64)>,
}

impl Growth {
    /// Adds the value `value` at `at`, both in nanoseconds. Returns the growth per nanosecond since about a second before; `None` at
    /// the first point, or if no time has passed.
    pub fn add(&mut self, at: f64, value: f64) -> Option<f64> {
        const WINDOW: f64 = 1e9;
        if self.from.is_none_or(|(from, before)| at < from || value < before) {
            (self.from, self.next) = (Some((at, value)), None);
            return None;
        }
        let (from, before) = self.from?;
        match self.next {
            None if at - from >= WINDOW => self.next = Some((at, value)),
            Some((next, _)) if at - next >= WINDOW => {
                (self.from, self.next) = (self.next, Some((at, value)));
            }
            _ => {}
        }
        let (from, before) = if at - from > 0.0 { (from, before) } else { return None };
        Some((value - before) / (at - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_seconds() {
        let mut growth = Growth::default();
        assert_eq!(growth.add(0.0, 5.0), None);
        assert_eq!(growth.add(0.5e9, 5.0 + 0.5e9), Some(1.0));
        let seconds = (1..20).map(|at| growth.add(f64::from(at) * 1e9, 5.0 + 0.5e9));
        // It stood still: after two windows nothing of the growth before is left.
        assert_eq!(seconds.last(), Some(Some(0.0)));
        assert_eq!(growth.add(30e9, 0.0), None, "another counter");
    }

    #[test]
    fn what_takes_long_is_read_seldom() {
        let mut pace = Pace::default();
        assert!(pace.is_due());
        pace.has_read(Instant::now() - Duration::from_millis(100));
        assert!(!pace.is_due());
        pace.has_read(Instant::now() - Duration::from_secs(60));
        assert!(pace.is_due());
    }
}
