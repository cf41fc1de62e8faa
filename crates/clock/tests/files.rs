//! Times of files. The kernel stamps files by its last tick, so a stamp may lie before a change that preceded the write.

#![cfg(not(loom))]

use clock::Clock;
use lorentz_clock::{Change, Pace, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime};
use proptest::prelude::*;

mod clock;

fn start() -> Segment {
    Segment {
        real: RealInstant(1_000),
        virt: VirtualInstant(0),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime::default(),
        boot: Span::ZERO,
    }
}

fn shown_time(clock: &Clock, stamp: i64, now: i64) -> i128 {
    let (page, registry) = (&clock.page, &clock.registry);
    let host_wall = WallTime::default();
    page.wall_of_file(registry, RealInstant(stamp), RealInstant(now), host_wall).as_nanos()
}

/// The timestamp for a file that is to show `wall`.
fn stamp_of(clock: &Clock, wall: i128) -> i64 {
    let (page, registry) = (&clock.page, &clock.registry);
    page.stamp_of_file(registry, WallTime::from_nanos(wall), WallTime::default()).0
}

/// A clock that begins at 1,000 by the host's wall clock, `ahead` of it.
fn beginning(ahead: i128) -> Clock {
    let wall = WallTime::from_nanos(i128::from(start().real.0) + ahead);
    Clock::new(&Segment { wall, ..start() })
}

#[test]
fn a_file_of_before_keeps_its_time_in_a_clock_that_begins_later() {
    let clock = beginning(5_000);
    for stamp in [-1_000_000, 0, 999] {
        assert_eq!(shown_time(&clock, stamp, 2_000), i128::from(stamp));
        assert_eq!(stamp_of(&clock, stamp.into()), stamp);
    }
    assert_eq!(shown_time(&clock, 1_000, 2_000), 6_000);
    // No file shows a time between: the next one that can be shown is the start.
    assert_eq!(stamp_of(&clock, 3_000), 1_000);
}

#[test]
fn a_young_file_shows_half_its_age_in_a_clock_that_begins_earlier() {
    let clock = beginning(-300);
    // 600 old, or older: as the host shows it. Younger: half as old at the start, which shows 700.
    for (stamp, shown) in [(0, 0), (399, 399), (400, 400), (600, 500), (800, 600), (999, 700)] {
        assert_eq!(shown_time(&clock, stamp, 2_000), shown, "{stamp}");
    }
}

#[test]
fn a_file_stamped_behind_the_line_is_written_after_the_leap() {
    let clock = Clock::new(&start());
    clock.change(2_000, |change| {
        change.leap = Span(1_000_000);
        change.file_boundary = Some(RealInstant(1_900));
    });
    assert_eq!(shown_time(&clock, 1_899, 3_000), 899);
    for stamp in [1_900, 1_950, 2_000] {
        assert_eq!(shown_time(&clock, stamp, 3_000), 1_001_000, "{stamp}");
    }
    assert_eq!(shown_time(&clock, 2_001, 3_000), 1_001_001);
}

#[test]
fn a_change_to_come_has_written_nothing_yet() {
    let clock = Clock::new(&start());
    clock.change(2_000, |change| {
        change.at = RealInstant(2_500);
        change.leap = Span(1_000_000);
        change.file_boundary = Some(RealInstant(1_900));
    });
    assert_eq!(shown_time(&clock, 1_950, 2_499), 950);
    assert_eq!(shown_time(&clock, 1_950, 2_500), 1_001_500);
}

#[test]
fn without_a_line_a_file_is_as_old_as_its_stamp() {
    let clock = Clock::new(&start());
    clock.change(2_000, |change| change.leap = Span(1_000_000));
    assert_eq!(shown_time(&clock, 1_999, 3_000), 999);
    assert_eq!(shown_time(&clock, 2_000, 3_000), 1_001_000);
}

proptest! {
    /// Also where the host's wall clock has been set by `set` seconds since the clock was created.
    #[test]
    fn old_files_show_their_timestamps(
        ahead in -1_000_000_000_000_000_000..1_000_000_000_000_000_000_i128,
        set in -3_599..3_600_i64,
        age in 0..3_000_000_000_i64,
    ) {
        const SEC: i64 = 1_000_000_000;
        let clock = beginning(ahead);
        let stamp = clock.page.old_stamps_end() - 1 - age;
        let host_wall = WallTime::from_nanos(i128::from(set * SEC));
        let real = RealInstant((stamp - set) * SEC);
        let shown = clock.page.wall_of_file(&clock.registry, real, RealInstant(2_000), host_wall);
        prop_assert_eq!(shown, WallTime { secs: stamp, nanos: 0 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Files that were written one after the other have times in that order. No file has a time before the clock's time at its
    /// change's line.
    #[test]
    fn files_are_told_in_their_order(
        changes in prop::collection::vec((1..5_000i64, 0..400i64, 0..1_000_000i64, 1..20u64), 1..30),
    ) {
        let clock = Clock::new(&start());
        let mut now = start().real.0;
        let mut drawn = Vec::new();
        for (wait, before, leap, rate) in changes {
            now += wait + before;
            let line = now - before.min(wait);
            drawn.push((line, now));
            clock.change(now, |change: &mut Change| {
                change.leap = Span(leap);
                change.pace = Pace::Running(Rate::new(rate, 7).expect("a rate"));
                change.file_boundary = Some(RealInstant(line));
            });
        }
        let end = now + 10_000;
        let all = (start().real.0..end).map(|stamp| shown_time(&clock, stamp, end));
        prop_assert!(all.is_sorted());
        for (line, at) in drawn {
            let shown = clock.page.wall_of(&clock.registry, RealInstant(at)).as_nanos();
            prop_assert!(shown_time(&clock, line, end) >= shown);
        }
    }

    /// Files of before and after the start have times in the order in which they were written, and none of before shows a time to
    /// come. A time that a file can show reads back as it was set.
    #[test]
    fn files_of_before_are_told_in_their_order(ahead in -3_000..3_000i128) {
        let clock = beginning(ahead);
        let first = i128::from(start().real.0) + ahead;
        let shown: Vec<_> = (-9_000..9_000).map(|stamp| shown_time(&clock, stamp, 10_000)).collect();
        prop_assert!(shown.is_sorted());
        prop_assert!(shown[..10_000].iter().all(|wall| *wall <= first.max(1_000)));
        for wall in shown {
            prop_assert_eq!(shown_time(&clock, stamp_of(&clock, wall), 10_000), wall);
        }
        if ahead <= 0 {
            for wall in -9_000..first {
                prop_assert_eq!(shown_time(&clock, stamp_of(&clock, wall), 10_000), wall);
            }
        }
    }
}
