//! The arithmetic of a segment: exact, reversible, never backwards, and clamped at the ends of its range.

#![cfg(not(loom))]

use lorentz_clock::{
    Pace, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime, NANOS_PER_SEC,
};
use proptest::prelude::*;
use std::ops::RangeInclusive;

const YEAR: i64 = 31_557_600 * NANOS_PER_SEC;
const CENTURY: i64 = 100 * YEAR;
/// Upper bound of the terms of a rate, exclusive.
const TERM_LIMIT: u64 = 1 << 50;

/// Rates from 1/1000 to 1000.
fn ordinary_rate() -> impl Strategy<Value = Rate> {
    let term = 1..=1_000_000_u64;
    prop_oneof![
        (1..=1000_u64).prop_map(|num| rate(num, 1)),
        (1..=1000_u64).prop_map(|den| rate(1, den)),
        (term.clone(), term)
            .prop_filter("from 1/1000 to 1000", |(num, den)| {
                *num <= den * 1000 && *den <= num * 1000
            })
            .prop_map(|(num, den)| rate(num, den)),
    ]
}

/// Generates any valid rate, with extremes and terms of 50 bits.
fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        1 => Just(rate(Rate::MAX, 1)),
        1 => Just(rate(1, Rate::MAX)),
        1 => Just(rate(TERM_LIMIT - 1, TERM_LIMIT - 2)),
        1 => Just(rate(TERM_LIMIT - 1, (TERM_LIMIT - 1) / Rate::MAX + 1)),
        2 => ordinary_rate(),
        4 => (1..TERM_LIMIT, 1..TERM_LIMIT)
            .prop_filter_map("a rate", |(num, den)| Rate::new(num, den)),
    ]
}

fn rate(num: u64, den: u64) -> Rate {
    Rate::new(num, den).expect("a valid rate")
}

/// Generates a segment that begins up to 10 years after the host's boot, at up to 100 virtual years.
fn segment(rate: impl Strategy<Value = Rate>) -> impl Strategy<Value = (Segment, Rate)> {
    (rate, 0..10 * YEAR, 0..CENTURY)
        .prop_map(|(rate, real, virt)| (running(real, virt, rate), rate))
}

/// Generates a segment that begins at any instant.
fn wild_segment() -> impl Strategy<Value = (Segment, Rate)> {
    (any_rate(), instant(), instant())
        .prop_map(|(rate, real, virt)| (running(real, virt, rate), rate))
}

/// Generates an instant from zero on, often near an end of the range.
fn instant() -> impl Strategy<Value = i64> {
    prop_oneof![0..=1000_i64, 0..CENTURY, 0..=i64::MAX, i64::MAX - 1000..=i64::MAX]
}

fn running(real: i64, virt: i64, rate: Rate) -> Segment {
    Segment {
        real: RealInstant(real),
        virt: VirtualInstant(virt),
        pace: Pace::Running(rate),
        wall: WallTime::default(),
        boot: Span::ZERO,
    }
}

fn frozen(real: i64, virt: i64) -> Segment {
    Segment { pace: Pace::Frozen, ..running(real, virt, Rate::ONE) }
}

/// Computes, by the definition, virtual time `elapsed` after the start of a segment at `virt`.
fn exact_virtual(virt: i64, elapsed: i64, rate: Rate) -> i64 {
    let passed = elapsed as u128 * rate.num() as u128 / rate.den() as u128;
    let end = virt as u128 + passed;
    end.min(i64::MAX as u128) as i64
}

/// Computes, by the definition, the real instant at which a segment from `real` on has gained `ahead` virtual nanoseconds.
fn exact_real(real: i64, ahead: i64, rate: Rate) -> i64 {
    let product = ahead as u128 * rate.den() as u128;
    let passed = product.div_ceil(rate.num() as u128);
    let end = real as u128 + passed;
    end.min(i64::MAX as u128) as i64
}

