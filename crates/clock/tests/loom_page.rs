//! The protocols of the clock page, the registry and the log of leaps, in every order that the memory model allows. Writers that are
//! killed have models of their own: `loom_killed_writers.rs`.
//!
//! The models simplify as follows:
//!
//! - Loom treats sequentially consistent loads and stores as acquire and release ones; only sequentially consistent fences have
//!   their full strength. That is weaker than the language, so an order that cannot happen here cannot happen there.
//! - Of a piece only the start consists of atomics of the model. A read of the other words returns the last value written;
//!   otherwise there would be too many states to explore.
//! - Loom explores the orders with at most three preemptions of a thread, or two in models with two readers and two changes.
//!   LOOM_MAX_PREEMPTIONS sets another number.
//!
//! The host's clock is a counter that orders its readers: a reader that takes the host's time after another reader has seen all
//! that the other had seen before. On a real machine that follows from three things. The counters of all processors agree,
//! `rdtsc` waits for the loads before it, and the second look at the version waits for `rdtsc` (`sync::load_after`). A model in
//! which that look comes first goes back, as it should (`a_look_that_passes_the_clock_goes_back`).

#![cfg(loom)]

mod model;

use loom::sync::atomic::{AtomicI64, Ordering};
use lorentz_clock::{
    Change, Deadline, Failpoint, FastClock, Holder, PidNamespace, ProcessId, Rate, RealInstant,
    Setting, Span, TimerKind, VirtualInstant,
};
use model::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

#[test]
fn a_reader_sees_whole_states_through_two_changes() {
    model(3, || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.look();
        });
        world.change(rate(3), Span(0), NOW);
        world.change(rate(2), Span(5), NOW);
        all([reader]);
        assert_eq!(world.look(), 2);
    });
}

/// The change slows the clock down. A reader that goes on by the old piece too long would see a later time than the others do
/// afterwards.
#[test]
fn time_does_not_go_back_between_two_readers() {
    model(3, || {
        let world = World::new();
        world.change(rate(5), Span(0), NOW);
        let readers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.look();
            })
        });
        world.change(Rate::ONE, Span(0), NOW);
        all(readers);
    });
}

#[test]
fn time_does_not_go_back_between_two_readers_through_two_changes() {
    model(2, || {
        let world = World::new();
        let readers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.look();
            })
        });
        world.change(rate(3), Span(0), NOW);
        world.change(Rate::ONE, Span(5), NOW);
        all(readers);
    });
}

#[test]
fn the_fast_path_shows_no_more_than_the_slow_one() {
    model(2, || {
        let world = World::new();
        world.change(rate(5), Span(SECOND), NOW);
        let fast = spawn(&world, |world| world.look_fast());
        let slow = spawn(&world, |world| {
            world.look();
        });
        world.change(Rate::ONE, Span(0), NOW);
        all([fast, slow]);
    });
}

#[test]
fn the_fast_path_is_read_whole_through_two_changes() {
    model(3, || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.look_fast();
            world.look_fast();
        });
        world.change(rate(3), Span(SECOND), NOW);
        world.change(Rate::ONE, Span(SECOND), NOW);
        all([reader]);
    });
}

/// A piece to come begins by itself. One that is published after its instant begins when a thread sees it.
#[test]
fn a_piece_to_come_begins_for_all_at_once() {
    for at in [1, 3, 5] {
        model(2, move || {
            let world = World::new();
            let readers = [(); 2].map(|()| {
                spawn(&world, |world| {
                    world.look();
                    world.look_fast();
                })
            });
            world.change(rate(4), Span(3), RealInstant(at));
            all(readers);
        });
    }
}

/// A reader decides the start for a writer that was killed before it could. Another reader has a stale number.
#[test]
fn a_reader_that_slept_through_a_change_decides_nothing() {
    model(2, || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.look();
            world.look();
        });
        world.change_and_die(Failpoint::AfterVersion, rate(4));
        world.change(rate(3), Span(0), NOW);
        world.change(Rate::ONE, Span(0), NOW);
        all([reader]);
    });
}

