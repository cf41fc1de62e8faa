//! Which expiry of a timer comes next, as the kernel's timer shows it.
//!
//! The kernel shows the time until a timer goes off. Zero means: to a timer descriptor, that it is due and has not been
//! counted yet; to an interval timer, that its signal has not been taken, and the next expiry is set when it is; to others, that it
//! has gone off for the last time. A POSIX timer that is due has 1 ns left.

use lorentz_clock::{Armed, Deadline, RealInstant, Setting, Span, TimerKind, NANOS_PER_SEC};

/// At once: zero would disarm.
pub const AT_ONCE: RealInstant = RealInstant(1);
/// As good as never: a hundred years.
pub const FAR_FUTURE: Span = Span(100 * 365 * 86_400 * NANOS_PER_SEC);

/// A look at the kernel's timer.
#[derive(Clone, Copy)]
pub struct Shown {
    /// The real time just before.
    pub now: RealInstant,
    /// The time left then.
    pub left: Span,
}

impl Shown {
    /// The next expiry of a timer of `kind` that was set to `setting` in virtual time and to `armed` in the kernel, which counts
    /// `signalled_again` expiries from before `setting`. `None` where there is none.
    pub fn upcoming(
        self,
        kind: TimerKind,
        setting: Setting,
        armed: &Armed,
        signalled_again: i64,
    ) -> Option<Setting> {
        if setting.deadline == Deadline::Never {
            return None;
        }
        if armed.at == RealInstant::NEVER {
            return Some(setting);
        }
        if setting.interval.0 == 0 {
            return (self.left.0 > 0).then_some(setting);
        }
        if armed.interval.0 == 0 {
            let gone_off = self.has_gone_off_once(kind, armed);
            return Some(later(setting, if gone_off { setting.interval } else { Span::ZERO }));
        }
        let gone_off = (self.gone_off(kind, armed)? - signalled_again).max(0);
        Some(later(setting, Span(gone_off.saturating_mul(setting.interval.0))))
    }

    /// Whether a timer has gone off that was set for one expiry of a series.
    fn has_gone_off_once(self, kind: TimerKind, armed: &Armed) -> bool {
        /// The least that an armed interval timer shows; one that is due has no more.
        const MIN_LEFT: Span = Span(1000);
        match kind {
            _ if armed.at == AT_ONCE && self.left.0 > 0 => self.left > MIN_LEFT,
            TimerKind::Fd => self.now.plus(self.left).since(armed.at).0 > FAR_FUTURE.0 / 2,
            TimerKind::Posix | TimerKind::Interval => self.left.0 == 0,
        }
    }

    /// How often the kernel's series has gone off.
    fn gone_off(self, kind: TimerKind, armed: &Armed) -> Option<i64> {
        let interval = armed.interval.0;
        let since_first = self.now.since(armed.at).0.max(0);
        match (self.left.0, kind) {
            (0, TimerKind::Fd) => Some(since_first / interval),
            (0, TimerKind::Interval) => Some(since_first / interval + 1),
            (0, TimerKind::Posix) => None,
            (left, _) => {
                let until_next = self.now.plus(Span(left)).since(armed.at).0;
                Some((until_next + interval / 2).max(0) / interval)
            }
        }
    }
}

/// The same series, from a later expiry on.
pub fn later(setting: Setting, by: Span) -> Setting {
    let deadline = match setting.deadline {
        Deadline::Virtual(instant) => Deadline::Virtual(instant.plus(by)),
        Deadline::Wall(wall) => Deadline::Wall(wall.plus(by)),
        Deadline::Boot(boot) => Deadline::Boot(boot.plus(by)),
        Deadline::Never => Deadline::Never,
    };
    Setting { deadline, ..setting }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_clock::{VirtualInstant, WallTime};
    use TimerKind::{Fd, Interval, Posix};

    const MS: i64 = 1_000_000;

    /// A series with an expiry every 10 ms from 100 ms on, in virtual time and in the kernel; at `now`, when `left` is left: which
    /// of its expiries comes next.
    fn number(kind: TimerKind, now: i64, left: i64) -> Option<i64> {
        by(kind, Span(10 * MS), 100 * MS, now, left)
    }

    fn by(kind: TimerKind, interval: Span, at: i64, now: i64, left: i64) -> Option<i64> {
        let setting = Setting {
            deadline: Deadline::Virtual(VirtualInstant(1000 * MS)),
            interval: Span(10 * MS),
        };
        let armed = Armed { at: RealInstant(at), interval, ..Armed::disarmed(WallTime::default()) };
        let shown = Shown { now: RealInstant(now), left: Span(left) };
        match shown.upcoming(kind, setting, &armed, 0)?.deadline {
            Deadline::Virtual(instant) => Some((instant.0 - 1000 * MS) / (10 * MS)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_left_tells_the_next_expiry() {
        for kind in [Fd, Posix, Interval] {
            assert_eq!(number(kind, 95 * MS, 5 * MS), Some(0));
            assert_eq!(number(kind, 101 * MS, 9 * MS), Some(1));
            assert_eq!(number(kind, 139 * MS, MS), Some(4));
            // The look took a while.
            assert_eq!(number(kind, 135 * MS, MS), Some(4));
        }
    }

    #[test]
    fn a_descriptor_that_is_due_and_not_counted_stays_armed() {
        assert_eq!(number(Fd, 100 * MS + 3, 0), Some(0));
        assert_eq!(number(Fd, 130 * MS + 3, 0), Some(3));
    }

    #[test]
    fn an_interval_timer_whose_signal_waits_stays_armed() {
        assert_eq!(number(Interval, 100 * MS + 3, 0), Some(1));
        assert_eq!(number(Interval, 175 * MS, 0), Some(8));
    }

    #[test]
    fn one_expiry_of_a_series_has_come_or_not() {
        let once = |kind, at: i64, now, left| by(kind, Span::ZERO, at, now, left);
        for kind in [Fd, Posix, Interval] {
            assert_eq!(once(kind, 100 * MS, 95 * MS, 5 * MS), Some(0));
            // Signalled at once, as one of several.
            assert_eq!(once(kind, AT_ONCE.0, 95 * MS, 20 * MS), Some(1));
        }
        // Due, and not counted yet.
        assert_eq!(once(Fd, 100 * MS, 101 * MS, 0), Some(0));
        assert_eq!(once(Fd, AT_ONCE.0, 101 * MS, 0), Some(0));
        assert_eq!(once(Posix, AT_ONCE.0, 101 * MS, 1), Some(0));
        assert_eq!(once(Interval, AT_ONCE.0, 101 * MS, 1000), Some(0));
        // Counted: a descriptor shows the next, which is ages away.
        assert_eq!(once(Fd, 100 * MS, 101 * MS, FAR_FUTURE.0 - MS), Some(1));
        assert_eq!(once(Fd, AT_ONCE.0, 101 * MS, FAR_FUTURE.0 - 101 * MS), Some(1));
        assert_eq!(once(Posix, 100 * MS, 101 * MS, 0), Some(1));
        assert_eq!(once(Posix, AT_ONCE.0, 101 * MS, 0), Some(1));
        assert_eq!(once(Interval, 100 * MS, 101 * MS, 0), Some(1));
    }
}
