//! The page's history: `real_of` and `wall_of` find past instants, also after many changes.

#![cfg(not(loom))]

mod clock;

use clock::{any_pace, start, Clock, DAY};
use lorentz_clock::*;
use proptest::prelude::*;

/// One change of a clock at rate one.
#[derive(Clone, Copy, Debug)]
enum Move {
    Leap(i64),
    Step(i64),
    Freeze,
    Unfreeze,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        (0..1_000_i64).prop_map(Move::Leap),
        (0..DAY).prop_map(Move::Leap),
        (-1_000..1_000_i64).prop_map(Move::Step),
        (-DAY..DAY).prop_map(Move::Step),
        Just(Move::Freeze),
        Just(Move::Unfreeze),
    ]
}

/// A stretch of a clock at rate one: its start, the wall time there, and whether time runs.
struct Stretch {
    real: i128,
    wall: i128,
    runs: bool,
}

/// Makes the given changes, each one the given time after the last. Returns the clock, and a record of its wall clock.
fn moved(moves: &[(i64, Move)]) -> (Clock, Vec<Stretch>) {
    let clock = Clock::new(&start());
    let mut real = start().real.0;
    let wall = start().wall_at(start().virt).as_nanos();
    let mut stretches = vec![Stretch { real: real.into(), wall, runs: true }];
    for (after, how) in moves {
        real += after;
        let last = stretches.last().expect("there is a first");
        let mut wall = last.wall + if last.runs { i128::from(*after) } else { 0 };
        let mut runs = last.runs;
        clock.change(real, |change| match how {
            Move::Leap(by) => change.leap = Span(*by),
            Move::Step(by) => change.wall = change.wall.plus(Span(*by)),
            Move::Freeze => change.pace = Pace::Frozen,
            Move::Unfreeze => change.pace = Pace::Running(Rate::ONE),
        });
        match how {
            Move::Leap(by) | Move::Step(by) => wall += i128::from(*by),
            Move::Freeze => runs = false,
            Move::Unfreeze => runs = true,
        }
        stretches.push(Stretch { real: real.into(), wall, runs });
    }
    (clock, stretches)
}

/// Returns what the wall clock showed at `real`.
fn wall_then(stretches: &[Stretch], real: i64) -> i128 {
    let real = i128::from(real);
    match stretches.iter().rfind(|stretch| stretch.real <= real) {
        None => stretches[0].wall - (stretches[0].real - real),
        Some(stretch) if stretch.runs => stretch.wall + (real - stretch.real),
        Some(stretch) => stretch.wall,
    }
}

/// Returns the start of the last moment at which the wall clock showed `wall`. If it never did, returns the last leap over it.
/// Changes of one instant are one change.
fn last_shown(stretches: &[Stretch], wall: i128) -> i128 {
    let mut leapt = None;
    let mut next = i128::from(i64::MAX);
    for stretch in stretches.iter().rev() {
        let end = std::mem::replace(&mut next, stretch.real);
        if end == stretch.real {
            continue;
        }
        let into = wall - stretch.wall;
        if into == 0 {
            return stretch.real;
        }
        if into >= 0 && stretch.runs && stretch.real + into < end {
            return stretch.real + into;
        }
        if into >= 0 {
            leapt = leapt.or(Some(end));
        }
    }
    let first = &stretches[0];
    match wall >= first.wall {
        true => leapt.unwrap_or(first.real),
        false => first.real - (first.wall - wall),
    }
}

/// Chooses where to look: from a day before the clock's start on, often close to a change.
fn places(moves: usize) -> impl Strategy<Value = (usize, i64)> {
    (0..=moves, prop_oneof![-3..=3_i64, -2_000..2_000_i64, -DAY..DAY])
}

#[test]
fn a_time_leapt_over_in_the_instant_of_creation_is_that_instant() {
    let (clock, stretches) = moved(&[(0, Move::Leap(734)), (2_000, Move::Freeze)]);
    let first = &stretches[0];
    for into in [0, 1, 733] {
        let wall = WallTime::from_nanos(first.wall + into);
        let found = clock.page.real_of(&clock.registry, wall);
        assert_eq!(i128::from(found.0), first.real, "{into}");
    }
}

