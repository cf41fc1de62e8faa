//! Leaps over idle time: how much virtual time has been skipped on a clock, and when.
//!
//! `V(R) = segment(R) + leapt`. The sum stands beside the segments, so that a leap is one addition: no writer's lock, no
//! new state of the clock. It only grows: while nothing runs that could see it happen, or as the price of a read. It lies among
//! what programs can write; a clock believes it only from the moment its page says so ([`Skipping::believed`]).
//!
//! For the times of files a log remembers when which sum came to be: the latest leaps each, of the older ones every 32nd, of those
//! before every 64th, and so on. A file written between two leaps that are remembered shows the time of the later one, or of the
//! earlier one.
//!
//! Nobody holds the log. An entry is three words, the last of which is computed from the other two and its number: a leaper
//! that is killed between them, or overtaken by a later one, leaves an entry that readers leave out.

use crate::failpoint::{failpoint, Failpoint};
use crate::instant::{RealInstant, Span};
use crate::registry::Registry;
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use core::ops::Range;
use size::{COARSE, EXACT, STRIDES};

#[cfg(not(loom))]
mod size {
    /// The latest leaps, of which each is remembered.
    pub const EXACT: usize = 1_024;
    /// Powers of two: every so many leaps are remembered for longer, ...
    pub const STRIDES: super::Range<u32> = 5..26;
    /// ... the latest so many of each.
    pub const COARSE: usize = 48;
}

/// Few, so that the model stays small.
#[cfg(loom)]
mod size {
    pub const EXACT: usize = 2;
    pub const STRIDES: super::Range<u32> = 1..2;
    pub const COARSE: usize = 2;
}

/// Leaps remembered.
pub const LEAPS: usize = EXACT + (STRIDES.end - STRIDES.start) as usize * COARSE;

/// Whether time leaps over what everybody only waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SkipMode {
    /// It does not.
    #[default]
    Off,
    /// It does, unless somebody waits for something that the outside can bring.
    On,
    /// It does, whatever the outside may bring.
    Force,
}

/// How a clock treats idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipping {
    /// The mode now.
    pub mode: SkipMode,
    /// Whether it has ever skipped: then [`Leaps`] are part of its time, for good.
    pub believed: bool,
    /// Virtual time that each read of a clock costs the program that reads; zero: none.
    pub read_cost: Span,
}

impl SkipMode {
    /// In the same word: leaps are believed.
    pub(crate) const BELIEVED: u32 = 1;

    pub(crate) fn to_bits(self) -> u32 {
        match self {
            SkipMode::Off => 0,
            SkipMode::On => 2,
            SkipMode::Force => 4,
        }
    }

    pub(crate) fn from_bits(bits: u32) -> SkipMode {
        match bits & 6 {
            2 => SkipMode::On,
            4 => SkipMode::Force,
            _ => SkipMode::Off,
        }
    }
}

/// A leap in the log.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
struct Logged {
    real: AtomicI64,
    leapt: AtomicI64,
    /// [`seal`] of the other two and the leap's number.
    seal: AtomicU64,
}

/// The sum and the log, in shared memory.
#[repr(C, align(64))]
pub struct Leaps {
    leapt: AtomicI64,
    /// How many leaps there were.
    count: AtomicI64,
    log: [Logged; LEAPS],
}

#[cfg(loom)]
impl Default for Leaps {
    fn default() -> Self {
        Leaps {
            leapt: AtomicI64::default(),
            count: AtomicI64::default(),
            log: core::array::from_fn(|_| Logged::default()),
        }
    }
}

/// A leap that was read from the log.
#[derive(Clone, Copy)]
struct Leap {
    when: RealInstant,
    sum: Span,
}

impl Leaps {
    /// Virtual time skipped so far.
    #[inline(always)]
    pub fn sum(&self) -> Span {
        Span(self.leapt.load(Ordering::Acquire))
    }

