//! The protocols of the clock page and the registry, in every order that the memory model allows.
//!
//! What the models leave out: loom knows sequentially consistent fences but takes such loads and stores for acquire
//! and release ones, which is weaker, so what holds here holds there. Rate, wall and boot offset of a segment only come
//! along with its other words and are read as the last thread wrote them. A model explores every order with at most
//! [`PREEMPTIONS`] threads put off the processor against their will.
//!
//! The host's clock is a counter that orders whoever reads it: a reader that takes the host's time after the writer
//! took it has seen what the writer wrote before. On real machines that is what waiting for `SETTLE` is for.

#![cfg(loom)]

use loom::sync::atomic::{AtomicI64, Ordering};
use loom::sync::Mutex;
use std::sync::Arc;
use loom::thread;
use lorentz_clock::{
    ClockPage, Deadline, Pace, Policy, Rate, RealInstant, Registry, Segment, Snapshot, Span,
    VirtualInstant, WallTime,
};
use std::sync::Mutex as Note;

const READERS: usize = 2;
const PREEMPTIONS: usize = 3;

fn model(what: impl Fn() + Send + Sync + 'static) {
    static N: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    N.store(0, std::sync::atomic::Ordering::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(std::env::var("PB").unwrap().parse().unwrap());
    let t = std::time::Instant::now();
    builder.max_duration = Some(std::time::Duration::from_secs(200));
    builder.check(move || { N.fetch_add(1, std::sync::atomic::Ordering::Relaxed); what() });
    println!("iterations {} in {:?}", N.load(std::sync::atomic::Ordering::Relaxed), t.elapsed());
}

/// A clock, the host it runs on, and what is known of both beside them.
struct World {
    page: ClockPage,
    host: AtomicI64,
    /// Held by whoever changes the clock. Readers that have to wait do so here: they would spin for ever in the model.
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
            host: AtomicI64::new(0),
            lock: Mutex::new(()),
            published: Note::new(vec![(first, limit)]),
            seen: Note::new(VirtualInstant(0)),
        })
    }

    fn now(&self) -> RealInstant {
        RealInstant(self.host.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// The clock goes on `leap` later at `rate`.
    fn change(&self, rate: Rate, leap: Span) {
        let _lock = self.lock.lock().unwrap();
        let change = self.page.change();
        let real = self.now();
        let virt = change.current().virtual_at(real).min(change.limit()).plus(leap);
        let number = self.published.lock().unwrap().len();
        let (segment, limit) = state(number, real, virt, rate);
        self.published.lock().unwrap().push((segment, limit));
        change.set_limit(limit);
        change.publish(&segment);
    }

    fn look(&self) -> Snapshot {
        let before = *self.seen.lock().unwrap();
        let look = self.page.snapshot(|| self.now(), |_| drop(self.lock.lock()));
        let number = look.segment.boot.0 as usize;
        assert_eq!(self.published.lock().unwrap()[number], (look.segment, look.limit), "torn");
        assert_eq!(look.sequence as usize, 2 + 2 * number);
        assert!(look.real >= look.segment.real, "read before it began");
        self.has_seen(before, look.now());
        look
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
    let wall = WallTime { secs: tag, nanos: number as u32 };
    let limit = if rate == Rate::ONE { i64::MAX } else { 1_000_000 + tag };
    let segment = Segment { real, virt, pace: Pace::Running(rate), wall, boot: Span(tag) };
    (segment, VirtualInstant(limit))
}

fn rate(num: u64) -> Rate {
    Rate::new(num, 1).unwrap()
}

/// Two changes under two readers: no torn look, and no time that goes back, on either of them or from one to the other.
#[test]
fn readers_see_whole_states_and_never_go_back() {
    model(|| {
        let world = World::new();
        let readers = [(); READERS].map(|()| {
            let world = world.clone();
            thread::spawn(move || {
                world.look();
            })
        });
        world.change(rate(3), Span(0));
        if std::env::var("CH2").is_ok() { world.change(rate(2), Span(5)); }
        for reader in readers {
            reader.join().unwrap();
        }
        
    });
}
