//! A clock whose page, registry and host consist of loom's atomics, and what its readers must see.

#![allow(dead_code)]

use loom::sync::atomic::{AtomicI64, Ordering};
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};
use lorentz_clock::{
    completes_before_store, Change, ClockPage, Failpoint, FastClock, Pace, Policy, Rate,
    RealInstant, Registry, Segment, Snapshot, Span, VirtualInstant, WallTime,
};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::AtomicUsize as Count;
use std::sync::{Arc, Mutex as Note};

/// Explores `what` with at most so many preemptions of a thread.
pub fn model(preemptions: usize, what: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(what);
}

/// A clock, its host, and records about both that the model keeps beside them.
pub struct World {
    pub page: ClockPage,
    pub registry: Registry,
    host: AtomicI64,
    /// The writer's lock. No reader takes it.
    lock: Mutex<()>,
    /// Every change that was ever published, by its number, with its start once somebody has seen the start.
    published: Note<Vec<Known>>,
    /// The latest virtual time that any thread has seen.
    pub seen: Note<VirtualInstant>,
    /// Number of versions that a writer has begun to make.
    begun: Count,
    /// Number of versions that a writer had begun to make when the latest reader was spawned. Later ones may be new to readers.
    known: Count,
}

/// A change of the model.
#[derive(Clone, Copy)]
struct Known {
    rate: Rate,
    start: Option<(RealInstant, VirtualInstant)>,
}

/// The outcome of a writer that was to be killed.
pub struct Killed {
    /// Whether the writer completed before the store at which it was to be killed.
    pub completed: bool,
    /// Whether it published a version.
    pub made: bool,
}

impl World {
    pub fn new() -> Arc<World> {
        let page = ClockPage::default();
        let start = (RealInstant(0), VirtualInstant(0));
        let first = Segment {
            real: start.0,
            virt: start.1,
            pace: Pace::Running(Rate::ONE),
            wall: wall(0),
            boot: Span(0),
        };
        page.initialise(&first, Rate::ONE, Policy::default(), WallTime::default());
        Arc::new(World {
            page,
            registry: Registry::default(),
            host: AtomicI64::new(0),
            lock: Mutex::new(()),
            published: Note::new(vec![Known { rate: Rate::ONE, start: Some(start) }]),
            seen: Note::new(VirtualInstant(0)),
            begun: Count::new(0),
            known: Count::new(0),
        })
    }

