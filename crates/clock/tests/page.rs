//! The clock page: every way to read it shows what was published, in any thread, whatever happened to the writer.

#![cfg(not(loom))]

mod clock;

use clock::{any_pace, blank_page, rate, start, Clock, DAY, YEAR};
use lorentz_clock::{
    Change, FastClock, Pace, Policy, Rate, RealInstant, Segment, Snapshot, Span, TooManyChanges,
    VirtualInstant, WallTime, MAX_CHANGES_AHEAD, NANOS_PER_SEC, PIECES,
};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_page_of_zeroes_is_no_clock() {
    let page = blank_page();
    assert!(!page.is_valid());
    page.initialise(&start(), Rate::ONE, Policy::default(), WallTime::default());
    assert!(page.is_valid());
}

#[test]
fn a_clock_starts_with_what_it_is_given() {
    let host_wall = WallTime { secs: 1_700_000_000, nanos: 123 };
    for bits in 0..128 {
        let policy = Policy {
            real_cpu_clocks: bits & 1 != 0,
            real_file_times: bits & 2 != 0,
            trap_tsc: bits & 4 != 0,
            counts_tasks: bits & 8 != 0,
            orders_sends: bits & 16 != 0,
            keeps_code: bits & 32 != 0,
            may_set_clock: bits & 64 != 0,
        };
        let page = blank_page();
        page.initialise(&start(), rate(1, 1), policy, host_wall);
        assert_eq!(page.policy(), policy);
        assert_eq!(page.host_wall(), host_wall);
    }
    for (pace, paused, shown) in [
        (Pace::Running(rate(3, 7)), rate(3, 7), rate(3, 7)),
        (Pace::Frozen, rate(5, 2), rate(5, 2)),
        (Pace::Running(Rate::ONE), rate(5, 2), Rate::ONE),
    ] {
        let segment = Segment { pace, ..start() };
        let clock = Clock::new(&segment);
        clock.page.initialise(&segment, paused, Policy::default(), host_wall);
        let seen = clock.look(2_000);
        assert_eq!(seen.segment, segment);
        assert_eq!((seen.limit, seen.until), (VirtualInstant::NEVER, RealInstant::NEVER));
        assert_eq!((seen.version, seen.real), (clock.page.version(), RealInstant(2_000)));
        assert_eq!((seen.state, clock.page.notified()), (clock.page.state(), seen.state));
        assert_eq!(seen.rate, shown);
        assert!(clock.page.history(&clock.registry).eq([segment]));
    }
}

#[test]
fn what_is_published_is_seen() {
    let clock = Clock::new(&start());
    let before = clock.look(1_900);
    let published = clock.change(2_000, |change| {
        change.pace = Pace::Running(rate(10, 1));
        change.wall = WallTime { secs: -5, nanos: 1 };
        change.boot = Span(-3);
        change.leap = Span(4);
        change.limit = VirtualInstant(90_000);
    });
    let seen = clock.look(3_000);
    let expected = Segment {
        real: RealInstant(2_000),
        virt: VirtualInstant(51_004),
        pace: Pace::Running(rate(10, 1)),
        wall: WallTime { secs: -5, nanos: 1 },
        boot: Span(-3),
    };
    assert_eq!(seen.segment, expected);
    assert_eq!(seen.limit, VirtualInstant(90_000));
    assert_eq!(seen.now(), VirtualInstant(61_004));
    assert_eq!((seen.rate, published.begins), (rate(10, 1), RealInstant(2_000)));
    assert_eq!((seen.state, published.state), (before.state + 1, before.state + 1));
    assert!(!clock.page.is_still(before.version, RealInstant(0)));
    assert!(clock.page.is_still(seen.version, RealInstant(0)));
    assert!(clock.page.history(&clock.registry).eq([start(), expected]));
}

#[test]
fn a_frozen_clock_remembers_its_rate() {
    let clock = Clock::new(&start());
    let read = |real: i64| {
        let look = clock.look(real);
        (look.rate, look.now())
    };
    clock.change(2_000, |change| {
        (change.pace, change.rate) = (Pace::Running(rate(1, 4)), rate(1, 4));
    });
    clock.change(3_000, |change| change.pace = Pace::Frozen);
    assert_eq!(read(9_000), (rate(1, 4), VirtualInstant(51_250)));
    clock.change(4_000, |change| change.rate = rate(8, 1));
    assert_eq!(read(9_000), (rate(8, 1), VirtualInstant(51_250)));
    clock.change(9_000, |change| change.pace = Pace::Running(change.rate));
    assert_eq!(read(9_100), (rate(8, 1), VirtualInstant(52_050)));
}

