//! The protocols of the clock page and the registry, in every order that the memory model allows.
//!
//! What the models leave out:
//!
//! - Loom takes sequentially consistent loads and stores for acquire and release ones; only such fences are more. That is
//!   weaker than the language, so what holds here holds there.
//! - Of a segment only its real and its virtual start are atomics of the model. The other words come along and are read
//!   as they were last written, or there would be more states than can be looked at.
//! - Explored are the orders in which at most so many times a thread is put off the processor against its will: three
//!   times; twice where there are two readers and two changes. LOOM_MAX_PREEMPTIONS says another number.
//!
//! The host's clock is a counter that orders whoever reads it: a reader that takes the host's time after the writer
//! took it has seen what the writer wrote before. On real machines that is what waiting for `SETTLE` is for.

#![cfg(loom)]

use loom::sync::atomic::{AtomicI64, Ordering};
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};
use lorentz_clock::{
    ClockPage, Deadline, Pace, Policy, ProcessId, Rate, RealInstant, Registry, Segment, Space,
    Span, VirtualInstant, WallTime,
};
use std::cell::Cell;
use std::sync::{Arc, Mutex as Note};

fn model(preemptions: usize, what: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(what);
}

/// A clock, the host it runs on, and what is known of both beside them.
struct World {
    page: ClockPage,
    registry: Registry,
    host: AtomicI64,
    /// Held by whoever changes the clock. Readers that find it being changed wait here: in a model nobody may spin.
    lock: Mutex<()>,
    /// Every state that was ever published, by its number.
    published: Note<Vec<(Segment, VirtualInstant)>>,
    /// The latest virtual time that anyone has seen.
    seen: Note<VirtualInstant>,
}

impl World {
    fn new() -> Arc<World> {
        let page = ClockPage::default();
        let (first, limit) = state(0, RealInstant(0), VirtualInstant(0), Rate::ONE);
        page.initialise(&first, Rate::ONE, Policy::default(), WallTime::default());
        Arc::new(World {
            page,
            registry: Registry::default(),
            host: AtomicI64::new(0),
            lock: Mutex::new(()),
            published: Note::new(vec![(first, limit)]),
            seen: Note::new(VirtualInstant(0)),
        })
    }

    fn host(&self) -> RealInstant {
        RealInstant(self.host.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn wait_for_writer(&self) {
        drop(self.lock.lock());
    }

    /// The clock goes on `leap` later, at `rate`.
    fn change(&self, rate: Rate, leap: Span) {
        let _lock = self.lock.lock().unwrap();
        let change = self.page.change();
        let real = self.host();
        let virt = change.current().virtual_at(real).min(change.limit()).plus(leap);
        let number = self.published.lock().unwrap().len();
        let (segment, limit) = state(number, real, virt, rate);
        self.published.lock().unwrap().push((segment, limit));
        change.set_limit(limit);
        change.publish(&segment);
    }

    fn state(&self, number: usize) -> (Segment, VirtualInstant) {
        self.published.lock().unwrap()[number]
    }

    /// A look at the clock the long way: nothing torn, nothing early, and never back. Gives the sequence.
    fn look(&self) -> u32 {
        let before = *self.seen.lock().unwrap();
        let look = self.page.snapshot(|| self.host(), |_| self.wait_for_writer());
        let number = look.segment.boot.0 as usize;
        assert_eq!(self.state(number), (look.segment, look.limit), "torn");
        assert_eq!(look.sequence, sequence(number));
        assert!(look.real >= look.segment.real, "read before it began");
        self.has_seen(before, look.now());
        look.sequence
    }

    /// A look the short way, where there is one.
    fn look_ahead(&self) {
        let before = *self.seen.lock().unwrap();
        while let Some((sequence, secs, nanos)) = self.page.ahead(false) {
            let real = self.host();
            if self.page.is_still(sequence) {
                let (segment, _) = self.state((sequence as usize - 2) / 2);
                let now = VirtualInstant(real.0 + secs * 1_000_000_000 + nanos);
                assert_eq!(now, segment.virtual_at(real), "torn");
                return self.has_seen(before, now);
            }
            self.wait_for_writer();
        }
        self.look();
    }

    /// A look by the short way of a piece, where there is one.
    fn look_in_piece(&self) {
        let before = *self.seen.lock().unwrap();
        let taken = Cell::new(RealInstant(0));
        let host = || {
            taken.set(self.host());
            taken.get()
        };
        let Some((secs, nanos)) = self.page.in_piece(false, false, host) else {
            self.look();
            return;
        };
        let now = VirtualInstant(secs * 1_000_000_000 + nanos);
        let states = self.published.lock().unwrap().clone();
        let by_one = |(segment, _): &(Segment, VirtualInstant)| segment.virtual_at(taken.get());
        assert!(states.iter().any(|state| now == by_one(state)), "torn");
        self.has_seen(before, now);
    }

    fn has_seen(&self, before: VirtualInstant, now: VirtualInstant) {
        assert!(now >= before, "time went back from {before:?} to {now:?}");
        let mut seen = self.seen.lock().unwrap();
        *seen = now.max(*seen);
    }
}

/// State `number` of a clock: all that can vary tells the number.
fn state(
    number: usize,
    real: RealInstant,
    virt: VirtualInstant,
    rate: Rate,
) -> (Segment, VirtualInstant) {
    let tag = number as i64;
    let wall = WallTime { secs: tag * 1_000, nanos: number as u32 };
    let limit = if rate == Rate::ONE { VirtualInstant::NEVER } else { VirtualInstant(FAR + tag) };
    (Segment { real, virt, pace: Pace::Running(rate), wall, boot: Span(tag) }, limit)
}

/// Later than any model comes.
const FAR: i64 = 1 << 40;

fn sequence(number: usize) -> u32 {
    2 + 2 * number as u32
}

fn rate(num: u64) -> Rate {
    Rate::new(num, 1).unwrap()
}

fn spawn<T: 'static>(
    world: &Arc<World>,
    what: impl FnOnce(&World) -> T + 'static,
) -> JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || what(&world))
}