#[test]
fn changes_of_one_instant_are_one_change() {
    let back_and_forth = [(1, Move::Step(-5_000)), (0, Move::Leap(10))];
    let (clock, stretches) =
        moved(&[&[(100, Move::Leap(10_000)), (1_000, Move::Freeze)], &back_and_forth[..]].concat());
    let stepped_to = WallTime::from_nanos(stretches[3].wall);
    let found = clock.page.real_of(&clock.registry, stepped_to);
    assert_eq!(i128::from(found.0), stretches[1].real, "the leap over it");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// At rate one, file times are exact to the nanosecond: through leaps, steps and freezes, before the start and after.
    #[test]
    fn the_past_is_remembered_exactly(
        (moves, looks) in prop::collection::vec((prop_oneof![0..2_000_i64, 0..DAY], any_move()), 0..PIECES - 2)
            .prop_flat_map(|moves| {
                let looks = prop::collection::vec(places(moves.len()), 20);
                (Just(moves), looks)
            }),
    ) {
        let (clock, stretches) = moved(&moves);
        let wall_of = |real: i64| clock.page.wall_of(&clock.registry, RealInstant(real));
        let real_of = |wall: WallTime| clock.page.real_of(&clock.registry, wall).0;
        for (near, off) in looks {
            let near = &stretches[near];
            let real = near.real as i64 + off;
            let wall = wall_of(real);
            prop_assert_eq!(wall.as_nanos(), wall_then(&stretches, real));
            // Before the clock was created, virtual time ran as wall time does.
            let first = &stretches[0];
            if real < first.real as i64 {
                let boot = clock.page.boot_of(&clock.registry, RealInstant(real));
                let begun = start().virt.plus(start().boot);
                prop_assert_eq!(i128::from(boot.since(begun).0), wall.as_nanos() - first.wall);
            }
            // A time that was shown reads back unchanged.
            prop_assert_eq!(wall_of(real_of(wall)), wall);
            // A time that somebody sets on a file may never have been shown.
            let wall = near.wall + i128::from(off);
            let found = real_of(WallTime::from_nanos(wall));
            prop_assert_eq!(i128::from(found), last_shown(&stretches, wall));
        }
    }

    /// Under another host's clock, the past and the present are as they were.
    #[test]
    fn a_rebased_clock_is_the_same_by_the_other_host(
        moves in prop::collection::vec((prop_oneof![1..2_000_i64, 1..DAY], any_move()), 0..PIECES - 2),
        looks in prop::collection::vec(-DAY..DAY, 20),
        leaps in prop::collection::vec(0..DAY, 0..40),
        by in prop_oneof![-3 * DAY..3 * DAY, -1_000..1_000_i64],
    ) {
        let (clock, stretches) = moved(&moves);
        let (page, registry) = (&clock.page, &clock.registry);
        let end = stretches.last().map_or(0, |last| last.real as i64) + 5;
        page.enable_leaps();
        for (number, leap) in leaps.iter().enumerate() {
            let at = RealInstant(end + number as i64);
            prop_assert!(registry.leap(registry.leaps.sum(), Span(*leap), at));
        }
        let now = end + 100;
        clock.change(now, |change| change.pace = Pace::Frozen);
        let shown = |real: i64, now: i64, host_wall: WallTime| {
            let stamp = RealInstant(real);
            let file = page.wall_of_file(registry, stamp, RealInstant(now), host_wall);
            (page.wall_of(registry, stamp), file, registry.leaps.at(stamp))
        };
        let host_wall = page.host_wall();
        let before: Vec<_> = looks.iter().map(|off| shown(end + off, now, host_wall)).collect();
        let frozen = clock.look(now);
        page.rebase(registry, Span(by));
        let host_wall = WallTime::from_nanos(host_wall.as_nanos() - i128::from(by));
        prop_assert_eq!(page.host_wall(), host_wall);
        for (off, before) in looks.iter().zip(before) {
            prop_assert_eq!(shown(end + off + by, now + by, host_wall), before);
        }
        let look = clock.look(now + by);
        prop_assert_eq!((look.now(), look.segment.wall), (frozen.now(), frozen.segment.wall));
        // It goes on from there.
        clock.change(now + by + 7, |change| change.pace = Pace::Running(Rate::ONE));
        prop_assert_eq!(clock.look(now + by + 17).now(), frozen.now().plus(Span(10)));
    }

    /// At other rates, file times are as exact as the coarser of the two clocks permits.
    #[test]
    fn the_past_is_remembered_at_any_rate(
        paces in prop::collection::vec((1..DAY, any_pace()), 1..20),
        looks in prop::collection::vec(0..30 * DAY, 20),
    ) {
        let clock = Clock::new(&start());
        let mut real = start().real.0;
        let mut fastest = 1;
        for (after, pace) in paces {
            real += after;
            clock.change(real, |change| change.pace = pace);
            if let Pace::Running(rate) = pace {
                fastest = fastest.max(rate.num() / rate.den() + 1);
            }
        }
        let mut last = WallTime { secs: i64::MIN, nanos: 0 };
        let mut looks = looks;
        looks.sort();
        for at in looks {
            let wall_of = |real| clock.page.wall_of(&clock.registry, real);
            let wall = wall_of(RealInstant(at));
            prop_assert!(wall >= last, "the past goes back");
            last = wall;
            let back = wall_of(clock.page.real_of(&clock.registry, wall)).as_nanos() - wall.as_nanos();
            prop_assert!((0..fastest.into()).contains(&back), "{back} ns off");
        }
    }
}