#[test]
fn a_limit_holds_time() {
    let clock = Clock::new(&start());
    let now = |real: i64| clock.look(real).now();
    clock.change(2_000, |change| change.limit = VirtualInstant(51_500));
    assert_eq!(now(2_499), VirtualInstant(51_499));
    assert_eq!(now(2_500), VirtualInstant(51_500));
    let held = clock.look(1_000_000);
    assert_eq!(held.now(), VirtualInstant(51_500));
    assert_eq!(held.real_at(VirtualInstant(51_500)), RealInstant(2_500));
    assert_eq!(held.real_at(VirtualInstant(51_501)), RealInstant::NEVER);
    assert_eq!(held.real_at(VirtualInstant::NEVER), RealInstant::NEVER);
    // A new round begins where the last one ended, however late a thread notices that end.
    clock.change(1_000_000, |change| change.limit = VirtualInstant(51_600));
    assert_eq!(now(1_000_050), VirtualInstant(51_550));
    assert_eq!(now(2_000_000), VirtualInstant(51_600));
    // Other changes leave the limit as it is.
    clock.change(2_000_000, |change| change.wall.secs += 1);
    assert_eq!(clock.look(3_000_000).limit, VirtualInstant(51_600));
    // With a limit that is past, the clock stays where it is.
    clock.change(3_000_000, |change| change.limit = VirtualInstant(7));
    assert_eq!(now(3_000_001), VirtualInstant(51_600));
    clock.change(3_000_000, |change| change.limit = VirtualInstant::NEVER);
    assert_eq!(now(3_000_001), VirtualInstant(51_601));
    // A floor moves the clock forward.
    clock.change(4_000_000, |change| change.floor = VirtualInstant(9_000_000));
    assert_eq!(now(4_000_001), VirtualInstant(9_000_001));
}

/// A change for a later instant takes effect by itself: every way to read the clock switches at that instant.
#[test]
fn a_piece_to_come_comes_by_itself() {
    let clock = Clock::new(&start());
    let at = RealInstant(5_000);
    let published = clock.change(2_000, |change| {
        (change.at, change.pace) = (at, Pace::Running(rate(1, 2)));
    });
    assert_eq!(published.begins, at);
    let before = clock.look(4_999);
    assert_eq!((before.now(), before.until), (VirtualInstant(53_999), at));
    let after = clock.look(5_100);
    assert_eq!((after.now(), after.until), (VirtualInstant(54_050), RealInstant::NEVER));
    assert_eq!((after.state, after.version), (before.state, before.version));
    // The fast path holds up to the start of the next piece.
    assert_eq!(clock.fast(4_999, FastClock::Monotonic, false), Some((0, 53_999)));
    assert_eq!(clock.fast(5_000, FastClock::Monotonic, false), None);
    // A wait computes its end by both pieces.
    let when = |real: i64, virt: i64| {
        clock.page.when(&clock.registry, &clock.look(real), |_| VirtualInstant(virt)).0
    };
    assert_eq!((when(2_500, 53_900), when(2_500, 54_050)), (4_900, 5_100));
    assert_eq!((when(6_000, 54_600), when(2_500, i64::MAX)), (6_200, i64::MAX));
    // The page says that somebody has to refresh the fast path. The refresh changes nothing else.
    assert_eq!(clock.page.supervision_due(RealInstant(2_000)), Some(RealInstant(2_000)));
    clock.page.set_notified(before.state);
    assert_eq!(clock.page.supervision_due(RealInstant(2_000)), Some(at));
    assert!(!clock.page.refresh(&clock.registry, &|| RealInstant(4_999)));
    assert!(clock.page.refresh(&clock.registry, &|| RealInstant(5_001)));
    assert_eq!(clock.fast(5_100, FastClock::Monotonic, false), Some((0, 54_050)));
    let brought = clock.look(5_100);
    assert_eq!((brought.segment, brought.state), (after.segment, after.state + 1));
    clock.page.set_notified(brought.state);
    assert_eq!(clock.page.supervision_due(RealInstant(5_002)), None);
}