/// Returns how far from the start of a segment of this rate one may go so that both clocks pass at most a century.
fn century(rate: Rate, on_virtual_clock: bool) -> RangeInclusive<i64> {
    let (num, den) = (rate.num() as u128, rate.den() as u128);
    let (here, there) = if on_virtual_clock { (num, den) } else { (den, num) };
    0..=(CENTURY as u128 * here / there).min(CENTURY as u128) as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A conversion to virtual time and back to it loses less than one virtual nanosecond. It loses nothing if virtual time is
    /// the finer clock.
    #[test]
    fn real_to_virtual_and_back(
        ((segment, rate), elapsed) in segment(ordinary_rate())
            .prop_flat_map(|of| (Just(of), century(of.1, false)))
    ) {
        let real = segment.real.plus(Span(elapsed));
        let back = segment.real_at(segment.virtual_at(real));
        let short = real.since(back).0;
        prop_assert!(short >= 0);
        if rate.num() >= rate.den() {
            prop_assert_eq!(short, 0);
        } else {
            prop_assert!(short as u128 * (rate.num() as u128) < rate.den() as u128, "{} ns", short);
        }
        prop_assert_eq!(segment.virtual_at(back), segment.virtual_at(real));
    }

    /// A conversion to real time and back to it gains less than one real nanosecond. It gains nothing if real time is the finer
    /// clock.
    #[test]
    fn virtual_to_real_and_back(
        ((segment, rate), ahead) in segment(ordinary_rate())
            .prop_flat_map(|of| (Just(of), century(of.1, true)))
    ) {
        let virt = segment.virt.plus(Span(ahead));
        let back = segment.virtual_at(segment.real_at(virt));
        let over = back.since(virt).0;
        prop_assert!(over >= 0);
        if rate.num() <= rate.den() {
            prop_assert_eq!(over, 0);
        } else {
            prop_assert!(over as u128 * (rate.den() as u128) < rate.num() as u128, "{} ns", over);
        }
        prop_assert_eq!(segment.real_at(back), segment.real_at(virt));
    }

    #[test]
    fn as_exact_as_whole_numbers_are((segment, rate) in wild_segment(), real in instant(), virt in instant()) {
        let elapsed = (real - segment.real.0).max(0);
        let shown = segment.virtual_at(RealInstant(real));
        prop_assert_eq!(shown.0, exact_virtual(segment.virt.0, elapsed, rate));
        let ahead = (virt - segment.virt.0).max(0);
        let due = segment.real_at(VirtualInstant(virt));
        prop_assert_eq!(due.0, exact_real(segment.real.0, ahead, rate));
    }

    #[test]
    fn later_is_never_earlier((segment, _) in wild_segment(), a in instant(), b in instant()) {
        let (early, late) = (a.min(b), a.max(b));
        prop_assert!(segment.virtual_at(RealInstant(early)) <= segment.virtual_at(RealInstant(late)));
        prop_assert!(segment.real_at(VirtualInstant(early)) <= segment.real_at(VirtualInstant(late)));
        prop_assert!(segment.virtual_at(RealInstant(early)) >= segment.virt);
        prop_assert!(segment.real_at(VirtualInstant(early)) >= segment.real);
    }

    /// A wait ends not one nanosecond early and not one late.
    #[test]
    fn a_deadline_is_due_at_the_first_instant_that_shows_it((segment, _) in wild_segment(), virt in instant()) {
        let deadline = VirtualInstant(virt);
        let due = segment.real_at(deadline);
        if due != RealInstant::NEVER {
            prop_assert!(segment.virtual_at(due) >= deadline);
        }
        if due > segment.real {
            prop_assert!(segment.virtual_at(RealInstant(due.0 - 1)) < deadline);
        }
    }

    /// Like every change of a clock, the new segment begins at the value that the old one shows.
    #[test]
    fn a_chain_of_segments_never_goes_back(
        real in 0..10 * YEAR,
        virt in 0..CENTURY,
        links in prop::collection::vec(
            (prop::option::weighted(0.8, any_rate()), 0..YEAR, 0..YEAR, 0..2000_i64), 1..20),
    ) {
        let mut segment = running(real, virt, Rate::ONE);
        let mut shown = segment.virt;
        for (rate, lasted, beyond, near) in links {
            let change = segment.real.plus(Span(lasted));
            for real in [change.0 - near, change.0 - 1, change.0] {
                let now = segment.virtual_at(RealInstant(real));
                prop_assert!(real < segment.real.0 || now <= segment.virtual_at(change));
            }
            let virt = segment.virtual_at(change);
            prop_assert!(virt >= shown);
            shown = virt;
            segment = match rate {
                Some(rate) => running(change.0, virt.0, rate),
                None => frozen(change.0, virt.0),
            };
            for real in [change.0, change.0 + 1, change.0 + near, change.0 + beyond] {
                prop_assert!(segment.virtual_at(RealInstant(real)) >= shown);
            }
        }
    }

    /// A change may lose the fraction of a nanosecond that no read has shown yet, and no more.
    #[test]
    fn a_change_costs_less_than_a_nanosecond(
        rate in ordinary_rate(),
        cuts in prop::collection::vec(0..NANOS_PER_SEC, 1..50),
    ) {
        let whole = running(0, 0, rate);
        let mut segment = whole;
        for (count, cut) in cuts.iter().enumerate() {
            let real = segment.real.plus(Span(*cut));
            segment = running(real.0, segment.virtual_at(real).0, rate);
            let lost = whole.virtual_at(real).since(segment.virt).0;
            prop_assert!((0..=count as i64 + 1).contains(&lost), "{} ns lost", lost);
        }
    }

    #[test]
    fn frozen_time_stands_still(real in instant(), virt in instant(), at in instant(), deadline in instant()) {
        let segment = frozen(real, virt);
        prop_assert_eq!(segment.virtual_at(RealInstant(at)).0, virt);
        let due = segment.real_at(VirtualInstant(deadline));
        prop_assert_eq!(due, if deadline <= virt { segment.real } else { RealInstant::NEVER });
    }

    /// Wall time is exactly its offset ahead of the virtual clock, in any year.
    #[test]
    fn wall_time_is_exact(secs in -1_000_000_000_000..1_000_000_000_000_i64, nanos in 0..1_000_000_000_u32, virt: i64) {
        let wall = WallTime { secs, nanos };
        let segment = Segment { wall, ..running(0, 0, Rate::ONE) };
        let shown = segment.wall_at(VirtualInstant(virt));
        prop_assert!(shown.nanos < 1_000_000_000);
        let exact = i128::from(secs) * 1_000_000_000 + i128::from(nanos) + i128::from(virt);
        prop_assert_eq!(i128::from(shown.secs) * 1_000_000_000 + i128::from(shown.nanos), exact);
        prop_assert_eq!(segment.virtual_at_wall(shown), VirtualInstant(virt));
    }

    #[test]
    fn wall_times_out_of_reach_are_held_at_the_ends(wall: i64, asked: i64) {
        let segment = Segment { wall: WallTime { secs: wall, nanos: 0 }, ..running(0, 0, Rate::ONE) };
        let exact = (i128::from(asked) - i128::from(wall)) * 1_000_000_000;
        let held = exact.clamp(i64::MIN.into(), i64::MAX.into());
        let found = segment.virtual_at_wall(WallTime { secs: asked, nanos: 0 });
        prop_assert_eq!(i128::from(found.0), held);
    }

    #[test]
    fn nanoseconds_since_the_epoch_and_back(secs: i64, nanos in 0..1_000_000_000_u32) {
        let wall = WallTime { secs, nanos };
        prop_assert_eq!(WallTime::from_nanos(wall.as_nanos()), wall);
    }

    #[test]
    fn spans_are_held_at_the_ends(instant: i64, span: i64) {
        let exact = (i128::from(instant) + i128::from(span)).clamp(i64::MIN.into(), i64::MAX.into());
        prop_assert_eq!(i128::from(RealInstant(instant).plus(Span(span)).0), exact);
        prop_assert_eq!(i128::from(VirtualInstant(instant).plus(Span(span)).0), exact);
        let exact = (i128::from(instant) - i128::from(span)).clamp(i64::MIN.into(), i64::MAX.into());
        prop_assert_eq!(i128::from(RealInstant(instant).since(RealInstant(span)).0), exact);
        prop_assert_eq!(i128::from(VirtualInstant(instant).since(VirtualInstant(span)).0), exact);
    }
}

