//! Leaps over idle time: their sum and their log.

#![cfg(not(loom))]

use clock::{blank_registry, Clock};
use lorentz_clock::{
    FastClock, Pace, Rate, RealInstant, Registry, Segment, SkipMode, Span, VirtualInstant,
    WallTime, LEAP_LOG_LEN,
};
use proptest::prelude::*;

mod clock;

/// Makes a registry with leaps at the given instants by the given spans.
fn after(jumps: &[(i64, i64)]) -> Box<Registry> {
    let registry = blank_registry();
    for (at, by) in jumps {
        assert!(registry.leap(registry.leaps.sum(), Span(*by), RealInstant(*at)));
    }
    registry
}

#[test]
fn a_leap_from_another_sum_is_none() {
    let registry = after(&[(10, 5)]);
    assert!(!registry.leap(Span::ZERO, Span(7), RealInstant(20)));
    let leaps = &registry.leaps;
    assert_eq!((leaps.sum(), leaps.count()), (Span(5), 1));
}

#[test]
fn what_reading_costs_is_no_leap() {
    let leaps = &after(&[(10, 5)]).leaps;
    leaps.add_read_cost(Span(3));
    assert_eq!((leaps.sum(), leaps.count()), (Span(8), 1));
    assert_eq!(leaps.at(RealInstant(11)), Span(5));
}

#[test]
fn the_sum_stays_in_range() {
    let leaps = &after(&[(10, i64::MAX), (20, 1)]).leaps;
    assert_eq!(leaps.sum(), Span(i64::MAX));
}

#[test]
fn the_log_is_thinned_and_stays_in_order() {
    let many = 5 * LEAP_LOG_LEN as i64;
    let jumps: Vec<_> = (1..=many).map(|i| (i * 10, 1)).collect();
    let leaps = &after(&jumps).leaps;
    let mut last = Span::ZERO;
    for i in 1..=many {
        let sum = leaps.at(RealInstant(i * 10));
        assert!(last <= sum && sum <= Span(i), "{i}: {sum:?}");
        last = sum;
    }
    // The log is exact for the latest leaps.
    assert_eq!(leaps.at(RealInstant(many * 10)), Span(many));
    assert_eq!(leaps.at(RealInstant(many * 10 - 15)), Span(many - 2));
    assert_eq!(leaps.at(RealInstant(5)), Span::ZERO);
}

/// A page that has skipped once believes leaps for good.
#[test]
fn a_page_that_has_skipped_goes_on_believing() {
    let segment = Segment {
        real: RealInstant(0),
        virt: VirtualInstant(0),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime::default(),
        boot: Span::ZERO,
    };
    let mut clock = Clock::new(&segment);
    clock.registry = after(&[(10, 500)]);
    let now = |clock: &Clock| clock.page.look(&clock.registry, &|| RealInstant(100)).now();
    assert_eq!(now(&clock), VirtualInstant(100));
    assert!(clock.fast(100, FastClock::Monotonic, false).is_some());
    for (mode, cost) in [(SkipMode::On, 7), (SkipMode::Force, 0), (SkipMode::Off, 0)] {
        if mode != SkipMode::Off {
            clock.page.enable_leaps();
        }
        clock.page.renew(&clock.registry, &|| RealInstant(50));
        clock.page.set_skipping(mode, Span(cost));
        let skipping = clock.page.skipping();
        assert_eq!(
            (skipping.mode, skipping.leaps_enabled, skipping.read_cost),
            (mode, true, Span(cost))
        );
        assert_eq!(now(&clock), VirtualInstant(600));
        // The fast path does not add leaps, so it is closed.
        assert_eq!(clock.fast(100, FastClock::Monotonic, false), None);
    }
}

/// For any number of leaps, the log is exact for the latest ones. For an older leap the error is at most a twentieth of its age.
#[test]
fn the_log_is_exact_for_the_latest_and_close_for_all() {
    const APART: i64 = 1_000;
    for many in [1, 5, 1_000, 1_025, 5_000, 300_000] {
        let jumps: Vec<_> = (1..=many).map(|i| (i * APART, 1)).collect();
        let leaps = &after(&jumps).leaps;
        for i in (1..=many).rev().step_by(1 + many as usize / 2_000) {
            let sum = leaps.at(RealInstant(i * APART + 1)).0;
            let age = many - i;
            let off = if age < 1_000 { 0 } else { age / 20 + 64 };
            assert!(sum <= i && sum >= i - off, "{i} of {many}: {sum}");
            let found = leaps.real_of(|sum| RealInstant(i * APART + i + 1 - sum.0)).0;
            assert!(
                (i * APART + 1 - off..=(i + off + 1) * APART).contains(&found),
                "{i} of {many}: {found}"
            );
        }
    }
}

proptest! {
    /// `real_of` returns the instant at which a time was shown, and the instant of the leap for a time that was leapt over.
    #[test]
    fn what_was_shown_is_found_again(
        jumps in prop::collection::vec((1..1_000_i64, 1..1_000_i64), 0..40),
        real in 0..50_000_i64,
        shown in 0..90_000_i64,
    ) {
        let mut at = 0;
        let jumps: Vec<_> = jumps.iter().map(|(gap, by)| { at += gap; (at, *by) }).collect();
        let leaps = &after(&jumps).leaps;
        // The clock shows the host's time plus the sum of leaps.
        let sum_at = |real: i64| jumps.iter().filter(|(at, _)| *at <= real).map(|(_, by)| by).sum::<i64>();
        prop_assert_eq!(leaps.at(RealInstant(real)), Span(sum_at(real)));
        let real_of = |shown: i64| leaps.real_of(|sum| RealInstant(shown - sum.0)).0;
        prop_assert_eq!(real_of(real + sum_at(real)), real);
        let found = real_of(shown);
        prop_assert!(found + sum_at(found) >= shown);
        prop_assert!(found == 0 || (found - 1) + sum_at(found - 1) < shown);
    }
}