fn all<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn a_reader_sees_whole_states_through_two_changes() {
    model(3, || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.look();
        });
        world.change(rate(3), Span(0));
        world.change(rate(2), Span(5));
        all([reader]);
        assert_eq!(world.look(), sequence(2));
    });
}

#[test]
fn time_does_not_go_back_between_two_readers() {
    model(3, || {
        let world = World::new();
        let readers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.look();
            })
        });
        world.change(rate(3), Span(5));
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
        world.change(rate(3), Span(0));
        world.change(rate(2), Span(5));
        all(readers);
    });
}

#[test]
fn the_short_way_shows_no_more_than_the_long_one() {
    model(3, || {
        let world = World::new();
        let reader = spawn(&world, |world| world.look_ahead());
        world.change(Rate::ONE, Span(1_500_000_000));
        world.change(rate(3), Span(0));
        all([reader]);
    });
}

#[test]
fn the_short_way_of_a_piece_shows_no_more_than_the_long_one() {
    model(3, || {
        let world = World::new();
        world.change(rate(3), Span(1_500_000_000));
        let reader = spawn(&world, |world| world.look_in_piece());
        world.change(rate(2), Span(0));
        all([reader]);
    });
}

#[test]
fn both_ways_agree_between_two_readers() {
    model(2, || {
        let world = World::new();
        let short = spawn(&world, |world| world.look_ahead());
        let long = spawn(&world, |world| {
            world.look();
        });
        world.change(Rate::ONE, Span(1_500_000_000));
        all([short]);
        all([long]);
    });
}

/// The next writer finds the sequence odd and goes on from there, under a reader that has begun before either.
#[test]
fn a_writer_that_dies_leaves_nothing_torn() {
    model(3, || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.look();
        });
        let lock = world.lock.lock();
        let dying = world.page.change();
        dying.set_limit(VirtualInstant(1));
        core::mem::forget(dying);
        drop(lock);
        world.change(rate(3), Span(5));
        all([reader]);
        assert_eq!(world.look(), sequence(1));
    });
}

/// Publishes segments with these starts, the rest as it is.
fn publish(world: &World, starts: &[(i64, i64)]) {
    for (real, virt) in starts {
        let change = world.page.change();
        let (real, virt) = (RealInstant(*real), VirtualInstant(*virt));
        let segment = Segment { real, virt, ..change.current() };
        change.publish(&segment);
    }
}

/// Without the host's clock, which orders readers and writer by itself.
#[test]
fn the_sequence_alone_keeps_a_look_whole() {
    let starts = [(0, 0), (10, 100), (20, 300)];
    model(3, move || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.page.snapshot(RealInstant::default, |_| world.wait_for_writer())
        });
        publish(&world, &starts[1..]);
        let look = &all([reader])[0];
        let start = starts[(look.sequence as usize - 2) / 2];
        assert_eq!((look.segment.real.0, look.segment.virt.0), start);
    });
}