    /// Reads the host's clock.
    pub fn host(&self) -> RealInstant {
        RealInstant(self.host.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Publishes a change: the clock leaps by `leap` and goes on at `rate`, from `at` on.
    pub fn change(&self, rate: Rate, leap: Span, at: RealInstant) {
        let _lock = self.lock.lock().unwrap();
        self.change_locked(rate, leap, at);
    }

    /// Does the same. The caller is the writer.
    pub fn change_locked(&self, rate: Rate, leap: Span, at: RealInstant) {
        let number = {
            let mut published = self.published.lock().unwrap();
            published.push(Known { rate, start: None });
            published.len() - 1
        };
        // Each of the other fields that vary encodes the number of the change.
        let change = Change {
            at,
            leap,
            floor: VirtualInstant(i64::MIN),
            pace: Pace::Running(rate),
            rate,
            wall: wall(number),
            boot: Span(number as i64),
            limit: if rate == Rate::ONE { VirtualInstant::NEVER } else { limit(number) },
            file_boundary: None,
        };
        self.make_version(|host| {
            self.page.publish(&self.registry, &host, &change).expect("there is room");
        });
    }

    /// Returns the instant that the host's clock shows after so many more readings.
    pub fn host_after(&self, readings: i64) -> RealInstant {
        RealInstant(self.host.load(Ordering::Acquire) + readings)
    }

    /// Runs a writer that is killed before its store number `nth`. The writer does not take the lock.
    pub fn kill_before_store(&self, nth: usize, writer: impl FnOnce(&World)) -> Killed {
        let _lock = self.lock.lock().unwrap();
        let (version, changes) = (self.page.version(), self.published.lock().unwrap().len());
        let completed = completes_before_store(nth, || writer(self));
        let made = self.page.version() != version;
        if !made {
            self.published.lock().unwrap().truncate(changes);
        }
        Killed { completed, made }
    }

    /// Publishes a change by a writer that is killed at `point`. Returns whether the change was made all the same.
    pub fn change_and_die(&self, point: Failpoint, rate: Rate) -> bool {
        let _lock = self.lock.lock().unwrap();
        let before = self.page.version();
        *self.registry.failpoints.dies_at.lock().unwrap() = Some(point);
        let dying = || self.change_locked(rate, Span(5), NOW);
        let died = catch_unwind(AssertUnwindSafe(dying)).is_err();
        *self.registry.failpoints.dies_at.lock().unwrap() = None;
        assert!(died);
        let made = self.page.version() != before;
        if !made {
            self.published.lock().unwrap().pop();
        }
        made
    }

    /// Makes a new state of the clock that shows the same time. The caller is the writer.
    pub fn renew_locked(&self) {
        self.make_version(|host| self.page.renew(&self.registry, &host));
    }

    /// Moves the fast path to a piece that has begun. The caller is the writer.
    pub fn refresh_locked(&self) {
        self.make_version(|host| {
            self.page.refresh(&self.registry, &host);
        });
    }

    fn make_version(&self, make: impl FnOnce(&dyn Fn() -> RealInstant)) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        make(&|| self.host());
    }

    /// Checks that a read makes at most one look more than there are versions that may be new to it.
    fn check_looks(&self, looks: usize) {
        let versions = self.begun.load(Ordering::Relaxed) - self.known.load(Ordering::Relaxed);
        assert!(looks <= 1 + versions, "{looks} looks through {versions} versions");
    }

    /// Looks by the slow path and checks that the look is not torn, not early, and never back. Returns the number of the piece in
    /// force.
    pub fn look(&self) -> usize {
        /// Readings of the host's clock in one look, at most: two decide the start of a change.
        const READINGS: usize = 3;
        let before = *self.seen.lock().unwrap();
        let readings = Cell::new(0_usize);
        let host = || {
            readings.set(readings.get() + 1);
            self.host()
        };
        let look = self.page.snapshot(&self.registry, &host);
        self.check_looks(readings.get().div_ceil(READINGS));
        let number = look.segment.boot.0 as usize;
        self.check(number, &look);
        self.has_seen(before, look.now());
        number
    }

    fn check(&self, number: usize, look: &Snapshot) {
        let known = &mut self.published.lock().unwrap()[number];
        let limited = known.rate != Rate::ONE;
        assert_eq!(look.limit, if limited { limit(number) } else { VirtualInstant::NEVER }, "torn");
        assert_eq!((look.segment.wall, look.rate), (wall(number), known.rate), "torn");
        assert!(look.real >= look.segment.real, "read before it began");
        let start = (look.segment.real, look.segment.virt);
        assert_eq!(*known.start.get_or_insert(start), start, "two starts");
    }

    /// Looks by the fast path, if it is open.
    pub fn look_fast(&self) {
        let before = *self.seen.lock().unwrap();
        for looks in 1.. {
            self.check_looks(looks);
            let look = self.page.fast();
            let real = self.host();
            match look.at(&self.page, 0, real.0, FastClock::Monotonic, false) {
                Err(_) => (),
                Ok(None) => {
                    self.look();
                    return;
                }
                Ok(Some((secs, nanos))) => {
                    return self.has_seen(before, VirtualInstant(secs * SECOND + nanos));
                }
            }
        }
    }

    pub fn has_seen(&self, before: VirtualInstant, now: VirtualInstant) {
        assert!(now >= before, "time went back from {before:?} to {now:?}");
        let mut seen = self.seen.lock().unwrap();
        *seen = now.max(*seen);
    }
}

/// One second, ns.
pub const SECOND: i64 = 1_000_000_000;
/// An instant that no model reaches.
pub const FAR: i64 = 1 << 40;
/// A start that means: at once.
pub const NOW: RealInstant = RealInstant(i64::MIN + 1);

fn wall(number: usize) -> WallTime {
    WallTime { secs: number as i64 * 1_000, nanos: number as u32 }
}

fn limit(number: usize) -> VirtualInstant {
    VirtualInstant(FAR + number as i64)
}

pub fn rate(num: u64) -> Rate {
    Rate::new(num, 1).unwrap()
}

pub fn spawn<T: 'static>(
    world: &Arc<World>,
    what: impl FnOnce(&World) -> T + 'static,
) -> JoinHandle<T> {
    world.known.store(world.begun.load(Ordering::Relaxed), Ordering::Relaxed);
    let world = world.clone();
    thread::spawn(move || what(&world))
}

pub fn all<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}
