//! A clock that follows a line which somebody else computes: one line for the clocks of many hosts.
//!
//! The clock never goes back. Where it is behind the line it jumps forward onto it. Where it is ahead it stands until the line has
//! come so far. Either may also be done slowly ([`Approach::Slew`]), for a line that has moved because the host's wall clock was set.

use std::io;

use lorentz_clock::{
    saturate, Change, Pace, Piece, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime,
};

use crate::host_time;
use crate::lock::ClockLock;
use crate::notifier::Moved;
use crate::{Clock, HostNow};

/// Time from the command to the earliest begin of a change. Every wait knows of the change by then.
const LEAD: Span = Span(3_000_000);
/// A slewing clock runs faster or slower than its line by one part in this many: 500 ppm, the most that the kernel's NTP allows.
const SLEW_DIVISOR: u64 = 2_000;

/// A straight line for a clock: virtual time by the host's CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// The line holds from this instant on.
    pub from: RealInstant,
    /// Virtual time at that instant.
    pub virt: VirtualInstant,
    /// Virtual seconds per real second.
    pub rate: Rate,
    /// The latest virtual time that a clock on the line shows.
    pub limit: VirtualInstant,
    /// The offset of the wall clock to virtual time.
    pub wall: WallTime,
}

/// How a clock comes onto its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approach {
    /// At once: it jumps forward, or stands.
    AtOnce,
    /// At a rate that differs from the line's by 500 ppm.
    Slew,
}

/// How a clock has come onto its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// The instant from which the clock is no longer on the line before: the line's own begin, or later.
    pub begins: RealInstant,
    /// The instant from which it is on this line; [`RealInstant::NEVER`] if it is beyond the line's limit.
    pub joins: RealInstant,
}

impl Line {
    fn piece(&self) -> Piece {
        let segment = Segment {
            real: self.from,
            virt: self.virt,
            pace: Pace::Running(self.rate),
            wall: self.wall,
            boot: Span::ZERO,
        };
        Piece { segment, limit: self.limit, rate: self.rate }
    }

    /// Returns virtual time at `real`; before the line's begin, virtual time at its begin.
    pub fn virtual_at(&self, real: RealInstant) -> VirtualInstant {
        self.piece().virtual_at(real)
    }

    /// Returns the first instant at which the line shows `virt`; never, if that lies beyond its limit.
    pub fn real_at(&self, virt: VirtualInstant) -> RealInstant {
        self.piece().real_at(virt)
    }

    /// Has the clock go by the line from `begins` on.
    fn put(&self, change: &mut Change, begins: RealInstant) {
        change.floor = self.virtual_at(begins);
        (change.pace, change.rate) = (Pace::Running(self.rate), self.rate);
        (change.limit, change.wall) = (self.limit, self.wall);
    }

    /// As [`Line::put`], at another rate.
    fn put_at_rate(&self, change: &mut Change, rate: Rate) {
        (change.pace, change.rate) = (Pace::Running(rate), rate);
        (change.limit, change.wall) = (self.limit, self.wall);
    }

    /// Has the clock stand where it is.
    fn put_standing(&self, change: &mut Change) {
        self.put_at_rate(change, self.rate);
        // A limit before the first value is that value.
        change.limit = VirtualInstant(i64::MIN);
    }

    /// Returns the rate of a slewing clock, and the real time until it is on the line. `ahead` is the clock's lead over the line.
    fn slewed(&self, ahead: Span) -> Option<(Rate, Span)> {
        let parts = if ahead > Span::ZERO { SLEW_DIVISOR - 1 } else { SLEW_DIVISOR + 1 };
        let (num, den) = (self.rate.num(), self.rate.den());
        let rate = Rate::new(num.checked_mul(parts)?, den.checked_mul(SLEW_DIVISOR)?)?;
        let lead = u128::from(ahead.0.unsigned_abs());
        let time = (lead * u128::from(den) * u128::from(SLEW_DIVISOR)).div_ceil(u128::from(num));
        Some((rate, Span(saturate(time.min(i64::MAX as u128) as i128))))
    }
}

