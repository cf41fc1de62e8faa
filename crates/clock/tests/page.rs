//! The clock page: what is published is what is read, by any way, in any thread, whatever became of the writer.

#![cfg(not(loom))]

mod zeroed;

use lorentz_clock::{
    Change, ClockPage, Pace, Policy, Rate, RealInstant, Segment, Snapshot, Span, VirtualInstant,
    WallTime, HISTORY, NANOS_PER_SEC,
};
use proptest::prelude::*;

const DAY: i64 = 86_400 * NANOS_PER_SEC;
const YEAR: i64 = 365 * DAY;

fn blank() -> Box<ClockPage> {
    // SAFETY: a page is nothing but atomics.
    unsafe { zeroed::zeroed() }
}

fn clock(start: &Segment) -> Box<ClockPage> {
    let page = blank();
    page.initialise(start, Rate::ONE, Policy::default(), WallTime::default());
    page
}

fn rate(num: u64, den: u64) -> Rate {
    Rate::new(num, den).expect("a valid rate")
}

fn start() -> Segment {
    Segment {
        real: RealInstant(1_000),
        virt: VirtualInstant(50_000),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime { secs: 2_000_000_000, nanos: 999_999_999 },
        boot: Span(7),
    }
}

fn look(page: &ClockPage, real: i64) -> Snapshot {
    page.snapshot(|| RealInstant(real), |tries| panic!("waited {tries} times for nobody"))
}

/// As the commands do it: the clock goes on from where it has come to by `real`.
fn change(page: &ClockPage, real: i64, how: impl FnOnce(&mut Segment, &Change)) {
    let change = page.change();
    let mut segment = change.current();
    segment.virt = segment.virtual_at(RealInstant(real)).min(change.limit());
    segment.real = RealInstant(real);
    how(&mut segment, &change);
    change.publish(&segment);
}

#[test]
fn a_page_of_zeroes_is_no_clock() {
    let page = blank();
    assert!(!page.is_valid());
    page.initialise(&start(), Rate::ONE, Policy::default(), WallTime::default());
    assert!(page.is_valid());
}

#[test]
fn a_clock_starts_with_what_it_is_given() {
    let host_wall = WallTime { secs: 1_700_000_000, nanos: 123 };
    for bits in 0..32 {
        let policy = Policy {
            real_cpu_clocks: bits & 1 != 0,
            real_file_times: bits & 2 != 0,
            trap_tsc: bits & 4 != 0,
            counts_births: bits & 8 != 0,
            sends_in_turn: bits & 16 != 0,
        };
        let page = blank();
        page.initialise(&start(), rate(1, 1), policy, host_wall);
        assert_eq!(page.policy(), policy);
        assert_eq!(page.host_wall(), host_wall);
    }
    for (pace, paused, told) in [
        (Pace::Running(rate(3, 7)), rate(3, 7), rate(3, 7)),
        (Pace::Frozen, rate(5, 2), rate(5, 2)),
        (Pace::Running(Rate::ONE), rate(5, 2), Rate::ONE),
    ] {
        let page = blank();
        let segment = Segment { pace, ..start() };
        page.initialise(&segment, paused, Policy::default(), host_wall);
        let seen = look(&page, 2_000);
        assert_eq!(seen.segment, segment);
        assert_eq!(seen.limit, VirtualInstant::NEVER);
        assert_eq!((seen.sequence, seen.real), (page.sequence(), RealInstant(2_000)));
        assert_eq!(page.sequence() % 2, 0);
        assert_eq!(page.rate(), told);
        assert_eq!(page.began(), segment.real);
        assert!(page.history().eq([segment]));
    }
}

