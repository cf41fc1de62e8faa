//! Many threads read the clock page while it changes, on the real processors of this machine.

#![cfg(not(loom))]

mod clock;

use clock::{blank_page, blank_registry, start_at, Random, DAY};
use lorentz_clock::{
    Change, ClockPage, FastClock, Pace, Rate, RealInstant, Registry, Span, VirtualInstant,
    NANOS_PER_SEC,
};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

const CHANGES: usize = 10_000;
const READERS: usize = 3;

/// Reads the host's monotonic clock.
fn host() -> RealInstant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    RealInstant(START.elapsed().as_nanos() as i64)
}

struct Clock {
    page: Box<ClockPage>,
    registry: Box<Registry>,
}

fn clock() -> Clock {
    let page = blank_page();
    start_at(&page, host());
    Clock { page, registry: blank_registry() }
}

impl Clock {
    /// Changes the clock as the commands do.
    fn change(&self, how: impl FnOnce(&mut Change)) {
        let look = self.page.snapshot(&self.registry, &host);
        let mut change = Change::of(&look.piece());
        change.limit = match look.now().0 % 7 {
            0 => look.now().plus(Span(20_000)),
            _ => VirtualInstant::NEVER,
        };
        how(&mut change);
        // If too many changes are to come, this one is not made.
        let _ = self.page.publish(&self.registry, &host, &change);
        self.page.refresh(&self.registry, &host);
    }

    /// Reads the clock, by the fast path if it is open. Returns the time, and whether the fast path was open.
    fn read(&self) -> (VirtualInstant, bool) {
        loop {
            let look = self.page.fast();
            let real = host().0;
            let (secs, nanos) = (real / NANOS_PER_SEC, real % NANOS_PER_SEC);
            match look.at(&self.page, secs, nanos, FastClock::Monotonic, false) {
                Err(_) => (),
                Ok(Some((secs, nanos))) => {
                    return (VirtualInstant(secs * NANOS_PER_SEC + nanos), true)
                }
                Ok(None) => return (self.page.snapshot(&self.registry, &host).now(), false),
            }
        }
    }
}

fn move_about(change: &mut Change, random: &mut Random) {
    let rate = |num, den| Pace::Running(Rate::new(num, den).expect("a valid rate"));
    match random.below(10) {
        0..=3 => change.pace = Pace::Running(Rate::ONE),
        4 => change.pace = rate(1 + random.below(1_000), 1),
        5 => change.pace = rate(1, 1 + random.below(1_000)),
        6 => change.pace = rate(1 + random.below(1_000), 1 + random.below(1_000)),
        7 => change.pace = Pace::Frozen,
        8 => change.leap = Span(random.below(NANOS_PER_SEC as u64) as i64),
        _ => change.wall = change.wall.plus(Span(random.below(7_200) as i64 - 3_600)),
    }
    if random.below(8) == 0 {
        change.at = host().plus(Span(random.below(50_000) as i64));
    }
}

#[test]
fn no_thread_sees_time_go_back_through_ten_thousand_changes() {
    let clock = clock();
    let latest = AtomicI64::new(0);
    let ended = AtomicBool::new(false);
    let reads = [AtomicU64::new(0), AtomicU64::new(0)];
    let all_reads = || reads[0].load(Ordering::Relaxed) + reads[1].load(Ordering::Relaxed);
    let reader = || {
        while !ended.load(Ordering::Relaxed) {
            let before = latest.load(Ordering::SeqCst);
            let (now, fast) = clock.read();
            assert!(now.0 >= before, "from {before} back to {}, fast path: {fast}", now.0);
            latest.fetch_max(now.0, Ordering::SeqCst);
            reads[usize::from(fast)].fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let readers = [(); READERS].map(|()| scope.spawn(reader));
        let mut random = Random(0x4c6f_7265_6e74_7a21);
        for _ in 0..CHANGES {
            clock.change(|change| move_about(change, &mut random));
            // On a machine with few processors, wait now and then until the readers have read.
            let enough = all_reads() + u64::from(random.below(20) == 0);
            while all_reads() < enough && !readers.iter().any(|reader| reader.is_finished()) {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("time went on");
        }
    });
    let [slow, fast] = reads.map(AtomicU64::into_inner);
    assert!(slow > 100 && fast > 100, "{slow} reads by the slow path, {fast} by the fast one");
}

/// The denominator of each rate is the numerator plus one. Any other rate would be torn: made of two rates.
#[test]
fn rates_and_the_past_are_read_whole_while_they_change() {
    let begun = host();
    let clock = clock();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !ended.load(Ordering::Relaxed) {
                let rate = clock.page.snapshot(&clock.registry, &host).rate;
                assert!(rate == Rate::ONE || rate.den() == rate.num() + 1, "{rate:?}");
                let wall = clock.page.wall_of(&clock.registry, host()).as_nanos();
                let at_most = i128::from(host().since(begun).0);
                assert!((0..=at_most).contains(&wall), "{wall} of {at_most}");
                reads += 1;
            }
            reads
        });
        for num in 0..CHANGES as u64 {
            let rate = Rate::new(1 + num, 2 + num).expect("a valid rate");
            clock.change(|change| {
                (change.pace, change.limit) = (Pace::Running(rate), VirtualInstant::NEVER)
            });
            if num % 64 == 0 {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("all was whole") > 0, "nothing was read");
    });
}