/// Models a processor that makes the second look at the version before it has read the clock. Real processors must not.
#[test]
#[should_panic(expected = "time went back")]
fn a_look_that_passes_the_clock_goes_back() {
    model(2, || {
        let world = World::new();
        world.change(rate(5), Span(0), NOW);
        let early = spawn(&world, |world| {
            let before = *world.seen.lock().unwrap();
            let look = world.page.snapshot(&world.registry, &|| world.host());
            let real = world.host();
            world.has_seen(before, look.segment.virtual_at(real));
        });
        let right = spawn(&world, |world| {
            world.look();
        });
        world.change(Rate::ONE, Span(0), NOW);
        all([early, right]);
    });
}

/// Publishes pieces with these starts; the rest stays the same.
fn publish(world: &World, starts: &[(i64, i64)]) {
    for (real, leap) in starts {
        let host = || RealInstant(*real);
        let piece = world.page.snapshot(&world.registry, &host).piece();
        let change = Change { leap: Span(*leap), ..Change::of(&piece) };
        world.page.publish(&world.registry, &host, &change).expect("there is room");
    }
}

/// This model leaves out the host's clock, which would order readers and writer by itself.
#[test]
fn the_version_alone_keeps_a_look_whole() {
    model(3, move || {
        let world = World::new();
        let reader =
            spawn(&world, |world| world.page.snapshot(&world.registry, &|| RealInstant(FAR)));
        publish(&world, &[(10, 90), (20, 190)]);
        let look = &all([reader])[0];
        let start = (look.segment.real.0, look.segment.virt.0);
        // The clock of this reader is far ahead, so the reader decides by it.
        let right = |start| {
            [(0, 0), (10, 100), (20, 300), (FAR, FAR + 90)].contains(&start) || start.0 == FAR
        };
        assert!(right(start), "torn: {start:?}");
    });
}

#[test]
fn the_version_alone_keeps_a_fast_look_whole() {
    model(3, move || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            let look = world.page.fast();
            look.at(&world.page, 0, 100, FastClock::Monotonic, false)
        });
        publish(&world, &[(10, SECOND), (20, SECOND)]);
        if let Ok(Some(shown)) = all([reader])[0] {
            assert!([(0, 100), (1, 100), (2, 100)].contains(&shown), "torn: {shown:?}");
        }
    });
}

/// The third change is written to the first one's place in the ring.
#[test]
fn the_past_is_read_whole_while_it_is_written_over() {
    // One instant lies in the last piece. The other lies in the piece that the third change makes the page forget: there time is
    // taken to have run evenly from the first piece to the next one remembered.
    for (real, right) in
        [(1_000, [1_000, 1_090, 1_280, 1_670].as_slice()), (15, [15, 105, 225].as_slice())]
    {
        model(3, move || {
            let world = World::new();
            let reader =
                spawn(&world, move |world| world.page.wall_of(&world.registry, RealInstant(real)));
            publish(&world, &[(10, 90), (20, 190), (30, 390)]);
            let read = all([reader])[0].as_nanos() as i64;
            assert!(right.contains(&read), "torn: {read}");
        });
    }
}

/// The waiting process.
const ONE: ProcessId = ProcessId::new(PidNamespace::MONITOR, 1);

/// Does what a wait does: states its deadline and the state it saw, looks at the clock again, and blocks if nothing has changed.
/// Returns the state in which it blocked.
fn wait(world: &World, thread: u32) -> u32 {
    let waiter = world.registry.claim_waiter(ONE, thread, 0).expect("there is room");
    loop {
        let look = world.page.snapshot(&world.registry, &|| world.host());
        waiter.publish(Deadline::Virtual(VirtualInstant(FAR)), 0, look.state, Span::ZERO);
        if world.page.version() == look.version {
            assert_eq!(waiter.owner(), Some((ONE, thread)));
            return look.state;
        }
    }
}

