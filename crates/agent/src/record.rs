//! The record of a cluster clock: the line that its hosts follow, and the changes of it that are to come.
//!
//! ```text
//! V(T) = virtual + (T - at) * rate, never beyond limit
//! ```
//!
//! T is International Atomic Time (TAI), which has no leap seconds. A record depends on no host: the command that changes it computes
//! the new segment from the segment before. A freeze does not change the line, it sets the line's limit. So all hosts stand at the same
//! nanosecond, however wrong their own clocks are.

use lorentz_clock::{saturate, Pace, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime};
use serde::{Deserialize, Serialize};

/// Version of the layout. A record of another version is not followed.
const VERSION: u32 = 1;
/// Largest number of changes that may be to come: as many as a clock has room for.
const MAX_CHANGES_AHEAD: usize = lorentz_clock::MAX_CHANGES_AHEAD;

/// A point of International Atomic Time: nanoseconds since 1970-01-01 00:00:00 TAI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaiInstant(pub i64);

impl TaiInstant {
    /// Returns this instant moved by `span`.
    pub fn plus(self, span: Span) -> TaiInstant {
        TaiInstant(self.0.saturating_add(span.0))
    }
}

/// One segment of a cluster clock's line. The fields are those of the JSON in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LineSegment {
    /// Number of the change that made it.
    pub change: u64,
    /// The segment holds from this instant on.
    pub at_tai_ns: TaiInstant,
    /// Virtual time at that instant, ns.
    pub virtual_ns: i64,
    /// Numerator and denominator of the rate: virtual seconds per real second. While the clock stands, the rate to go on with.
    pub rate: (u64, u64),
    /// The latest virtual time that the clock shows, ns, if the clock is frozen.
    pub limit_ns: Option<i64>,
    /// Seconds of the wall clock's offset to virtual time.
    pub wall_secs: i64,
    /// Nanoseconds of that offset, 0..1e9.
    pub wall_nanos: u32,
}

impl LineSegment {
    /// The rate.
    pub fn rate(&self) -> Rate {
        Rate::new(self.rate.0, self.rate.1).unwrap_or_default()
    }

    /// The limit; [`VirtualInstant::NEVER`] for none.
    pub fn limit(&self) -> VirtualInstant {
        self.limit_ns.map_or(VirtualInstant::NEVER, VirtualInstant)
    }

    /// The offset of the wall clock.
    pub fn wall(&self) -> WallTime {
        WallTime { secs: self.wall_secs, nanos: self.wall_nanos }
    }

    /// The line by TAI in place of the host's clock.
    fn by_tai(&self) -> Segment {
        Segment {
            real: RealInstant(self.at_tai_ns.0),
            virt: VirtualInstant(self.virtual_ns),
            pace: Pace::Running(self.rate()),
            wall: self.wall(),
            boot: Span::ZERO,
        }
    }

    /// Returns virtual time at `at`.
    pub fn virtual_at(&self, at: TaiInstant) -> VirtualInstant {
        self.by_tai().virtual_at(RealInstant(at.0)).min(self.limit())
    }

    /// Returns the first instant at which the segment shows `virt`, if it had no limit.
    pub fn tai_at(&self, virt: VirtualInstant) -> TaiInstant {
        TaiInstant(self.by_tai().real_at(virt).0)
    }

    /// Whether the segment only sets the limit of `other`: both are the same line.
    pub fn limits(&self, other: &LineSegment) -> bool {
        self.limit_ns.is_some()
            && LineSegment { change: 0, limit_ns: None, ..*self }
                == LineSegment { change: 0, limit_ns: None, ..*other }
    }

    fn is_valid(&self) -> bool {
        Rate::new(self.rate.0, self.rate.1).is_some()
            && self.virtual_ns >= 0
            && i64::from(self.wall_nanos) < lorentz_clock::NANOS_PER_SEC
    }
}

/// A change that somebody wants of a cluster clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Another rate.
    Dilate(Rate),
    /// Time stands still.
    Freeze,
    /// Time runs again.
    Unfreeze,
    /// All clocks go forward by this span, 0 or more.
    Leap(Span),
    /// The wall clock goes forward or back.
    Step(Span),
}

/// The reason why a record cannot be changed so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeRefused {
    /// Too many changes are to come.
    #[error("{MAX_CHANGES_AHEAD} changes are to come, more than a clock has room for; wait for the first of them")]
    TooMany,
    /// The wall clock would show a time before 1970, or virtual time would be beyond the kernel's range.
    #[error("the clock would leave the range of the kernel's clocks, 1970 to 2262")]
    OutOfRange,
}

/// The record of a cluster clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockRecord {
    version: u32,
    /// The segment in force, and those to come. The first one may be long past; the last one holds for ever.
    segments: Vec<LineSegment>,
}

