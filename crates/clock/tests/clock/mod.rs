//! A clock in memory. A test chooses the time that the clock's host shows.

#![allow(dead_code)]

use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};
use std::cell::Cell;

use proptest::prelude::*;

use lorentz_clock::{
    Change, ClockPage, FastClock, Pace, Policy, Published, Rate, RealInstant, Registry, Segment,
    Snapshot, Span, VirtualInstant, WallTime, NANOS_PER_SEC,
};

pub const DAY: i64 = 86_400 * NANOS_PER_SEC;
pub const YEAR: i64 = 365 * DAY;

/// Returns `num/den`, which must be a valid rate.
pub fn rate(num: u64, den: u64) -> Rate {
    Rate::new(num, den).expect("a valid rate")
}

/// Returns the piece at which the tests' clocks start.
pub fn start() -> Segment {
    Segment {
        real: RealInstant(1_000),
        virt: VirtualInstant(50_000),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime { secs: 2_000_000_000, nanos: 999_999_999 },
        boot: Span(7),
    }
}

/// Any pace that a piece may have.
pub fn any_pace() -> impl Strategy<Value = Pace> {
    prop_oneof![
        2 => Just(Pace::Running(Rate::ONE)),
        1 => Just(Pace::Frozen),
        2 => (1..=1000_u64, 1..=1000_u64).prop_map(|(num, den)| Pace::Running(rate(num, den))),
    ]
}

/// Allocates zeroed memory, which is what a new file of a clock contains.
///
/// # Safety
///
/// All zeroes must be a value of `T`.
pub unsafe fn zeroed<T>() -> Box<T> {
    let layout = Layout::new::<T>();
    // SAFETY: none of the types is of size zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the memory was just allocated for a `T`. The caller guarantees that zeroes are a `T`.
    unsafe { Box::from_raw(memory.cast()) }
}

pub fn blank_page() -> Box<ClockPage> {
    // SAFETY: a page consists only of atomics.
    unsafe { zeroed() }
}

pub fn blank_registry() -> Box<Registry> {
    // SAFETY: a registry consists only of atomics.
    unsafe { zeroed() }
}

/// Makes a blank page a clock at rate one that starts at `real` with virtual time zero.
pub fn start_at(page: &ClockPage, real: RealInstant) {
    let start = Segment {
        real,
        virt: VirtualInstant(0),
        pace: Pace::Running(Rate::ONE),
        wall: WallTime::default(),
        boot: Span::ZERO,
    };
    page.initialise(&start, Rate::ONE, Policy::default(), WallTime::default());
}

/// A clock, and the host's time that every look at the clock takes.
pub struct Clock {
    pub page: Box<ClockPage>,
    pub registry: Box<Registry>,
    pub real: Cell<i64>,
}

impl Clock {
    pub fn new(start: &Segment) -> Clock {
        let page = blank_page();
        page.initialise(start, Rate::ONE, Policy::default(), WallTime::default());
        Clock { page, registry: blank_registry(), real: Cell::new(start.real.0) }
    }

    /// Looks at the clock when the host's clock shows `real`.
    pub fn look(&self, real: i64) -> Snapshot {
        self.page.snapshot(&self.registry, &|| RealInstant(real))
    }

    /// Publishes a change when the host's clock shows `real`.
    pub fn change(&self, real: i64, how: impl FnOnce(&mut Change)) -> Published {
        self.real.set(real);
        let mut change = Change::of(&self.look(real).piece());
        how(&mut change);
        let host = || RealInstant(real);
        self.page.publish(&self.registry, &host, &change).expect("there is room")
    }

    /// Reads the fast path at `real`: seconds and nanoseconds.
    pub fn fast(&self, real: i64, clock: FastClock, lags: bool) -> Option<(i64, i64)> {
        let (secs, nanos) = (real.div_euclid(1_000_000_000), real.rem_euclid(1_000_000_000));
        self.page.fast().at(&self.page, secs, nanos, clock, lags).expect("nobody changes it")
    }
}

/// Pseudo-random numbers: the same sequence for the same seed, which must not be 0.
pub struct Random(pub u64);

impl Random {
    /// Returns a number in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