#[test]
fn what_is_published_is_seen() {
    let page = clock(&start());
    let before = page.sequence();
    change(&page, 2_000, |segment, change| {
        segment.pace = Pace::Running(rate(10, 1));
        segment.wall = WallTime { secs: -5, nanos: 1 };
        segment.boot = Span(-3);
        change.set_rate(rate(10, 1));
        change.set_limit(VirtualInstant(90_000));
    });
    let seen = look(&page, 3_000);
    let expected = Segment {
        real: RealInstant(2_000),
        virt: VirtualInstant(51_000),
        pace: Pace::Running(rate(10, 1)),
        wall: WallTime { secs: -5, nanos: 1 },
        boot: Span(-3),
    };
    assert_eq!(seen.segment, expected);
    assert_eq!(seen.limit, VirtualInstant(90_000));
    assert_eq!(seen.now(), VirtualInstant(61_000));
    assert_eq!(page.rate(), rate(10, 1));
    assert_eq!(page.began(), RealInstant(2_000));
    assert_eq!((page.sequence() % 2, page.is_still(before)), (0, false));
    assert!(page.history().eq([start(), expected]));
}

#[test]
fn a_frozen_clock_remembers_its_rate() {
    let page = clock(&start());
    change(&page, 2_000, |segment, _| segment.pace = Pace::Running(rate(1, 4)));
    change(&page, 3_000, |segment, _| segment.pace = Pace::Frozen);
    assert_eq!((page.rate(), look(&page, 9_000).now()), (rate(1, 4), VirtualInstant(51_250)));
    change(&page, 4_000, |_, change| change.set_rate(rate(8, 1)));
    assert_eq!((page.rate(), look(&page, 9_000).now()), (rate(8, 1), VirtualInstant(51_250)));
    change(&page, 9_000, |segment, _| segment.pace = Pace::Running(page.rate()));
    assert_eq!((page.rate(), look(&page, 9_100).now()), (rate(8, 1), VirtualInstant(52_050)));
}

#[test]
fn a_change_that_is_dropped_changes_nothing_but_the_sequence() {
    let page = clock(&start());
    let seen = look(&page, 2_000);
    let dropped = page.change();
    assert_eq!((dropped.current(), dropped.limit()), (seen.segment, seen.limit));
    dropped.set_limit(VirtualInstant(1));
    dropped.set_rate(rate(9, 1));
    drop(dropped);
    assert_eq!(look(&page, 2_000), Snapshot { sequence: page.sequence(), ..seen });
    assert_eq!(page.rate(), Rate::ONE);
    assert!(page.ahead(false).is_some());
    assert_ne!(page.sequence(), seen.sequence);
}

#[test]
fn during_a_change_readers_wait() {
    let page = clock(&start());
    let under_way = page.change();
    assert_eq!(page.sequence() % 2, 1);
    assert_eq!(page.ahead(true), None);
    let (waited, mut under_way) = (std::cell::Cell::new(0), Some(under_way));
    let ending = std::cell::RefCell::new(&mut under_way);
    let seen = page.snapshot(
        || RealInstant(2_000),
        |tries| {
            waited.set(tries);
            if tries == 3 {
                ending.borrow_mut().take();
            }
        },
    );
    assert_eq!((waited.get(), seen.segment), (3, start()));
}

#[test]
fn a_limit_holds_time() {
    let page = clock(&start());
    change(&page, 2_000, |_, change| change.set_limit(VirtualInstant(51_500)));
    assert_eq!(look(&page, 2_499).now(), VirtualInstant(51_499));
    assert_eq!(look(&page, 2_500).now(), VirtualInstant(51_500));
    let held = look(&page, 1_000_000);
    assert_eq!(held.now(), VirtualInstant(51_500));
    assert_eq!(held.real_at(VirtualInstant(51_500)), RealInstant(2_500));
    assert_eq!(held.real_at(VirtualInstant(51_501)), RealInstant::NEVER);
    assert_eq!(held.real_at(VirtualInstant::NEVER), RealInstant::NEVER);
    // A new round begins where the last one ended, however late that is noticed.
    change(&page, 1_000_000, |_, change| change.set_limit(VirtualInstant(51_600)));
    assert_eq!(look(&page, 1_000_050).now(), VirtualInstant(51_550));
    assert_eq!(look(&page, 2_000_000).now(), VirtualInstant(51_600));
    // Other changes leave it as it is.
    change(&page, 2_000_000, |segment, _| segment.wall.secs += 1);
    assert_eq!(look(&page, 3_000_000).limit, VirtualInstant(51_600));
    change(&page, 3_000_000, |_, change| change.set_limit(VirtualInstant::NEVER));
    assert_eq!(look(&page, 3_000_001).now(), VirtualInstant(51_601));
}

