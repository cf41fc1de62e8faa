//! The clock page read by many threads while it changes, on this machine as it is.

#![cfg(not(loom))]

mod zeroed;

use lorentz_clock::{
    ClockPage, Pace, Policy, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime,
    NANOS_PER_SEC, SETTLE,
};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

const CHANGES: usize = 10_000;
const READERS: usize = 3;

/// The host's monotonic clock.
fn host() -> RealInstant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    RealInstant(START.elapsed().as_nanos() as i64)
}

fn give_way(tries: u32) {
    if tries > 64 {
        thread::yield_now();
    }
}

fn clock() -> Box<ClockPage> {
    // SAFETY: a page is nothing but atomics.
    let page: Box<ClockPage> = unsafe { zeroed::zeroed() };
    let start = Segment {
        real: host(),
        virt: VirtualInstant(0),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime::default(),
        boot: Span::ZERO,
    };
    page.initialise(&start, Rate::ONE, Policy::default(), WallTime::default());
    page
}

/// As the commands change a clock.
fn change(page: &ClockPage, how: impl FnOnce(&mut Segment)) {
    let change = page.change();
    let settled = host().plus(SETTLE);
    while host() < settled {
        std::hint::spin_loop();
    }
    let mut segment = change.current();
    segment.real = host();
    segment.virt = change.current().virtual_at(segment.real).min(change.limit());
    how(&mut segment);
    let limit = match segment.virt.0 % 7 {
        0 => segment.virt.plus(Span(20_000)),
        _ => VirtualInstant::NEVER,
    };
    change.set_limit(limit);
    change.publish(&segment);
}

/// Numbers that look random, the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn move_about(segment: &mut Segment, dice: &mut Dice) {
    let rate = |num, den| Pace::Running(Rate::new(num, den).expect("a valid rate"));
    match dice.below(10) {
        0..=3 => segment.pace = Pace::Running(Rate::ONE),
        4 => segment.pace = rate(1 + dice.below(1_000), 1),
        5 => segment.pace = rate(1, 1 + dice.below(1_000)),
        6 => segment.pace = rate(1 + dice.below(1_000), 1 + dice.below(1_000)),
        7 => segment.pace = Pace::Frozen,
        8 => segment.virt = segment.virt.plus(Span(dice.below(NANOS_PER_SEC as u64) as i64)),
        _ => segment.wall = segment.wall.plus(Span(dice.below(7_200) as i64 - 3_600)),
    }
}

/// Reads the short way where there is one; says whether there was.
fn read(page: &ClockPage) -> (VirtualInstant, bool) {
    while let Some((sequence, secs, nanos)) = page.ahead(false) {
        let real = host();
        if page.is_still(sequence) {
            return (VirtualInstant(real.0 + secs * NANOS_PER_SEC + nanos), true);
        }
    }
    (page.snapshot(host, give_way).now(), false)
}

#[test]
fn no_thread_sees_time_go_back_through_ten_thousand_changes() {
    let page = clock();
    let latest = AtomicI64::new(0);
    let ended = AtomicBool::new(false);
    let reads = [AtomicU64::new(0), AtomicU64::new(0)];
    let all_reads = || reads[0].load(Ordering::Relaxed) + reads[1].load(Ordering::Relaxed);
    let reader = || {
        while !ended.load(Ordering::Relaxed) {
            let before = latest.load(Ordering::SeqCst);
            let (now, short) = read(&page);
            assert!(now.0 >= before, "from {before} back to {}, short way: {short}", now.0);
            latest.fetch_max(now.0, Ordering::SeqCst);
            reads[usize::from(short)].fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let readers = [(); READERS].map(|()| scope.spawn(reader));
        let mut dice = Dice(0x4c6f_7265_6e74_7a21);
        for _ in 0..CHANGES {
            change(&page, |segment| move_about(segment, &mut dice));
            // However few processors there are: now and then let there be reads.
            let enough = all_reads() + u64::from(dice.below(20) == 0);
            while all_reads() < enough && !readers.iter().any(|reader| reader.is_finished()) {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("time went on");
        }
    });
    let [long, short] = reads.map(AtomicU64::into_inner);
    assert!(long > 100 && short > 100, "{long} reads the long way, {short} the short way");
}

/// Rates of which the lower term is one more than the upper: any other has been put together from two.
#[test]
fn rates_and_the_past_are_read_whole_while_they_change() {
    let begun = host();
    let page = clock();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !ended.load(Ordering::Relaxed) {
                let rate = page.rate();
                assert!(rate == Rate::ONE || rate.den() == rate.num() + 1, "{rate:?}");
                let now = host();
                let wall = page.wall_of(now).as_nanos();
                let at_most = i128::from(host().since(begun).0);
                assert!((0..=at_most).contains(&wall), "{wall} of {at_most}");
                reads += 1;
            }
            reads
        });
        for num in 0..CHANGES as u64 {
            let rate = Rate::new(1 + num, 2 + num).expect("a valid rate");
            change(&page, |segment| segment.pace = Pace::Running(rate));
            if num % 64 == 0 {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("all was whole") > 0, "nothing was read");
    });
}