impl Clock {
    /// Has the clock follow `line` from the line's begin on, or from now on if that is past. Pieces that were announced for later are
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn follow(&self, line: &Line, approach: Approach) -> io::Result<Followed> {
        let _lock = ClockLock::take(self.path())?;
        let begins = line.from.max(host_time::now().plus(LEAD));
        let shown = self.piece_at(begins).virtual_at(begins);
        let ahead = shown.since(line.virtual_at(begins));
        let slewed = match approach {
            Approach::Slew if ahead != Span::ZERO => line.slewed(ahead),
            _ => None,
        };
        if let Some((rate, time)) = slewed {
            let joins = begins.plus(time);
            self.change_locked(Moved::All, Some(begins), |change, _| {
                line.put_at_rate(change, rate);
            })?;
            self.put_on(line, joins)?;
            return Ok(Followed { begins, joins });
        }
        if ahead <= Span::ZERO {
            self.put_on(line, begins)?;
            return Ok(Followed { begins, joins: begins });
        }
        self.change_locked(Moved::All, Some(begins), |change, _| line.put_standing(change))?;
        let joins = line.real_at(shown);
        if joins != RealInstant::NEVER {
            self.put_on(line, joins)?;
        }
        Ok(Followed { begins, joins })
    }

    /// Has the clock show the host's own time from now on, at the host's rate. Returns by how much it is ahead of the host's
    /// CLOCK_MONOTONIC if it is: then nothing is changed, for no clock goes back.
    ///
    /// The clock does not skip idle time.
    ///
    /// # Errors
    ///
    /// As [`Clock::change`].
    pub fn follow_host(&self) -> io::Result<Option<Span>> {
        let _lock = ClockLock::take(self.path())?;
        let host = HostNow::read()?;
        let begins = host_time::now().plus(LEAD);
        let ahead = Span(self.piece_at(begins).virtual_at(begins).0.saturating_sub(begins.0));
        if ahead > Span::ZERO {
            return Ok(Some(ahead));
        }
        // Pieces are without the idle time that was skipped.
        let skipped = self.registry().leaps.sum();
        let put = |change: &mut Change, begins: RealInstant| {
            change.floor = VirtualInstant(begins.0.saturating_sub(skipped.0));
            (change.pace, change.rate) = (Pace::Running(Rate::ONE), Rate::ONE);
            (change.limit, change.wall) = (VirtualInstant::NEVER, host.wall_offset());
            change.boot = Span(host.boot.0 - host.real.0);
        };
        self.change_locked(Moved::All, Some(begins), put)?;
        Ok(None)
    }

    fn put_on(&self, line: &Line, at: RealInstant) -> io::Result<()> {
        // A clock that begins at an instant that is past would stay behind the line.
        let at = at.max(host_time::now().plus(LEAD));
        let put = |change: &mut Change, begins| line.put(change, begins);
        self.change_locked(Moved::All, Some(at), put).map(drop)
    }