fn any_pace() -> impl Strategy<Value = Pace> {
    prop_oneof![
        2 => Just(Pace::Running(Rate::ONE)),
        1 => Just(Pace::Frozen),
        2 => (1..=1000_u64, 1..=1000_u64).prop_map(|(num, den)| Pace::Running(rate(num, den))),
    ]
}

fn any_segment() -> impl Strategy<Value = Segment> {
    let wall = (-100_000_000_000..300_000_000_000_i64, 0..1_000_000_000_u32);
    (0..10 * YEAR, 0..100 * YEAR, any_pace(), wall, any::<i64>()).prop_map(
        |(real, virt, pace, (secs, nanos), boot)| Segment {
            real: RealInstant(real),
            virt: VirtualInstant(virt),
            pace,
            wall: WallTime { secs, nanos },
            boot: Span(boot),
        },
    )
}

fn any_limit() -> impl Strategy<Value = VirtualInstant> {
    prop_oneof![Just(i64::MAX), 0..200 * YEAR].prop_map(VirtualInstant)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_is_published_is_seen(segment in any_segment(), limit in any_limit(), paused in 1..=1000_u64) {
        let page = clock(&start());
        let publishing = page.change();
        publishing.set_limit(limit);
        publishing.set_rate(rate(paused, 1));
        publishing.publish(&segment);
        let seen = look(&page, segment.real.0);
        prop_assert_eq!((seen.segment, seen.limit), (segment, limit));
        prop_assert_eq!(page.rate(), match segment.pace {
            Pace::Running(rate) => rate,
            Pace::Frozen => rate(paused, 1),
        });
        let next = page.change();
        prop_assert_eq!((next.current(), next.limit()), (segment, limit));
    }

    /// The short way is there exactly where the clock runs as the host's, and says exactly what the long way says.
    #[test]
    fn the_short_way_says_the_same(segment in any_segment(), limit in any_limit(), elapsed in 0..10 * YEAR) {
        let page = clock(&start());
        let publishing = page.change();
        publishing.set_limit(limit);
        publishing.publish(&segment);
        let real = segment.real.0 + elapsed;
        let seen = look(&page, real);
        let even = segment.pace == Pace::Running(Rate::ONE) && limit == VirtualInstant::NEVER;
        for (wall, exact) in [
            (false, i128::from(seen.now().0)),
            (true, segment.wall_at(seen.now()).as_nanos()),
        ] {
            let ahead = page.ahead(wall);
            prop_assert_eq!(ahead.is_some(), even);
            if let Some((sequence, secs, nanos)) = ahead {
                prop_assert!(page.is_still(sequence));
                prop_assert!((0..NANOS_PER_SEC).contains(&nanos));
                let told = i128::from(secs) * 1_000_000_000 + i128::from(nanos) + i128::from(real);
                prop_assert_eq!(told, exact);
            }
        }
    }

    /// The same of the short way for all other clocks: it is there until the limit, for minutes at the least where the terms of
    /// the rate are not long.
    #[test]
    fn in_a_piece_the_short_way_says_the_same(
        segment in any_segment(),
        limit in any_limit(),
        elapsed in prop_oneof![-NANOS_PER_SEC..NANOS_PER_SEC, 0..10 * YEAR],
    ) {
        let page = clock(&start());
        let publishing = page.change();
        publishing.set_limit(limit);
        publishing.publish(&segment);
        let real = RealInstant(segment.real.0 + elapsed);
        let seen = look(&page, real.0);
        let even = segment.pace == Pace::Running(Rate::ONE) && limit == VirtualInstant::NEVER;
        let stands = segment.pace == Pace::Frozen || limit <= segment.virt;
        let short_terms = match segment.pace {
            Pace::Running(rate) => rate.den() < 1 << 20 && rate.num() < 1 << 20,
            Pace::Frozen => true,
        };
        let expected = !even && elapsed >= 0 && short_terms && elapsed < 100 * NANOS_PER_SEC && (stands || seen.now() < limit);
        for (wall, exact) in [
            (false, i128::from(seen.now().0)),
            (true, segment.wall_at(seen.now()).as_nanos()),
        ] {
            let shown = page.in_piece(wall, false, || real);
            let dilated = matches!(segment.pace, Pace::Running(rate) if rate != Rate::ONE);
            prop_assert_eq!(page.in_piece(wall, true, || real), shown.filter(|_| dilated));
            prop_assert!(shown.is_some() || !expected);
            prop_assert!(shown.is_none() || !even);
            if let Some((secs, nanos)) = shown {
                prop_assert!((0..NANOS_PER_SEC).contains(&nanos));
                prop_assert_eq!(i128::from(secs) * 1_000_000_000 + i128::from(nanos), exact);
            }
        }
    }

    #[test]
    fn nothing_is_seen_or_due_beyond_the_limit(
        segment in any_segment(),
        limit in any_limit(),
        real in 0..20 * YEAR,
        deadline in 0..150 * YEAR,
    ) {
        let seen = Snapshot { segment, limit, sequence: 0, real: RealInstant(real) };
        prop_assert_eq!(seen.now(), segment.virtual_at(seen.real).min(limit));
        let deadline = VirtualInstant(deadline);
        let due = seen.real_at(deadline);
        if deadline > limit {
            prop_assert_eq!(due, RealInstant::NEVER);
        } else {
            prop_assert_eq!(due, segment.real_at(deadline));
        }
        if due != RealInstant::NEVER {
            let then = Snapshot { real: due, ..seen };
            prop_assert!(then.now() >= deadline.min(segment.virt));
            prop_assert!(segment.virt > limit || then.now() >= deadline);
        }
    }
}

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