/// Does what a controller does: returns the threads that wait by an earlier state.
fn to_notify(world: &World) -> Vec<u32> {
    let now = world.page.state();
    let waiters = world.registry.waiters().filter(|waiter| waiter.observed_seq() != now);
    waiters.filter_map(|waiter| Some(waiter.owner()?.1)).collect()
}

/// Returns the state after this number of changes.
fn state(changes: u32) -> u32 {
    2 + changes
}

#[test]
fn a_wait_follows_every_change_or_is_told_of_it() {
    model(3, || {
        let world = World::new();
        let waiter = spawn(&world, |world| wait(world, 7));
        world.change(rate(2), Span(0), NOW);
        let first = to_notify(&world);
        world.change(rate(3), Span(0), NOW);
        let second = to_notify(&world);
        let blocked = all([waiter])[0];
        assert!(blocked >= state(1) || first == [7], "the first change was missed");
        assert!(blocked >= state(2) || second == [7], "the second change was missed");
    });
}

/// Sets a timer as the shim does. Stores in `held` whether the timer was held back.
fn set_timer(world: &World, held: &AtomicI64) {
    let timer = world.registry.claim_timer(ONE, TimerKind::Fd, 3).expect("there is room");
    let deadline = Deadline::Virtual(VirtualInstant(1_000));
    loop {
        let state = world.page.timers_state();
        held.store(world.page.timers_held().is_some().into(), Ordering::Relaxed);
        timer.set(Setting { deadline, interval: Span(0) }, state);
        if world.page.timers_state() == state {
            return;
        }
    }
}

/// Before a change is published, each timer is held back, or is not set yet, or the controller knows that the timer does not
/// follow.
#[test]
fn a_timer_is_held_back_or_is_waited_for() {
    model(3, || {
        let world = World::new();
        let held = Arc::new(AtomicI64::new(0));
        let setter = {
            let held = held.clone();
            spawn(&world, move |world| set_timer(world, &held))
        };
        world.page.hold_timers(RealInstant(500));
        let state = world.page.timers_state();
        let seen: Vec<u32> = world.registry.timers().map(|timer| timer.observed_seq()).collect();
        if seen == [state] {
            assert_eq!(held.load(Ordering::Relaxed), 1, "it would go off by the old piece");
        }
        all([setter]);
        world.page.release_timers();
        assert_eq!(world.page.timers_held(), None);
        assert!(world
            .registry
            .timers()
            .all(|timer| timer.observed_seq() != world.page.timers_state()));
    });
}

/// A controller that finds no timer after it has begun to hold timers back publishes its change at once. A timer that is set by the
/// old piece after that is held back, until its thread looks at the clock again.
#[test]
fn a_timer_that_a_controller_does_not_find_is_held_back() {
    model(3, || {
        let world = World::new();
        let before = world.page.timers_state();
        world.registry.claim_timer(ONE, TimerKind::Fd, 3).expect("there is room");
        let holder = Holder { epoch: world.registry.new_epoch(), thread: 1 };
        let setter = spawn(&world, move |world| {
            let timer = world.registry.find_timer(ONE, TimerKind::Fd, 3).expect("it was claimed");
            timer.begin_setting(holder).expect("it is free");
            let state = world.page.timers_state();
            let is_held = world.page.timers_held().is_some();
            let deadline = Deadline::Virtual(VirtualInstant(1_000));
            timer.set(Setting { deadline, interval: Span(0) }, state);
            timer.end_setting();
            is_held || state != before
        });
        world.page.hold_timers(RealInstant(0));
        let found = world
            .registry
            .timers()
            .any(|timer| timer.is_being_set() || timer.setting().deadline != Deadline::Never);
        world.page.release_timers();
        let follows = all([setter])[0];
        assert!(found || follows, "it would go off by the old piece");
    });
}

