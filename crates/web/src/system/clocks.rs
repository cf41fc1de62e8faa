//! Clocks of containers, as the page draws them.

use lorentz_clock::{Pace, RealInstant, SkipMode, Span, VirtualInstant};
use lorentz_control as control;

use crate::types::{Clock, ClockError, Nanos, Network, Now, Pending};

/// Real time that a clock of an experiment may be drawn ahead without another look at it.
const DRAWN_AHEAD_NS: i64 = 600_000_000;
/// Real time over which the pace of a clock in rounds is averaged.
const WINDOW_NS: i64 = 1_000_000_000;

/// An open clock, and the points by which its pace in rounds is known.
pub struct WatchedClock {
    clock: control::Clock,
    before: Option<(RealInstant, VirtualInstant)>,
    recent: Option<(RealInstant, VirtualInstant)>,
}

impl WatchedClock {
    /// Watches `clock`.
    pub fn new(clock: control::Clock) -> WatchedClock {
        WatchedClock { clock, before: None, recent: None }
    }

    /// Looks at the clock. In an experiment it goes in short slices and stands in between: then the result has the pace of the last
    /// second.
    pub fn look(&mut self, is_in_experiment: bool) -> Clock {
        let look = self.clock.look();
        let limited = look.limit != VirtualInstant::NEVER;
        let mut shown = Clock {
            r0_ns: Nanos(look.segment.real.0),
            v0_ns: Nanos(look.segment.virt.0),
            rate: [look.rate.num(), look.rate.den()],
            limit_ns: limited.then_some(Nanos(look.limit.0)),
            wall_offset_ns: Nanos(lorentz_clock::saturate(look.segment.wall.as_nanos())),
            boot_offset_ns: Nanos(look.segment.boot.0),
            frozen: look.segment.pace == Pace::Frozen,
            skips_idle: self.clock.skipping().mode != SkipMode::Off,
            pending: Vec::new(),
            error: self.error(),
        };
        if look.until != RealInstant::NEVER {
            shown.pending = self.pending();
        }
        if is_in_experiment {
            self.smooth(look.real, look.now(), &mut shown);
        }
        shown
    }

    fn smooth(&mut self, real: RealInstant, virt: VirtualInstant, shown: &mut Clock) {
        let (from, before) = *self.before.get_or_insert((real, virt));
        let (elapsed, gone) = (real.since(from).0, virt.since(before).0);
        match self.recent {
            None => self.recent = Some((real, virt)),
            Some((at, _)) if real.since(at).0 >= WINDOW_NS => {
                (self.before, self.recent) = (self.recent, Some((real, virt)));
            }
            Some(_) => {}
        }
        let moves = elapsed > 0 && gone > 0;
        shown.rate = match moves {
            true => [gone as u64, elapsed as u64],
            // A rate above 0, for the page divides by it.
            false => shown.rate,
        };
        shown.r0_ns = Nanos(real.0);
        shown.v0_ns = Nanos(virt.0);
        let ahead = match moves {
            true => (gone as f64 / elapsed as f64 * DRAWN_AHEAD_NS as f64) as i64,
            false => 0,
        };
        shown.limit_ns = Some(Nanos(virt.plus(Span(ahead)).0));
    }

    fn error(&self) -> Option<ClockError> {
        if !self.clock.has_error() {
            return None;
        }
        let error = self.clock.error().ok()?;
        let told = error.discipline.max_error.saturating_mul(1000);
        Some(ClockError {
            offset_ns: Nanos(lorentz_clock::saturate(error.offset_ns)),
            frequency_ppb: (error.frequency_error * 1e9).round() as i64,
            told_ns: error.is_within_bound().map(|_| Nanos(told)),
        })
    }

    fn pending(&self) -> Vec<Pending> {
        let reading = self.clock.reading();
        let mut is_frozen = reading.frozen;
        let mut rate = reading.rate;
        let describe = |change: &control::ToCome| {
            let mut does = Vec::new();
            match (is_frozen, change.frozen) {
                (false, true) => does.push("freeze".to_string()),
                (true, false) => does.push(format!("unfreeze, at rate {}", change.rate)),
                (false, false) if rate != change.rate => does.push(format!("rate {}", change.rate)),
                _ => {}
            }
            if change.leap != Span::ZERO {
                does.push(format!("leap by {}", change.leap));
            }
            if change.step != Span::ZERO {
                does.push(format!("step by {}", change.step));
            }
            (is_frozen, rate) = (change.frozen, change.rate);
            let what = if does.is_empty() { "no difference".into() } else { does.join(", ") };
            Pending { at_real_ns: Nanos(reading.real.plus(change.left).0), what }
        };
        reading.to_come.iter().map(describe).collect()
    }

    /// Its leaps over idle time so far.
    pub fn leaps(&self) -> (i64, Span) {
        self.clock.leaps()
    }
}