#[test]
fn a_century_at_the_ends_of_the_ordinary_rates() {
    let slow = running(0, 0, rate(1, 1000));
    assert_eq!(slow.virtual_at(RealInstant(CENTURY)), VirtualInstant(CENTURY / 1000));
    assert_eq!(slow.virtual_at(RealInstant(CENTURY - 1)), VirtualInstant(CENTURY / 1000 - 1));
    assert_eq!(slow.real_at(VirtualInstant(CENTURY / 1000)), RealInstant(CENTURY));
    let fast = running(0, 0, rate(1000, 1));
    assert_eq!(fast.virtual_at(RealInstant(CENTURY / 1000)), VirtualInstant(CENTURY));
    assert_eq!(fast.real_at(VirtualInstant(CENTURY)), RealInstant(CENTURY / 1000));
    assert_eq!(fast.real_at(VirtualInstant(CENTURY + 1)), RealInstant(CENTURY / 1000 + 1));
}

#[test]
fn beyond_the_end_time_is_held() {
    let fast = running(0, 0, rate(Rate::MAX, 1));
    assert_eq!(fast.virtual_at(RealInstant(CENTURY)), VirtualInstant::NEVER);
    assert_eq!(fast.virtual_at(RealInstant::NEVER), VirtualInstant::NEVER);
    let slow = running(0, 0, rate(1, Rate::MAX));
    assert_eq!(slow.real_at(VirtualInstant(CENTURY)), RealInstant::NEVER);
    let late = running(i64::MAX - 1, i64::MAX - 1, Rate::ONE);
    assert_eq!(late.virtual_at(RealInstant::NEVER), VirtualInstant::NEVER);
    assert_eq!(late.real_at(VirtualInstant::NEVER), RealInstant::NEVER);
}