/// What is known of a clock at rate one: from when on the wall showed what, and whether it went on.
struct Stretch {
    real: i128,
    wall: i128,
    runs: bool,
}

/// Moves a clock about, each time so long after the last; keeps beside it what its wall clock does.
fn moved(moves: &[(i64, Move)]) -> (Box<ClockPage>, Vec<Stretch>) {
    let page = clock(&start());
    let mut real = start().real.0;
    let wall = start().wall_at(start().virt).as_nanos();
    let mut stretches = vec![Stretch { real: real.into(), wall, runs: true }];
    for (after, how) in moves {
        real += after;
        let last = stretches.last().expect("there is a first");
        let mut wall = last.wall + if last.runs { i128::from(*after) } else { 0 };
        let mut runs = last.runs;
        change(&page, real, |segment, _| match how {
            Move::Leap(by) => segment.virt = segment.virt.plus(Span(*by)),
            Move::Step(by) => segment.wall = segment.wall.plus(Span(*by)),
            Move::Freeze => segment.pace = Pace::Frozen,
            Move::Unfreeze => segment.pace = Pace::Running(Rate::ONE),
        });
        match how {
            Move::Leap(by) | Move::Step(by) => wall += i128::from(*by),
            Move::Freeze => runs = false,
            Move::Unfreeze => runs = true,
        }
        stretches.push(Stretch { real: real.into(), wall, runs });
    }
    (page, stretches)
}

/// What the wall clock showed at `real`.
fn wall_then(stretches: &[Stretch], real: i64) -> i128 {
    let real = i128::from(real);
    match stretches.iter().rfind(|stretch| stretch.real <= real) {
        None => stretches[0].wall - (stretches[0].real - real),
        Some(stretch) if stretch.runs => stretch.wall + (real - stretch.real),
        Some(stretch) => stretch.wall,
    }
}