/// A program writes an instant into the start of a change that nobody has decided yet. The change begins neither before it was made
/// nor after it was seen.
#[test]
fn an_impossible_start_is_not_believed() {
    for wild in [i64::MIN, i64::MIN + 1, i64::MIN + 2, -1, 0, 1_999, 2_001, i64::MAX] {
        let clock = Clock::new(&start());
        let word = std::ptr::from_ref(&clock.registry.start).cast::<u64>().cast_mut();
        let host = || {
            for (index, value) in [clock.page.version(), wild as u64].into_iter().enumerate() {
                // SAFETY: the start is two words, which last as long as the clock, and which are changed by atomic instructions alone.
                unsafe { AtomicU64::from_ptr(word.add(index)) }.store(value, Ordering::Relaxed);
            }
            RealInstant(2_000)
        };
        let fast = Pace::Running(rate(1_000, 1));
        let change = Change { pace: fast, ..Change::of(&clock.look(2_000).piece()) };
        let published = clock.page.publish(&clock.registry, &host, &change);
        assert_eq!(published.expect("there is room").begins, RealInstant(2_000), "{wild}");
        assert_eq!(clock.look(2_003).now(), VirtualInstant(51_000 + 3_000), "{wild}");
    }
}

/// A change for an earlier instant drops those that were to come after it.
#[test]
fn an_earlier_change_overtakes_later_ones() {
    let clock = Clock::new(&start());
    let leap_at = |now: i64, at: i64, by: i64| {
        clock.change(now, |change| (change.at, change.leap) = (RealInstant(at), Span(by)))
    };
    leap_at(2_000, 10_000, 1);
    leap_at(2_000, 20_000, 10);
    leap_at(2_000, 30_000, 100);
    let to_come = |real: i64| -> Vec<i64> {
        let look = clock.look(real);
        clock.page.to_come(&clock.registry, &look).map(|(piece, _)| piece.segment.real.0).collect()
    };
    assert_eq!(to_come(2_000), [30_000, 20_000, 10_000]);
    leap_at(2_000, 15_000, 1_000);
    assert_eq!(to_come(2_000), [15_000, 10_000]);
    let leapt = |real: i64| clock.look(real).now().0 - real - 49_000;
    assert_eq!([9_999, 10_000, 15_000, 40_000].map(leapt), [0, 1, 1_001, 1_001]);
    // A change that begins at once drops all that are to come.
    clock.change(12_000, |change| change.leap = Span(7));
    assert_eq!((to_come(12_000), leapt(40_000)), (vec![], 8));
    // The history has only the pieces that began.
    let times = |virt: i64| {
        clock.page.real_of(&clock.registry, clock.look(0).segment.wall_at(VirtualInstant(virt)))
    };
    assert_eq!(times(49_000 + 11_000 + 1), RealInstant(11_000));
    assert_eq!(times(49_000 + 40_000 + 8), RealInstant(40_000));
    assert_eq!(
        clock.page.virtual_of(&clock.registry, RealInstant(15_000)),
        Some(VirtualInstant(64_008))
    );
}

/// However many changes were announced and dropped, the page still has the piece in force.
#[test]
fn so_many_changes_may_be_to_come() {
    let clock = Clock::new(&start());
    let announce = |at: i64| {
        let change = Change { at: RealInstant(at), ..Change::of(&clock.look(2_000).piece()) };
        clock.page.publish(&clock.registry, &|| RealInstant(2_000), &change)
    };
    for number in 0..MAX_CHANGES_AHEAD as i64 {
        announce(10_000 + number).expect("there is room");
    }
    assert_eq!(announce(20_000), Err(TooManyChanges));
    // Each drops all others.
    let mut refused = 0;
    for number in 0..PIECES as i64 {
        refused += usize::from(announce(9_000 - number).is_err());
        assert_eq!(clock.look(2_000).segment, start());
    }
    assert!((10..PIECES - MAX_CHANGES_AHEAD).contains(&refused));
    // After one has begun there is room again.
    clock.change(2_000, |_| ());
    announce(20_000).expect("there is room");
}