/// Reads the host's clocks.
pub fn now() -> Now {
    let host = control::HostNow::read().unwrap_or_default();
    let wall = i64::try_from(host.wall.as_nanos()).unwrap_or(i64::MAX);
    Now { real_ns: Nanos(host.real.0), wall_ns: Nanos(wall) }
}

/// Returns what `clock` shows when the host's CLOCK_MONOTONIC shows `real`.
pub fn virtual_at(clock: &Clock, real: i64) -> i64 {
    let v0 = i128::from(clock.v0_ns.0);
    let elapsed = i128::from(real.saturating_sub(clock.r0_ns.0).max(0));
    let [num, den] = clock.rate.map(i128::from);
    let moved = if clock.frozen { 0 } else { elapsed * num / den.max(1) };
    let shown = lorentz_clock::saturate(v0 + moved);
    clock.limit_ns.map_or(shown, |limit| shown.min(limit.0))
}

/// Returns the virtual time of a network since its start when the host's CLOCK_MONOTONIC shows `real`. In rounds it is that of its
/// nodes.
pub fn time_of(network: &Network, real: i64) -> i64 {
    let clock = match network.rounds {
        Some(_) => network.nodes.iter().find_map(|node| node.clock.as_ref()),
        None => network.clock.as_ref(),
    };
    let shown = clock.zip(network.started_ns).map(|(clock, from)| virtual_at(clock, real) - from.0);
    shown.unwrap_or(network.virtual_ns.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_control::{ClockOptions, HostNow};

    fn clock(rate: &str) -> (tempfile::TempDir, control::Clock) {
        let dir = tempfile::tempdir().unwrap();
        let host = HostNow::read().unwrap();
        let asked = ClockOptions { rate: Some(rate.parse().unwrap()), ..Default::default() };
        let settings = asked.settings(&host).unwrap();
        let clock = control::Clock::create(&dir.path().join("clock"), &settings).unwrap();
        (dir, clock)
    }

    #[test]
    fn a_clock_is_drawn_as_it_reads() {
        let (_dir, clock) = clock("1/3");
        clock.leap("1h".parse().unwrap()).unwrap();
        let mut watched = WatchedClock::new(clock);
        let shown = watched.look(false);
        assert_eq!((shown.rate, shown.limit_ns, shown.frozen), ([1, 3], None, false));
        assert_eq!(shown.error, None);
        let reading = watched.clock.reading();
        assert_eq!(virtual_at(&shown, reading.real.0), reading.virt.0);
        let wall = reading.wall.as_nanos() - i128::from(reading.virt.0);
        assert_eq!(i128::from(shown.wall_offset_ns.0), wall);
    }

    #[test]
    fn a_frozen_clock_stands_and_announced_changes_are_told() {
        let (_dir, clock) = clock("2");
        clock.freeze().unwrap();
        let at = clock.look().real.plus("1h".parse().unwrap());
        clock.change(control::ClockChange::Unfreeze, Some(at)).unwrap();
        let shown = WatchedClock::new(clock).look(false);
        assert!(shown.frozen);
        assert_eq!(virtual_at(&shown, i64::MAX), shown.v0_ns.0);
        let [pending] = &shown.pending[..] else { panic!("{shown:?}") };
        assert_eq!(pending.what, "unfreeze, at rate 2");
        assert!((pending.at_real_ns.0 - at.0).abs() < 1_000_000, "{pending:?} {at:?}");
    }

    #[test]
    fn a_clock_that_errs_tells_how_far_it_is_from_the_truth() {
        let (_dir, clock) = clock("1");
        let bump = control::discipline::ClockErrorChange::Bump("90s".parse().unwrap(), None);
        clock.change_error(bump).unwrap();
        let error = WatchedClock::new(clock).look(false).error.unwrap();
        assert_eq!((error.offset_ns, error.frequency_ppb), (Nanos(90_000_000_000), 0));
        assert_eq!(error.told_ns, None);
    }

    #[test]
    fn a_clock_in_rounds_has_the_pace_of_its_rounds() {
        let (_dir, clock) = clock("1");
        let mut watched = WatchedClock::new(clock);
        let mut shown = Clock::default();
        let second = 1_000_000_000;
        for at in 0..5 {
            watched.smooth(RealInstant(at * second), VirtualInstant(at * second / 10), &mut shown);
        }
        assert!((shown.rate[1] as f64 / shown.rate[0] as f64 - 10.0).abs() < 1e-6, "{shown:?}");
        assert_eq!(virtual_at(&shown, 4 * second + 100), 4 * second / 10 + 10);
        // Without another look it is not drawn on for ever.
        assert_eq!(virtual_at(&shown, 60 * second), 4 * second / 10 + 60_000_000);
    }
}