/// When it last showed `wall`, from the first such moment on; and where it never did, when it last leapt over it.
fn last_shown(stretches: &[Stretch], wall: i128) -> i128 {
    let mut leapt = None;
    let mut next = i128::from(i64::MAX);
    for stretch in stretches.iter().rev() {
        let end = std::mem::replace(&mut next, stretch.real);
        let into = wall - stretch.wall;
        if into == 0 && end > stretch.real {
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
    match leapt {
        Some(end) if wall >= first.wall => end,
        _ => first.real - (first.wall - wall),
    }
}

/// Where in a clock's life to look: from a day before its start on, often close to a change.
fn places(moves: usize) -> impl Strategy<Value = (usize, i64)> {
    (0..=moves, prop_oneof![-3..=3_i64, -2_000..2_000_i64, -DAY..DAY])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// File times at rate one, to the nanosecond: through leaps, steps and freezes, before the start and after.
    #[test]
    fn the_past_is_remembered_exactly(
        (moves, looks) in prop::collection::vec((prop_oneof![0..2_000_i64, 0..DAY], any_move()), 0..HISTORY - 2)
            .prop_flat_map(|moves| {
                let looks = prop::collection::vec(places(moves.len()), 20);
                (Just(moves), looks)
            }),
    ) {
        let (page, stretches) = moved(&moves);
        for (near, off) in looks {
            let near = &stretches[near];
            let real = near.real as i64 + off;
            let wall = page.wall_of(RealInstant(real));
            prop_assert_eq!(wall.as_nanos(), wall_then(&stretches, real));
            // A time that was shown reads back as it was.
            prop_assert_eq!(page.wall_of(page.real_of(wall)), wall);
            // A time that somebody sets, shown or not.
            let wall = near.wall + i128::from(off);
            let found = page.real_of(WallTime::from_nanos(wall));
            prop_assert_eq!(i128::from(found.0), last_shown(&stretches, wall));
        }
    }

    /// At other rates the same, as closely as the coarser of the two clocks can say.
    #[test]
    fn the_past_is_remembered_at_any_rate(
        paces in prop::collection::vec((1..DAY, any_pace()), 1..20),
        looks in prop::collection::vec(0..30 * DAY, 20),
    ) {
        let page = clock(&start());
        let mut real = start().real.0;
        let mut fastest = 1;
        for (after, pace) in paces {
            real += after;
            change(&page, real, |segment, _| segment.pace = pace);
            if let Pace::Running(rate) = pace {
                fastest = fastest.max(rate.num() / rate.den() + 1);
            }
        }
        let mut last = WallTime { secs: i64::MIN, nanos: 0 };
        let mut looks = looks;
        looks.sort();
        for at in looks {
            let wall = page.wall_of(RealInstant(at));
            prop_assert!(wall >= last, "the past goes back");
            last = wall;
            let back = page.wall_of(page.real_of(wall)).as_nanos() - wall.as_nanos();
            prop_assert!((0..fastest.into()).contains(&back), "{back} ns off");
        }
    }
}

#[test]
fn a_time_that_came_is_told_though_it_was_leapt_over_later() {
    let first = start().wall_at(start().virt);
    let (page, _) = moved(&[(100, Move::Step(-100)), (10, Move::Leap(1_000))]);
    // 50 ns from the start on, again stepped towards, then leapt over.
    assert_eq!(page.real_of(first.plus(Span(50))), RealInstant(1_050));
    assert_eq!(page.real_of(first.plus(Span(5))), RealInstant(1_105));
    assert_eq!(page.real_of(first.plus(Span(500))), RealInstant(1_110));
    assert_eq!(page.real_of(first.plus(Span(-50))), RealInstant(950));
}

#[test]
fn a_long_history_keeps_its_first_entry_and_its_latest() {
    let page = clock(&start());
    let mut published = vec![start()];
    for number in 1..3 * HISTORY as i64 {
        let kept = page.history().collect::<Vec<_>>();
        let latest = published.len().min(HISTORY - 1) - 1;
        assert_eq!(kept[0], start());
        assert_eq!(kept[1..], published[published.len() - latest..]);
        // An hour apart, a leap of a minute each.
        let real = number * 3_600 * NANOS_PER_SEC;
        change(&page, real, |segment, _| {
            segment.virt = segment.virt.plus(Span::from_secs(60));
            published.push(*segment);
        });
        assert_eq!(look(&page, real).segment, published[number as usize]);
    }
    let hour_before = RealInstant(start().real.0 - 3_600 * NANOS_PER_SEC);
    let expected = start().wall_at(start().virt).plus(Span::from_secs(-3_600));
    assert_eq!(page.wall_of(hour_before), expected);
    assert_eq!(page.real_of(expected), hour_before);
    assert_eq!(page.virtual_of(hour_before), None);
    for segment in &published[published.len() - (HISTORY - 2)..] {
        let real = segment.real.plus(Span(5));
        let wall = segment.wall_at(segment.virt).plus(Span(5));
        assert_eq!((page.wall_of(real), page.real_of(wall)), (wall, real));
        assert_eq!(page.virtual_of(real), Some(segment.virt.plus(Span(5))));
    }
}

/// Time stood still in a stretch that is forgotten: the first one is not taken to have run on through it.
#[test]
fn a_forgotten_past_does_not_go_back() {
    let page = clock(&start());
    for number in 1..2 * HISTORY as i64 {
        change(&page, number * NANOS_PER_SEC, |segment, _| {
            segment.pace = if number < 5 { Pace::Frozen } else { Pace::Running(Rate::ONE) };
        });
    }
    let walls = (0..4 * HISTORY as i64).map(|half| page.wall_of(RealInstant(half * DAY / 172_800)));
    assert!(walls.is_sorted());
}

/// Rounds: the clock runs for a third of the time and stands otherwise. What is forgotten of that is told as it was on average.
#[test]
fn a_forgotten_past_went_by_evenly() {
    const ROUND: i64 = 3_000_000;
    let page = clock(&start());
    let rounds = 20 * HISTORY as i64;
    for round in 1..=rounds {
        change(&page, 3 * round * ROUND, |segment, change| {
            segment.virt = VirtualInstant(round * ROUND).max(segment.virt);
            change.set_limit(segment.virt.plus(Span(ROUND)));
        });
    }
    let at = |round: i64| page.wall_of(RealInstant(3 * round * ROUND));
    let walls: Vec<_> = (0..rounds).map(at).collect();
    assert!(walls.is_sorted());
    let (early, late) = (at(rounds / 4), at(rounds / 2));
    let apart = late.as_nanos() - early.as_nanos();
    let expected = i128::from(rounds / 4 * ROUND);
    assert!((apart - expected).abs() < expected / 2, "{apart} {expected}");
    assert!(at(rounds + 1_000) <= at(rounds).plus(Span(ROUND)), "beyond the limit");
}

/// The writer dies before it has published: whoever changes the clock next begins where it was.
#[test]
fn a_dead_writer_has_changed_nothing() {
    for full in [false, true] {
        let page = clock(&start());
        for real in 0..if full { 2 * HISTORY as i64 } else { 1 } {
            change(&page, 2_000 + real, |segment, change| {
                segment.wall.secs += 1;
                change.set_rate(rate(1, 1));
            });
        }
        let before = look(&page, 5_000);
        let history = page.history().collect::<Vec<_>>();
        let ahead =
            [false, true].map(|wall| page.ahead(wall).map(|(_, secs, nanos)| (secs, nanos)));
        // It may die again and again, wherever.
        let deaths: [fn(&Change); 4] = [
            |_| (),
            |change| change.set_rate(rate(9, 1)),
            |change| change.set_limit(VirtualInstant(1)),
            |change| change.set_limit(VirtualInstant::NEVER),
        ];
        for die in deaths {
            let dying = page.change();
            die(&dying);
            std::mem::forget(dying);
            assert_eq!(page.sequence() % 2, 1);
            assert_eq!(page.ahead(false), None);
            assert_eq!(page.rate(), Rate::ONE);
        }
        let next = page.change();
        assert_eq!((next.current(), next.limit()), (before.segment, before.limit));
        drop(next);
        let after = look(&page, 5_000);
        assert_eq!(after, Snapshot { sequence: after.sequence, ..before });
        assert_ne!(after.sequence, before.sequence);
        assert_eq!(page.rate(), Rate::ONE);
        assert!(page.history().eq(history));
        let now = [false, true].map(|wall| page.ahead(wall).map(|(_, secs, nanos)| (secs, nanos)));
        assert_eq!(now, ahead);
    }
}