    /// How many leaps there were.
    pub fn count(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Virtual time that reading a clock costs, where it costs something: no leap that is remembered.
    pub fn pay(&self, cost: Span) {
        self.leapt.fetch_add(cost.0, Ordering::SeqCst);
    }

    /// The sum as it was when the host's clock showed `real`.
    pub fn at(&self, real: RealInstant) -> Span {
        let (before, _) = self.around(|leap| leap.when <= real);
        before.map_or(Span::ZERO, |leap| leap.sum)
    }

    /// The real instant at which a clock showed something, where `real_of` tells it for a sum of leaps: it falls with the
    /// sum. For what was leapt over: the moment of the leap.
    pub fn real_of(&self, real_of: impl Fn(Span) -> RealInstant) -> RealInstant {
        let (before, after) = self.around(|leap| real_of(leap.sum) >= leap.when);
        let real = real_of(before.map_or(Span::ZERO, |leap| leap.sum));
        after.map_or(real, |next| real.min(next.when))
    }

    /// The latest leap remembered that was `before` something, and the earliest one remembered after it.
    fn around(&self, before: impl Fn(&Leap) -> bool) -> (Option<Leap>, Option<Leap>) {
        let count = self.count.load(Ordering::Acquire).max(0) as u64;
        let mut after: Option<Leap> = None;
        for level in Level::all() {
            let numbers = level.numbers(count);
            let whole = |number| Some((number, self.load(level, number)?));
            let Some((number, first)) = numbers.clone().find_map(whole) else { continue };
            if before(&first) {
                let later = number + 1..numbers.end;
                let (found, next) = self.search(level, first, later, &before);
                let earlier = |next: &Leap| after.is_none_or(|after| next.when < after.when);
                return (Some(found), next.filter(earlier).or(after));
            }
            // All that this level remembers came later. A coarser one goes further back, unless this one begins with the first.
            after = Some(first);
            if number == 0 {
                break;
            }
        }
        (None, after)
    }

    /// The same within a level, among `numbers` that follow `first`, by halves: leaps are in order, but for those that leapt at
    /// the same moment.
    fn search(
        &self,
        level: Level,
        first: Leap,
        numbers: Range<u64>,
        before: &impl Fn(&Leap) -> bool,
    ) -> (Leap, Option<Leap>) {
        let Range { start: mut low, end: mut high } = numbers;
        let (mut found, mut next) = (first, None);
        while low < high {
            let middle = low + (high - low) / 2;
            // Where an entry was never completed, the next one that was.
            match (middle..high).find_map(|at| Some((at, self.load(level, at)?))) {
                Some((at, leap)) if before(&leap) => (found, low) = (leap, at + 1),
                Some((_, leap)) => (next, high) = (Some(leap), middle),
                None => high = middle,
            }
        }
        (found, next)
    }

    /// Leap `number` of a level, if its entry is whole.
    fn load(&self, level: Level, number: u64) -> Option<Leap> {
        let entry = &self.log[level.place(number)];
        let seal_read = entry.seal.load(Ordering::Acquire);
        let real = entry.real.load(Ordering::Relaxed);
        let leapt = entry.leapt.load(Ordering::Relaxed);
        let whole = seal_read == seal(number << level.stride, real, leapt);
        whole.then_some(Leap { when: RealInstant(real), sum: Span(leapt) })
    }
}

impl Registry {
    /// Leaps by `by` from the sum `from`, at the real instant `at`. False, and nothing done, where another has leapt.
    pub fn leap(&self, from: Span, by: Span, at: RealInstant) -> bool {
        let leaps = &self.leaps;
        let sum = from.0.saturating_add(by.0);
        let done = leaps.leapt.compare_exchange(from.0, sum, Ordering::SeqCst, Ordering::Relaxed);
        if done.is_err() {
            return false;
        }
        failpoint(self, Failpoint::LeapBeforeLog);
        let number = leaps.count.fetch_add(1, Ordering::AcqRel).max(0) as u64;
        for level in Level::all().take_while(|level| number.is_multiple_of(1 << level.stride)) {
            let entry = &leaps.log[level.place(number >> level.stride)];
            // Not valid while it is written: neither by its old words nor by the new ones.
            entry.seal.store(!seal(number, at.0, sum), Ordering::Relaxed);
            entry.real.store(at.0, Ordering::Release);
            failpoint(self, Failpoint::LeapInLog);
            entry.leapt.store(sum, Ordering::Release);
            entry.seal.store(seal(number, at.0, sum), Ordering::Release);
        }
        true
    }
}

/// A part of the log: every so many leaps, the latest of them.
#[derive(Clone, Copy)]
struct Level {
    /// Every 2^stride leaps.
    stride: u32,
    begin: usize,
    len: usize,
}

impl Level {
    /// From the finest to the coarsest.
    fn all() -> impl Iterator<Item = Level> {
        let coarse = STRIDES.enumerate().map(|(i, stride)| Level {
            stride,
            begin: EXACT + i * COARSE,
            len: COARSE,
        });
        core::iter::once(Level { stride: 0, begin: 0, len: EXACT }).chain(coarse)
    }

    fn place(self, number: u64) -> usize {
        self.begin + number as usize % self.len
    }

    /// The leaps of this level that are remembered of `count` leaps, by their numbers in strides.
    fn numbers(self, count: u64) -> Range<u64> {
        let end = count.div_ceil(1 << self.stride);
        end.saturating_sub(self.len as u64)..end
    }
}

/// Ties the words of an entry together. Not against forgery: the log lies among what programs can write.
fn seal(number: u64, real: i64, leapt: i64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (number ^ 0x4c5a_6c65_6170).wrapping_mul(ODD) ^ real as u64;
    mixed.wrapping_mul(ODD).rotate_left(29) ^ (leapt as u64).wrapping_mul(ODD)
}