#[test]
fn a_time_that_came_is_told_though_it_was_leapt_over_later() {
    let first = start().wall_at(start().virt);
    let (clock, _) = moved(&[(100, Move::Step(-100)), (10, Move::Leap(1_000))]);
    let real_of = |by: i64| clock.page.real_of(&clock.registry, first.plus(Span(by)));
    // The clock shows 50 ns after its first time, is stepped back before that time, and then leaps over it.
    assert_eq!(real_of(50), RealInstant(1_050));
    assert_eq!(real_of(5), RealInstant(1_105));
    assert_eq!(real_of(500), RealInstant(1_110));
    assert_eq!(real_of(-50), RealInstant(950));
}

#[test]
fn a_long_history_keeps_its_first_entry_and_its_latest() {
    let clock = Clock::new(&start());
    let mut published = vec![start()];
    for number in 1..3 * PIECES as i64 {
        let kept = clock.page.history(&clock.registry).collect::<Vec<_>>();
        let latest = published.len().min(PIECES - 1) - 1;
        if published.len() < PIECES {
            assert_eq!(kept[0], start());
        }
        assert_eq!((kept[0].real, kept[0].virt), (start().real, start().virt));
        assert_eq!(kept[1..], published[published.len() - latest..]);
        // A leap of a minute each hour.
        let real = number * 3_600 * NANOS_PER_SEC;
        clock.change(real, |change| change.leap = Span::from_secs(60));
        published.push(clock.look(real).segment);
    }
    let (page, registry) = (&clock.page, &clock.registry);
    let hour_before = RealInstant(start().real.0 - 3_600 * NANOS_PER_SEC);
    let expected = start().wall_at(start().virt).plus(Span::from_secs(-3_600));
    assert_eq!(page.wall_of(registry, hour_before), expected);
    assert_eq!(page.real_of(registry, expected), hour_before);
    assert_eq!(page.virtual_of(registry, hour_before), None);
    for segment in &published[published.len() - (PIECES - 2)..] {
        let real = segment.real.plus(Span(5));
        let wall = segment.wall_at(segment.virt).plus(Span(5));
        assert_eq!((page.wall_of(registry, real), page.real_of(registry, wall)), (wall, real));
        assert_eq!(page.virtual_of(registry, real), Some(segment.virt.plus(Span(5))));
    }
}

/// Time stood still in a stretch that the page has forgotten. The first piece must not be taken to have run on through it.
#[test]
fn a_forgotten_past_does_not_go_back() {
    let clock = Clock::new(&start());
    for number in 1..2 * PIECES as i64 {
        clock.change(number * NANOS_PER_SEC, |change| {
            change.pace = if number < 5 { Pace::Frozen } else { Pace::Running(Rate::ONE) };
        });
    }
    let wall_of =
        |half: i64| clock.page.wall_of(&clock.registry, RealInstant(half * DAY / 172_800));
    assert!((0..4 * PIECES as i64).map(wall_of).is_sorted());
}

/// In rounds the clock runs for a third of the time and stands otherwise. For forgotten rounds the page assumes their average.
#[test]
fn a_forgotten_past_went_by_evenly() {
    const ROUND: i64 = 3_000_000;
    let clock = Clock::new(&start());
    let rounds = 20 * PIECES as i64;
    for round in 1..=rounds {
        clock.change(3 * round * ROUND, |change| {
            change.floor = VirtualInstant(round * ROUND);
            change.limit = change.floor.plus(Span(ROUND));
        });
    }
    let at = |round: i64| clock.page.wall_of(&clock.registry, RealInstant(3 * round * ROUND));
    let walls: Vec<_> = (0..rounds).map(at).collect();
    assert!(walls.is_sorted());
    let (early, late) = (at(rounds / 4), at(rounds / 2));
    let apart = late.as_nanos() - early.as_nanos();
    let expected = i128::from(rounds / 4 * ROUND);
    assert!((apart - expected).abs() < expected / 2, "{apart} {expected}");
    assert!(at(rounds + 1_000) <= at(rounds).plus(Span(ROUND)), "beyond the limit");
}