/// Writes versions and instants of every kind into the start of the latest change, as a program can, until `ended`.
fn scribble(clock: &Clock, ended: &AtomicBool) {
    let start = ptr::from_ref(&clock.registry.start).cast::<u64>().cast_mut();
    let [version, instant] = [0, 1].map(|index| {
        // SAFETY: the start is two words, which last as long as the clock, and which are changed by atomic instructions alone.
        unsafe { AtomicU64::from_ptr(start.add(index)) }
    });
    let mut random = Random(0x4c6f_7265_6e74_7a21);
    while !ended.load(Ordering::Relaxed) {
        let now = host().0;
        let instants = [i64::MIN, i64::MIN + 1, i64::MIN + 2, -1, 0, now, now + DAY, i64::MAX];
        let wild = instants[random.below(instants.len() as u64) as usize];
        if random.below(4) == 0 {
            version.store(clock.page.version() + random.below(3), Ordering::Relaxed);
        }
        instant.store(wild as u64, Ordering::Relaxed);
    }
}

/// All rates are from a quarter to four, so virtual time stays between a quarter and four times the time that has passed.
#[test]
fn a_program_that_writes_the_start_makes_no_read_wait_or_go_astray() {
    const FASTEST: i64 = 4;
    /// Readings of the host's clock in one look, at most.
    const READINGS: u64 = 3;
    let begun = host();
    let clock = clock();
    let created = host();
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = || {
        reads.fetch_add(1, Ordering::Relaxed);
        let (version, before, readings) = (clock.page.version(), host(), Cell::new(0));
        let counting = || {
            readings.set(readings.get() + 1);
            host()
        };
        let now = clock.page.snapshot(&clock.registry, &counting).now().0;
        let published = clock.page.version() - version;
        let readings = readings.get();
        assert!(readings <= READINGS * (1 + published), "{readings} through {published} changes");
        // Each change rounds down.
        let earliest = before.since(created).0 / FASTEST - published as i64 - CHANGES as i64;
        let latest = host().since(begun).0 * FASTEST;
        assert!((earliest..=latest).contains(&now), "{now} of {earliest} to {latest}");
        let (now, _) = clock.read();
        assert!((earliest..=host().since(begun).0 * FASTEST).contains(&now.0), "{now:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| scribble(&clock, &ended));
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    read();
                }
            })
        });
        let mut random = Random(1);
        for number in 0..CHANGES {
            clock.change(|change| {
                let rate = Rate::new(250 + random.below(3_751), 1_000).expect("1/4 to 4");
                // Without a limit, at which the clock would stand until the next change.
                (change.pace, change.limit) = (Pace::Running(rate), VirtualInstant::NEVER);
                if random.below(8) == 0 {
                    change.at = host().plus(Span(random.below(50_000) as i64));
                }
            });
            let enough = reads.load(Ordering::Relaxed) + u64::from(number % 20 == 0);
            let failed = || readers.iter().any(|reader| reader.is_finished());
            while reads.load(Ordering::Relaxed) < enough && !failed() {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("all was in bounds");
        }
    });
}