fn any_segment() -> impl Strategy<Value = Segment> {
    let wall = (-100_000_000_000..300_000_000_000_i64, 0..1_000_000_000_u32);
    (0..10 * YEAR, 0..100 * YEAR, any_pace(), wall, -YEAR..100 * YEAR).prop_map(
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

    /// The fast path is open as long as the clock is within the straight part of a piece. It shows exactly what the slow path
    /// shows.
    #[test]
    fn the_fast_path_shows_the_same(
        segment in any_segment(),
        limit in any_limit(),
        elapsed in prop_oneof![-NANOS_PER_SEC..NANOS_PER_SEC, 0..10 * YEAR],
        lags in any::<bool>(),
    ) {
        let clock = Clock::new(&segment);
        clock.change(segment.real.0, |change| change.limit = limit);
        let limit = limit.max(segment.virt);
        let real = segment.real.0 + elapsed;
        let seen = clock.look(real);
        let even = segment.pace == Pace::Running(Rate::ONE) && limit == VirtualInstant::NEVER;
        let stands = segment.pace == Pace::Frozen || limit <= segment.virt;
        let short_terms = match segment.pace {
            Pace::Running(rate) => rate.den() < 1 << 20 && rate.num() < 1 << 20,
            Pace::Frozen => true,
        };
        let soon = short_terms && elapsed < 100 * NANOS_PER_SEC && (stands || seen.now() < limit);
        for (which, exact) in [
            (FastClock::Monotonic, i128::from(seen.now().0)),
            (FastClock::Wall, segment.wall_at(seen.now()).as_nanos()),
            (FastClock::Boot, i128::from(seen.now().0) + i128::from(segment.boot.0)),
        ] {
            let shown = clock.fast(real, which, lags);
            prop_assert!(shown.is_some() || elapsed < 0 || !(even || soon));
            prop_assert!(shown.is_none() || elapsed >= 0 || even && !lags);
            if let (Some((secs, nanos)), true) = (shown, elapsed >= 0) {
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
        let real = RealInstant(real);
        let until = RealInstant::NEVER;
        let seen = Snapshot { segment, limit, rate: Rate::ONE, until, state: 0, version: 0, real };
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

/// A change of one kind, made `after` ns after the last one. It begins `ahead` ns later; zero means at once.
#[derive(Clone, Copy, Debug)]
struct Announced {
    after: i64,
    ahead: i64,
    kind: ChangeKind,
}

#[derive(Clone, Copy, Debug)]
enum ChangeKind {
    Rate(u64, u64),
    Freeze,
    Unfreeze,
    Leap(i64),
    Step(i64),
}

fn any_announced() -> impl Strategy<Value = Announced> {
    let kind = prop_oneof![
        (1..=1000_u64, 1..=1000_u64).prop_map(|(num, den)| ChangeKind::Rate(num, den)),
        Just(ChangeKind::Freeze),
        Just(ChangeKind::Unfreeze),
        (0..DAY).prop_map(ChangeKind::Leap),
        (-DAY..DAY).prop_map(ChangeKind::Step),
    ];
    let ahead = prop_oneof![Just(0), 0..NANOS_PER_SEC];
    (0..NANOS_PER_SEC, ahead, kind).prop_map(|(after, ahead, kind)| Announced {
        after,
        ahead,
        kind,
    })
}

/// A piece in exact arithmetic. At `real` the clock shows `(virt + (real - begin) * num) / den`, rounded down; both terms are
/// multiples of `den`.
#[derive(Clone, Copy, Debug)]
struct Exact {
    begin: i128,
    virt: i128,
    num: i128,
    den: i128,
    /// The rate to go on with.
    paused: (i128, i128),
    wall: i128,
}

impl Exact {
    fn virt_at(&self, real: i64) -> i128 {
        self.virt + (i128::from(real) - self.begin) * self.num / self.den
    }

    fn first_at(&self, virt: i128) -> Option<i128> {
        let ahead = (virt - self.virt).max(0);
        let scaled = ahead * self.den;
        match (ahead, self.num) {
            (0, _) => Some(self.begin),
            (_, 0) => None,
            (_, num) => Some(self.begin + (scaled + num - 1) / num),
        }
    }
}

/// All published pieces, in the order in which they begin.
struct Model(Vec<Exact>);

impl Model {
    fn at(&self, real: i64) -> &Exact {
        let begun = self.0.iter().rfind(|piece| piece.begin <= i128::from(real));
        begun.unwrap_or(&self.0[0])
    }

    fn publish(&mut self, at: i64, kind: ChangeKind) {
        let mut piece = *self.at(at);
        piece.virt = piece.virt_at(at);
        piece.begin = at.into();
        match kind {
            ChangeKind::Rate(num, den) => {
                piece.paused = (num.into(), den.into());
                if piece.num != 0 {
                    (piece.num, piece.den) = piece.paused;
                }
            }
            ChangeKind::Freeze => piece.num = 0,
            ChangeKind::Unfreeze => (piece.num, piece.den) = piece.paused,
            ChangeKind::Leap(by) => piece.virt += i128::from(by),
            ChangeKind::Step(by) => piece.wall += i128::from(by),
        }
        self.0.retain(|other| other.begin < i128::from(at));
        self.0.push(piece);
    }

    /// Returns the first instant from `real` on at which virtual time is at least `virt`.
    fn when(&self, real: i64, virt: i128) -> Option<i128> {
        let first = self.0.iter().rposition(|piece| piece.begin <= i128::from(real)).unwrap_or(0);
        (first..self.0.len()).find_map(|number| {
            let end = self.0.get(number + 1).map_or(i128::MAX, |next| next.begin);
            self.0[number].first_at(virt).filter(|when| *when < end)
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Changes at once and to come, in any order: every way to look at the clock agrees with exact arithmetic.
    #[test]
    fn a_clock_agrees_with_exact_arithmetic(
        announced in prop::collection::vec(any_announced(), 1..14),
        looks in prop::collection::vec((0..2 * NANOS_PER_SEC, 0..DAY), 4),
    ) {
        let clock = Clock::new(&start());
        let first = start();
        let mut model = Model(vec![Exact {
            begin: first.real.0.into(), virt: first.virt.0.into(), num: 1, den: 1, paused: (1, 1),
            wall: first.wall.as_nanos(),
        }]);
        let mut now = first.real.0;
        for Announced { after, ahead, kind } in announced {
            now += after;
            let at = now + ahead;
            let change = {
                let base = clock.page.snapshot(&clock.registry, &|| RealInstant(at)).piece();
                let mut change = Change { at: RealInstant(at), ..Change::of(&base) };
                match kind {
                    ChangeKind::Rate(num, den) => {
                        change.rate = rate(num, den);
                        if change.pace != Pace::Frozen {
                            change.pace = Pace::Running(change.rate);
                        }
                    }
                    ChangeKind::Freeze => change.pace = Pace::Frozen,
                    ChangeKind::Unfreeze => change.pace = Pace::Running(change.rate),
                    ChangeKind::Leap(by) => change.leap = Span(by),
                    ChangeKind::Step(by) => change.wall = change.wall.plus(Span(by)),
                }
                change
            };
            clock.page.publish(&clock.registry, &|| RealInstant(now), &change).expect("there is room");
            model.publish(at, kind);
            for (later, further) in &looks {
                let real = now + later;
                let exact = model.at(real);
                let virt = exact.virt_at(real);
                let seen = clock.look(real);
                prop_assert_eq!(i128::from(seen.now().0), virt);
                prop_assert_eq!(seen.segment.wall_at(seen.now()).as_nanos(), virt + exact.wall);
                if let Some((secs, nanos)) = clock.fast(real, FastClock::Wall, false) {
                    prop_assert_eq!(i128::from(secs) * 1_000_000_000 + i128::from(nanos), virt + exact.wall);
                }
                let wall = clock.page.wall_of(&clock.registry, RealInstant(real));
                prop_assert_eq!(wall.as_nanos(), virt + exact.wall);
                prop_assert_eq!(clock.page.virtual_of(&clock.registry, RealInstant(real)).map(|v| i128::from(v.0)), Some(virt));
                let deadline = virt + i128::from(*further);
                let when = clock.page.when(&clock.registry, &seen, |_| VirtualInstant(deadline as i64));
                let expected = model.when(real, deadline).map_or(i64::MAX, |when| when as i64);
                prop_assert_eq!(when.0, expected);
            }
        }
    }
}