#[test]
fn before_its_start_a_segment_shows_its_start() {
    for segment in [running(1_000, 50, rate(1000, 1)), frozen(1_000, 50)] {
        assert_eq!(segment.virtual_at(RealInstant(0)), VirtualInstant(50));
        assert_eq!(segment.virtual_at(RealInstant(999)), VirtualInstant(50));
        assert_eq!(segment.real_at(VirtualInstant(49)), RealInstant(1_000));
        assert_eq!(segment.real_at(VirtualInstant(i64::MIN)), RealInstant(1_000));
    }
}

/// The wall clock counts seconds apart from nanoseconds. It does not end in April 2262, where 64 bits of nanoseconds do.
#[test]
fn the_wall_clock_lives_through_every_epoch() {
    for (start, later) in [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:01.5Z"),
        ("2038-01-19T03:14:07Z", "2038-01-19T03:14:08.5Z"),
        ("2262-04-11T23:47:16Z", "2262-04-11T23:47:17.5Z"),
        ("2499-12-31T23:59:59Z", "2500-01-01T00:00:00.5Z"),
        ("9999-12-31T23:59:58Z", "9999-12-31T23:59:59.5Z"),
    ] {
        let wall: WallTime = start.parse().unwrap();
        let segment = Segment { wall, ..running(0, 0, rate(3, 1)) };
        let virt = segment.virtual_at(RealInstant(NANOS_PER_SEC / 2));
        assert_eq!(segment.wall_at(virt).to_string(), later);
        assert_eq!(segment.virtual_at_wall(later.parse().unwrap()), virt);
    }
    let ancient = Segment { wall: WallTime { secs: -1, nanos: 999_999_999 }, ..frozen(0, 0) };
    assert_eq!(ancient.wall_at(VirtualInstant(1)), WallTime::default());
}