#[test]
fn two_waits_that_share_a_group_are_both_found() {
    model(2, || {
        let world = World::new();
        let waiters = [7, 8].map(|thread| spawn(&world, move |world| wait(world, thread)));
        world.change(rate(2), Span(0), NOW);
        let notified = to_notify(&world);
        for (blocked, thread) in all(waiters).into_iter().zip([7, 8]) {
            assert!(blocked == state(1) || notified.contains(&thread), "{thread} was missed");
        }
    });
}

#[test]
fn one_timer_slot_goes_to_one_thread() {
    model(3, || {
        let world = World::new();
        let claims = [3, 4].map(|id| {
            spawn(&world, move |world| {
                let timer =
                    world.registry.claim_timer(ONE, TimerKind::Fd, id).expect("there is room");
                assert_eq!(timer.owner(), Some((ONE, TimerKind::Fd, id)));
            })
        });
        all(claims);
        assert_eq!(world.registry.timers().count(), 2);
        assert!(world.registry.claim_timer(ONE, TimerKind::Fd, 5).is_none(), "there is no third");
    });
}

/// Two threads of one epoch set a timer one after the other, while a thread of an earlier epoch still has the right.
#[test]
fn the_right_to_set_a_timer_is_one_threads() {
    model(3, || {
        let world = World::new();
        let timer = world.registry.claim_timer(ONE, TimerKind::Fd, 3).expect("there is room");
        let dead = Holder { epoch: world.registry.new_epoch(), thread: 1 };
        timer.begin_setting(dead).expect("it is free");
        let epoch = world.registry.new_epoch();
        let inside = Arc::new(AtomicI64::new(0));
        let threads = [2, 3].map(|thread| {
            let inside = inside.clone();
            spawn(&world, move |world| {
                let timer =
                    world.registry.find_timer(ONE, TimerKind::Fd, 3).expect("it was claimed");
                if timer.begin_setting(Holder { epoch, thread }).is_ok() {
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two at once");
                    inside.fetch_sub(1, Ordering::Relaxed);
                    timer.end_setting();
                }
            })
        });
        all(threads);
        assert!(timer.begin_setting(Holder { epoch, thread: 4 }).is_ok(), "it is held by the dead");
    });
}

/// Sets a timer anew as the shim does, unless another thread has the right. A thread that gives the right back looks at the clock again.
fn set_anew(world: &World, holder: Holder, is_told: bool) {
    let timer = world.registry.find_timer(ONE, TimerKind::Fd, 3).expect("it was claimed");
    let mut sets = is_told;
    while timer.begin_setting_of((ONE, TimerKind::Fd, 3), holder) == Ok(true) {
        if sets {
            timer.set_observed_seq(world.page.timers_state());
        }
        timer.end_setting();
        if timer.is_current(world.page.timers_state(), Span(0)) {
            return;
        }
        sets = true;
    }
}

/// A thread that is told of a change leaves a timer to another one, which has the right only to look at it.
#[test]
fn a_timer_is_set_anew_although_its_right_is_taken() {
    model(3, || {
        let world = World::new();
        let timer = world.registry.claim_timer(ONE, TimerKind::Fd, 3).expect("there is room");
        let deadline = Deadline::Virtual(VirtualInstant(7));
        timer.set(Setting { deadline, interval: Span(0) }, world.page.timers_state());
        let epoch = world.registry.new_epoch();
        let looks = spawn(&world, move |world| {
            set_anew(world, Holder { epoch, thread: 1 }, false);
        });
        world.change(rate(2), Span(0), NOW);
        set_anew(&world, Holder { epoch, thread: 2 }, true);
        all([looks]);
        let timer = world.registry.find_timer(ONE, TimerKind::Fd, 3).expect("it was claimed");
        assert!(timer.is_current(world.page.timers_state(), Span(0)), "nobody has set it");
    });
}