    /// Returns by how much virtual time at `real` is ahead of `line`; negative, if it is behind. Only announced changes happen until
    /// then.
    pub fn ahead_of(&self, line: &Line, real: RealInstant) -> Span {
        self.piece_at(real).virtual_at(real).since(line.virtual_at(real))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::ClockOptions;

    const SECOND: Span = Span(1_000_000_000);

    fn clock() -> (TempDir, Clock) {
        let dir = tempfile::tempdir().unwrap();
        let settings = ClockOptions::default().settings(&HostNow::read().unwrap()).unwrap();
        let clock = Clock::create(&dir.path().join("clock"), &settings).unwrap();
        (dir, clock)
    }

    /// A line that shows the clock's time and `more` half a second from now.
    fn line(clock: &Clock, more: Span, rate: Rate) -> Line {
        let from = host_time::now().plus(Span(SECOND.0 / 2));
        Line {
            from,
            virt: clock.piece_at(from).virtual_at(from).plus(more),
            rate,
            limit: VirtualInstant::NEVER,
            wall: clock.look().segment.wall,
        }
    }

    fn ten() -> Rate {
        Rate::new(10, 1).unwrap()
    }

    #[test]
    fn a_clock_behind_its_line_is_on_it_from_the_instant_of_its_begin() {
        let (_dir, clock) = clock();
        for (more, rate) in [(Span::ZERO, ten()), (SECOND, Rate::new(1, 3).unwrap())] {
            let line = line(&clock, more, rate);
            let followed = clock.follow(&line, Approach::AtOnce).unwrap();
            assert_eq!(followed, Followed { begins: line.from, joins: line.from });
            for after in [0, 1, 999, 3_000_000_001] {
                let real = line.from.plus(Span(after));
                assert_eq!(clock.ahead_of(&line, real), Span::ZERO, "{after} ns");
            }
            host_time::sleep_until(line.from);
        }
    }

    #[test]
    fn a_clock_ahead_of_its_line_stands_until_the_line_has_come_so_far() {
        let (_dir, clock) = clock();
        let line = line(&clock, Span(-3 * SECOND.0), ten());
        let shown = clock.piece_at(line.from).virtual_at(line.from);
        let followed = clock.follow(&line, Approach::AtOnce).unwrap();
        // Ten times as fast: 3 s of virtual time are 0.3 s.
        assert_eq!(followed.joins, line.from.plus(Span(3 * SECOND.0 / 10)));
        let standing = line.from.plus(Span(SECOND.0 / 10));
        assert_eq!(clock.piece_at(standing).virtual_at(standing), shown);
        assert_eq!(clock.ahead_of(&line, followed.joins.plus(SECOND)), Span::ZERO);
    }

    #[test]
    fn a_limit_holds_for_a_clock_that_has_not_come_there_and_stops_one_that_has() {
        let (_dir, clock) = clock();
        let line = Line {
            from: RealInstant(0),
            virt: VirtualInstant(0),
            ..line(&clock, SECOND, Rate::ONE)
        };
        clock.follow(&line, Approach::AtOnce).unwrap();
        let limit = line.virtual_at(host_time::now()).plus(Span(SECOND.0 / 5));
        clock.follow(&Line { limit, ..line }, Approach::AtOnce).unwrap();
        let later = host_time::now().plus(SECOND);
        assert_eq!(clock.piece_at(later).virtual_at(later), limit);

        let late = Line { limit: limit.plus(Span(-SECOND.0)), ..line };
        let followed = clock.follow(&late, Approach::AtOnce).unwrap();
        assert_eq!(followed.joins, RealInstant::NEVER);
        let stopped = clock.piece_at(followed.begins).virtual_at(followed.begins);
        assert!(late.limit < stopped && stopped <= limit, "{stopped:?}");
        assert_eq!(clock.piece_at(later).virtual_at(later), stopped);
    }

    #[test]
    fn a_slewing_clock_is_off_by_500_ppm_until_it_is_on_its_line() {
        for (more, sign) in [(Span(-1_000_000), -1), (Span(1_000_000), 1)] {
            let (_dir, clock) = clock();
            let line = line(&clock, more, Rate::ONE);
            let followed = clock.follow(&line, Approach::Slew).unwrap();
            // 1 ms by 500 ppm.
            assert_eq!(followed.joins.since(followed.begins), Span(2 * SECOND.0));
            let rate = clock.piece_at(followed.begins).rate;
            assert_eq!(rate, Rate::new((2_000 + sign) as u64, 2_000).unwrap());
            let ahead = clock.ahead_of(&line, followed.joins.plus(SECOND));
            assert!(ahead.0.abs() <= 1, "{ahead:?}");
        }
    }

    #[test]
    fn a_clock_that_a_killed_controller_has_left_standing_is_put_on_the_line() {
        let (_dir, clock) = clock();
        let line = line(&clock, Span(-SECOND.0), ten());
        // The first of the two changes of a clock that is ahead.
        let lock = ClockLock::take(clock.path()).unwrap();
        let stand = |change: &mut Change, _| line.put_standing(change);
        clock.change_locked(Moved::All, Some(line.from), stand).unwrap();
        drop(lock);
        host_time::sleep_until(line.from);
        let followed = clock.follow(&line, Approach::AtOnce).unwrap();
        assert!(followed.joins > followed.begins, "{followed:?}");
        assert_eq!(clock.ahead_of(&line, followed.joins.plus(SECOND)), Span::ZERO);
    }

    #[test]
    fn a_line_that_began_before_is_followed_from_now_on() {
        let (_dir, clock) = clock();
        let mut line = line(&clock, SECOND, ten());
        line.from = line.from.plus(Span(-SECOND.0));
        let before = host_time::now();
        let followed = clock.follow(&line, Approach::AtOnce).unwrap();
        assert!(followed.begins > before);
        assert_eq!(clock.ahead_of(&line, followed.begins.plus(SECOND)), Span::ZERO);
    }
}