impl ClockRecord {
    /// Makes a clock that shows `wall` at `at`. Its CLOCK_MONOTONIC starts at 0.
    ///
    /// # Errors
    ///
    /// [`ChangeRefused::OutOfRange`].
    pub fn new(at: TaiInstant, wall: WallTime, rate: Rate) -> Result<ClockRecord, ChangeRefused> {
        let first = LineSegment {
            change: 1,
            at_tai_ns: at,
            virtual_ns: 0,
            rate: (rate.num(), rate.den()),
            limit_ns: None,
            wall_secs: wall.secs,
            wall_nanos: wall.nanos,
        };
        check_range(&first)?;
        Ok(ClockRecord { version: VERSION, segments: vec![first] })
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The reason why the text is no record of this version.
    pub fn parse(text: &[u8]) -> Result<ClockRecord, String> {
        let record: ClockRecord = serde_json::from_slice(text)
            .map_err(|error| format!("no record of a clock: {error}"))?;
        if record.version != VERSION {
            return Err(format!("a record of version {}; expected {VERSION}", record.version));
        }
        let is_ordered = record.segments.is_sorted_by_key(|segment| segment.change);
        let is_valid =
            !record.segments.is_empty() && record.segments.iter().all(LineSegment::is_valid);
        match is_valid && is_ordered {
            true => Ok(record),
            false => Err("a record of a clock with values out of range".to_string()),
        }
    }

    /// The record as JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings alone")
    }

    /// The segments, the one in force first.
    pub fn segments(&self) -> &[LineSegment] {
        &self.segments
    }

    /// The number of the newest change.
    pub fn change(&self) -> u64 {
        self.newest().change
    }

    /// The rate of the newest segment.
    pub fn rate(&self) -> Rate {
        self.newest().rate()
    }

    /// Whether the newest segment has a limit.
    pub fn is_frozen(&self) -> bool {
        self.newest().limit_ns.is_some()
    }

    fn newest(&self) -> &LineSegment {
        self.segments.last().expect("a record has a segment")
    }

    /// Returns the segment in force at `at`.
    pub fn in_force(&self, at: TaiInstant) -> &LineSegment {
        let begun = |segment: &&LineSegment| segment.at_tai_ns <= at;
        self.segments.iter().rev().find(begun).unwrap_or(&self.segments[0])
    }

    /// Returns the record with one change more, and the instant of the change. `None` if the change changes nothing. The change comes
    /// `lead` after `now`, and after those that are to come.
    ///
    /// # Errors
    ///
    /// [`ChangeRefused`].
    pub fn changed(
        &self,
        wanted: Wanted,
        now: TaiInstant,
        lead: Span,
    ) -> Result<Option<(ClockRecord, TaiInstant)>, ChangeRefused> {
        let last = *self.newest();
        let mut at = now.plus(lead).max(last.at_tai_ns);
        if let Some(limit) = last.limit_ns {
            // Not before all hosts stand: a change in between would take some of them beyond the limit.
            at = at.max(last.tai_at(VirtualInstant(limit)));
        }
        let virt = last.virtual_at(at);
        let mut next = LineSegment { at_tai_ns: at, virtual_ns: virt.0, ..last };
        match wanted {
            Wanted::Freeze if last.limit_ns.is_some() => return Ok(None),
            Wanted::Unfreeze if last.limit_ns.is_none() => return Ok(None),
            Wanted::Freeze => next = LineSegment { limit_ns: Some(virt.0), ..last },
            Wanted::Unfreeze => next.limit_ns = None,
            Wanted::Dilate(rate) => next.rate = (rate.num(), rate.den()),
            Wanted::Leap(by) => {
                next.virtual_ns = virt.plus(by).0;
                next.limit_ns = last.limit_ns.map(|_| next.virtual_ns);
            }
            Wanted::Step(by) => {
                let wall = next.wall().plus(by);
                (next.wall_secs, next.wall_nanos) = (wall.secs, wall.nanos);
            }
        }
        next.change = last.change + 1;
        check_range(&next)?;
        let first = self.in_force(now).change;
        let kept = self.segments.iter().filter(|segment| segment.change >= first);
        let segments: Vec<LineSegment> = kept.copied().chain([next]).collect();
        if segments.len() > MAX_CHANGES_AHEAD {
            return Err(ChangeRefused::TooMany);
        }
        Ok(Some((ClockRecord { version: VERSION, segments }, at)))
    }
}