#[test]
fn the_sequence_alone_keeps_a_short_look_whole() {
    const SECOND: i64 = 1_000_000_000;
    let starts = [(0, 0), (10, SECOND + 100), (20, 2 * SECOND + 300)];
    model(3, move || {
        let world = World::new();
        let reader = spawn(&world, |world| {
            world.page.ahead(false).filter(|(sequence, ..)| world.page.is_still(*sequence))
        });
        publish(&world, &starts[1..]);
        if let Some((sequence, secs, nanos)) = all([reader])[0] {
            let (real, virt) = starts[(sequence as usize - 2) / 2];
            assert_eq!(secs * SECOND + nanos, virt - real);
        }
    });
}

/// The third change is written over the first one's place in the history.
#[test]
fn the_history_is_read_whole_while_it_is_written_over() {
    let starts = [(0, 0), (10, 100), (20, 300), (30, 700)];
    // In the last segment, and in one that is forgotten by the second change: then time has gone by evenly from the first
    // to the last.
    for (real, right) in [(1_000, [1_000, 1_090, 1_280, 1_670]), (15, [15, 105, 225, 350])] {
        model(3, move || {
            let world = World::new();
            let reader = spawn(&world, move |world| world.page.wall_of(RealInstant(real)));
            publish(&world, &starts[1..]);
            let told = all([reader])[0].as_nanos() as i64;
            assert!(right.contains(&told), "torn: {told}");
        });
    }
}

/// The process that waits.
const ONE: ProcessId = ProcessId::new(Space::MONITORS, 1);

/// As a wait does it: states what it waits for by the clock it saw, looks again, and blocks if nothing has changed.
/// Gives the state in which it blocked.
fn wait(world: &World, thread: u32) -> u32 {
    let waiter = world.registry.claim_waiter(ONE, thread, 0).expect("there is room");
    loop {
        let seen = world.page.snapshot(|| RealInstant(0), |_| world.wait_for_writer()).sequence;
        waiter.publish(Deadline::Virtual(VirtualInstant(FAR)), 0, seen, Span::ZERO);
        if world.page.sequence() == seen {
            assert_eq!(waiter.owner(), Some((ONE, thread)));
            return seen;
        }
        world.wait_for_writer();
    }
}

/// As whoever changes the clock does it: the threads that wait by an earlier state.
fn to_be_told(world: &World) -> Vec<u32> {
    let now = world.page.sequence();
    let waiters = world.registry.waiters().filter(|waiter| waiter.seen() != now);
    waiters.filter_map(|waiter| Some(waiter.owner()?.1)).collect()
}

#[test]
fn a_wait_follows_every_change_or_is_told_of_it() {
    model(3, || {
        let world = World::new();
        let waiter = spawn(&world, |world| wait(world, 7));
        world.change(rate(2), Span(0));
        let first = to_be_told(&world);
        world.change(rate(3), Span(0));
        let second = to_be_told(&world);
        let blocked = all([waiter])[0];
        assert!(blocked >= sequence(1) || first == [7], "the first change was missed");
        assert!(blocked >= sequence(2) || second == [7], "the second change was missed");
    });
}

#[test]
fn two_waits_that_share_a_group_are_both_found() {
    model(2, || {
        let world = World::new();
        let waiters = [7, 8].map(|thread| spawn(&world, move |world| wait(world, thread)));
        world.change(rate(2), Span(0));
        let told = to_be_told(&world);
        for (blocked, thread) in all(waiters).into_iter().zip([7, 8]) {
            assert!(blocked == sequence(1) || told.contains(&thread), "{thread} was missed");
        }
    });
}

#[test]
fn one_timer_slot_goes_to_one_thread() {
    use lorentz_clock::TimerKind::Fd;
    model(3, || {
        let world = World::new();
        let claims = [3, 4].map(|id| {
            spawn(&world, move |world| {
                let timer = world.registry.claim_timer(ONE, Fd, id).expect("there is room");
                assert_eq!(timer.owner(), Some((ONE, Fd, id)));
            })
        });
        all(claims);
        assert_eq!(world.registry.timers().count(), 2);
        assert!(world.registry.claim_timer(ONE, Fd, 5).is_none(), "there is no third");
    });
}