/// Sets timers anew as the shim does: an entry whose descriptor is not `open` is released.
fn release_closed(world: &World, holder: Holder, open: &AtomicI64) {
    for timer in world.registry.timers() {
        let Some(owner) = timer.owner().filter(|(.., id)| *id == 3) else { continue };
        if timer.begin_setting_of(owner, holder) == Ok(true) {
            if open.load(Ordering::Acquire) == 0 {
                timer.release();
            }
            timer.end_setting();
        }
    }
}

/// Makes and sets a timer as the shim does. `None` if there is no room.
fn make_timer(world: &World, id: u32, setting: Setting, holder: Holder) -> Option<()> {
    loop {
        let timer = world.registry.claim_timer(ONE, TimerKind::Fd, id)?;
        match timer.begin_setting_of((ONE, TimerKind::Fd, id), holder) {
            Ok(true) => {
                timer.set(setting, 0);
                timer.end_setting();
                return Some(());
            }
            Ok(false) => {}
            Err(_) => loom::thread::yield_now(),
        }
    }
}

/// Threads release the entry of descriptor 3, which was closed. A thread makes descriptor 3 again, whose entry it may find, or another
/// one, which may get its slot: that entry stays.
#[test]
fn a_new_timer_is_not_released_for_the_one_before() {
    for (id, releasing) in [(3, 1), (4, 2)] {
        model(3, move || {
            let world = World::new();
            for used in [3, 5] {
                world.registry.claim_timer(ONE, TimerKind::Fd, used).expect("there is room");
            }
            let epoch = world.registry.new_epoch();
            let open = Arc::new(AtomicI64::new(0));
            let others = (0..releasing).map(|thread| {
                let open = open.clone();
                spawn(&world, move |world| release_closed(world, Holder { epoch, thread }, &open))
            });
            let others: Vec<_> = others.collect();
            if id == 3 {
                open.store(1, Ordering::Release);
            }
            let setting =
                Setting { deadline: Deadline::Virtual(VirtualInstant(7)), interval: Span(0) };
            let made = make_timer(&world, id, setting, Holder { epoch, thread: 9 });
            all(others);
            if made.is_some() {
                let timer = world.registry.find_timer(ONE, TimerKind::Fd, id);
                assert_eq!(timer.expect("nobody closed it").setting(), setting);
            }
        });
    }
}

/// A leaper that is killed while it writes its entry loses no other entry and blocks nobody.
#[test]
fn a_leaper_may_be_killed_at_any_point() {
    for point in [Failpoint::LeapBeforeLog, Failpoint::LeapInLog] {
        model(3, move || {
            let world = World::new();
            let registry = &world.registry;
            assert!(registry.leap(Span(0), Span(5), RealInstant(10)));
            let reader = spawn(&world, |world| world.registry.leaps.at(RealInstant(25)).0);
            *registry.failpoints.dies_at.lock().unwrap() = Some(point);
            let dying = || registry.leap(Span(5), Span(7), RealInstant(20));
            assert!(catch_unwind(AssertUnwindSafe(dying)).is_err());
            *registry.failpoints.dies_at.lock().unwrap() = None;
            assert_eq!(registry.leaps.sum(), Span(12));
            assert!(registry.leap(Span(12), Span(1), RealInstant(30)));
            let read = all([reader])[0];
            assert!([5, 12].contains(&read), "{point:?} {read}");
            assert_eq!(registry.leaps.at(RealInstant(30)), Span(13));
        });
    }
}

#[test]
fn two_that_leap_at_once_do_not_mix_their_entries() {
    model(3, || {
        let world = World::new();
        let leapers = [1, 2].map(|number| {
            spawn(&world, move |world| {
                let sum = world.registry.leaps.sum();
                world.registry.leap(sum, Span(number), RealInstant(10 * number))
            })
        });
        let read = world.registry.leaps.at(RealInstant(50)).0;
        let leapt = all(leapers);
        assert!([0, 1, 2, 3].contains(&read), "mixed: {read}");
        assert!(leapt.contains(&true));
    });
}
