//! Leaps over idle time: the sum, and what is remembered of it.

#![cfg(not(loom))]

use lorentz_clock::{
    ClockPage, Leaps, Pace, Policy, Rate, RealInstant, Segment, SkipMode, Span, VirtualInstant,
    WallTime, LEAPS,
};
use proptest::prelude::*;

mod zeroed;

fn leaps() -> Box<Leaps> {
    // SAFETY: nothing but atomics.
    unsafe { zeroed::zeroed() }
}

/// Leaps at the instants and by the spans given.
fn after(jumps: &[(i64, i64)]) -> Box<Leaps> {
    let leaps = leaps();
    for (at, by) in jumps {
        assert!(leaps.leap(leaps.sum(), Span(*by), RealInstant(*at)));
    }
    leaps
}

#[test]
fn a_leap_from_another_sum_is_none() {
    let leaps = after(&[(10, 5)]);
    assert!(!leaps.leap(Span::ZERO, Span(7), RealInstant(20)));
    assert_eq!((leaps.sum(), leaps.count()), (Span(5), 1));
}

#[test]
fn what_reading_costs_is_no_leap() {
    let leaps = after(&[(10, 5)]);
    leaps.pay(Span(3));
    assert_eq!((leaps.sum(), leaps.count()), (Span(8), 1));
    assert_eq!(leaps.at(RealInstant(11)), Span(5));
}

#[test]
fn the_sum_stays_in_range() {
    let leaps = after(&[(10, i64::MAX), (20, 1)]);
    assert_eq!(leaps.sum(), Span(i64::MAX));
}

#[test]
fn the_log_is_thinned_and_stays_in_order() {
    let many = 5 * LEAPS as i64;
    let jumps: Vec<_> = (1..=many).map(|i| (i * 10, 1)).collect();
    let leaps = after(&jumps);
    let mut last = Span::ZERO;
    for i in 1..=many {
        let told = leaps.at(RealInstant(i * 10));
        assert!(last <= told && told <= Span(i), "{i}: {told:?}");
        last = told;
    }
    // The latest are told exactly.
    assert_eq!(leaps.at(RealInstant(many * 10)), Span(many));
    assert_eq!(leaps.at(RealInstant(many * 10 - 15)), Span(many - 2));
    assert_eq!(leaps.at(RealInstant(5)), Span::ZERO);
}

/// A page believes leaps from the moment it skips, for good.
#[test]
fn a_page_that_has_skipped_goes_on_believing() {
    // SAFETY: nothing but atomics.
    let page: Box<ClockPage> = unsafe { zeroed::zeroed() };
    let segment = Segment {
        real: RealInstant(0),
        virt: VirtualInstant(0),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime::default(),
        boot: Span::ZERO,
    };
    page.initialise(&segment, Rate::ONE, Policy::default(), WallTime::default());
    let leaps = after(&[(10, 500)]);
    let now = || page.look(&leaps, || RealInstant(100), |_| ()).now();
    assert_eq!(now(), VirtualInstant(100));
    assert!(page.ahead(false).is_some());
    for (mode, cost) in [(SkipMode::On, 7), (SkipMode::Force, 0), (SkipMode::Off, 0)] {
        let change = page.change();
        change.set_skipping(mode, Span(cost));
        let current = change.current();
        change.publish(&current);
        let skipping = page.skipping();
        assert_eq!(
            (skipping.mode, skipping.believed, skipping.read_cost),
            (mode, true, Span(cost))
        );
        assert_eq!(now(), VirtualInstant(600));
        // The short way knows nothing of leaps.
        assert_eq!(page.ahead(false), None);
    }
}

proptest! {
    /// Whatever was shown at an instant is found again at that instant; what was leapt over, at the leap.
    #[test]
    fn what_was_shown_is_found_again(
        jumps in prop::collection::vec((1..1_000_i64, 1..1_000_i64), 0..40),
        real in 0..50_000_i64,
        shown in 0..90_000_i64,
    ) {
        let mut at = 0;
        let jumps: Vec<_> = jumps.iter().map(|(gap, by)| { at += gap; (at, *by) }).collect();
        let leaps = after(&jumps);
        // The clock shows the host's time and the sum.
        let sum_at = |real: i64| jumps.iter().filter(|(at, _)| *at <= real).map(|(_, by)| by).sum::<i64>();
        prop_assert_eq!(leaps.at(RealInstant(real)), Span(sum_at(real)));
        let real_of = |shown: i64| leaps.real_of(|sum| RealInstant(shown - sum.0)).0;
        prop_assert_eq!(real_of(real + sum_at(real)), real);
        let found = real_of(shown);
        prop_assert!(found + sum_at(found) >= shown);
        prop_assert!(found == 0 || (found - 1) + sum_at(found - 1) < shown);
    }
}