fn check_range(segment: &LineSegment) -> Result<(), ChangeRefused> {
    let wall = segment.wall().as_nanos() + i128::from(segment.virtual_ns);
    let is_in = wall >= 0 && saturate(wall) < i64::MAX && segment.virtual_ns < i64::MAX / 2;
    is_in.then_some(()).ok_or(ChangeRefused::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const LEAD: Span = Span(SECOND);

    fn tai(secs: i64) -> TaiInstant {
        TaiInstant(secs * SECOND)
    }

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn record() -> ClockRecord {
        ClockRecord::new(tai(1_000), "2038-01-19T03:14:00Z".parse().unwrap(), rate("10")).unwrap()
    }

    fn change(record: &ClockRecord, wanted: Wanted, now: TaiInstant) -> ClockRecord {
        record.changed(wanted, now, LEAD).unwrap().unwrap().0
    }

    fn shown(record: &ClockRecord, at: TaiInstant) -> i64 {
        record.in_force(at).virtual_at(at).0
    }

    #[test]
    fn a_rate_changes_after_the_lead_and_no_clock_jumps() {
        let record = change(&record(), Wanted::Dilate(rate("1/2")), tai(1_004));
        assert_eq!(shown(&record, tai(1_005)), 50 * SECOND);
        assert_eq!(shown(&record, TaiInstant(tai(1_005).0 - 1)), 50 * SECOND - 10);
        assert_eq!(shown(&record, tai(1_007)), 51 * SECOND);
        assert_eq!(record.change(), 2);
    }

    #[test]
    fn a_freeze_limits_the_line_and_an_unfreeze_goes_on_from_the_limit() {
        let before = record();
        let frozen = change(&before, Wanted::Freeze, tai(1_004));
        let limited = frozen.in_force(tai(1_004));
        assert!(limited.limits(before.in_force(tai(1_004))));
        assert_eq!(shown(&frozen, tai(9_000)), 50 * SECOND);
        assert_eq!(limited.limit_ns, Some(50 * SECOND));
        assert_eq!(frozen.changed(Wanted::Freeze, tai(1_010), LEAD), Ok(None));

        let faster = change(&frozen, Wanted::Dilate(rate("100")), tai(1_010));
        assert_eq!(shown(&faster, tai(2_000)), 50 * SECOND);
        let running = change(&faster, Wanted::Unfreeze, tai(2_000));
        assert_eq!(shown(&running, tai(2_001)), 50 * SECOND);
        assert_eq!(shown(&running, tai(2_002)), 150 * SECOND);
        assert_eq!(running.changed(Wanted::Unfreeze, tai(3_000), LEAD), Ok(None));
    }

    #[test]
    fn an_unfreeze_right_after_a_freeze_waits_until_all_hosts_stand() {
        let frozen = change(&record(), Wanted::Freeze, tai(1_004));
        let (running, at) = frozen.changed(Wanted::Unfreeze, tai(1_004), Span(0)).unwrap().unwrap();
        assert_eq!(at, tai(1_005));
        assert_eq!(shown(&running, tai(1_006)), 60 * SECOND);
    }

    #[test]
    fn a_leap_moves_all_clocks_and_a_step_the_wall_clock_alone() {
        let leapt = change(&record(), Wanted::Leap(Span(3_600 * SECOND)), tai(1_000));
        assert_eq!(shown(&leapt, tai(1_001)), 3_610 * SECOND);
        let stepped = change(&leapt, Wanted::Step(Span(-60 * SECOND)), tai(1_001));
        assert_eq!(shown(&stepped, tai(1_002)), 3_620 * SECOND);
        let wall = stepped.in_force(tai(1_002)).wall();
        assert_eq!(wall.to_string(), "2038-01-19T03:13:00Z");
        let frozen = change(&stepped, Wanted::Freeze, tai(1_010));
        let moved = change(&frozen, Wanted::Leap(Span(SECOND)), tai(1_020));
        assert_eq!(shown(&moved, tai(5_000)), shown(&frozen, tai(5_000)) + SECOND);
    }

    #[test]
    fn changes_to_come_keep_their_order_and_past_ones_are_dropped() {
        let first = change(&record(), Wanted::Dilate(rate("2")), tai(1_000));
        let both = change(&first, Wanted::Dilate(rate("3")), tai(1_000));
        assert_eq!(both.segments().len(), 3);
        assert_eq!(shown(&both, tai(1_002)), 13 * SECOND);
        let later = change(&both, Wanted::Dilate(rate("4")), tai(2_000));
        assert_eq!(later.segments().iter().map(|one| one.change).collect::<Vec<_>>(), [3, 4]);

        let mut full = record();
        let refused = loop {
            match full.changed(Wanted::Step(Span(1)), tai(1_000), LEAD) {
                Ok(Some((more, _))) => full = more,
                other => break other,
            }
        };
        assert_eq!(refused, Err(ChangeRefused::TooMany));
        assert_eq!(full.segments().len(), MAX_CHANGES_AHEAD);
    }

    #[test]
    fn times_out_of_range_are_refused() {
        let back = Wanted::Step(Span::from_secs(-100 * 365 * 86_400));
        assert_eq!(record().changed(back, tai(1_000), LEAD), Err(ChangeRefused::OutOfRange));
        let far = Wanted::Leap(Span::from_secs(250 * 365 * 86_400));
        assert_eq!(record().changed(far, tai(1_000), LEAD), Err(ChangeRefused::OutOfRange));
    }

    #[test]
    fn a_record_reads_back_as_written_and_others_are_refused() {
        let record = change(&record(), Wanted::Freeze, tai(1_004));
        let text = record.text();
        assert_eq!(ClockRecord::parse(text.as_bytes()), Ok(record));
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("\"rate\":[10,1]", "\"rate\":[0,1]"),
            ("\"wall_nanos\":0", "\"wall_nanos\":1000000000"),
            ("\"virtual_ns\":0", "\"virtual_ns\":-1"),
            ("{", "["),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_ne!(wrong, text, "{from}");
            assert!(ClockRecord::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(ClockRecord::parse(br#"{"version":1,"segments":[]}"#).is_err());
    }
}
