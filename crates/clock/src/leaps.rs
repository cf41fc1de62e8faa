//! Leaps over idle time: how much virtual time a clock has skipped, and when.
//!
//! `V(R) = segment(R) + leapt`. The sum stands beside the segments, so that a leap is one addition: it needs no writer's lock and
//! makes no new state of the clock. The sum only grows. It grows while no task runs that could see it happen, or as the price of
//! a clock read. The sum lies in memory that programs can write. A clock believes it only from the moment its page says so
//! ([`Skipping::leaps_enabled`]).
//!
//! For the times of files, a log remembers at which instant each sum was reached. It remembers each of the latest leaps. Of the
//! leaps before those it remembers every 32nd, of the leaps before those every 64th, and so on. A file written between two
//! remembered leaps shows the time of the later one, or of the earlier one.
//!
//! The log has no lock. An entry is three words. The last word is computed from the other two and the entry's number. A leaper
//! that is killed between the stores, or that a later leaper overtakes, leaves an entry that readers ignore.

use crate::failpoint::{failpoint, Failpoint, Failpoints};
use crate::instant::{RealInstant, Span};
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use core::ops::Range;
use size::{COARSE, EXACT, STRIDES};

#[cfg(not(loom))]
mod size {
    /// Number of latest leaps of which the log remembers each one.
    pub const EXACT: usize = 1_024;
    /// Exponents of two, one for each coarser level of the log: the level with exponent `s` remembers every 2^`s`-th leap.
    pub const STRIDES: super::Range<u32> = 5..26;
    /// Number of leaps that each coarser level remembers.
    pub const COARSE: usize = 48;
}

/// Small sizes, so that the model has few states.
#[cfg(loom)]
mod size {
    pub const EXACT: usize = 2;
    pub const STRIDES: super::Range<u32> = 1..2;
    pub const COARSE: usize = 2;
}

/// Number of log entries of all levels together.
pub const LEAP_LOG_LEN: usize = EXACT + (STRIDES.end - STRIDES.start) as usize * COARSE;

/// Whether the clock leaps over time in which all tasks only wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SkipMode {
    /// The clock does not leap.
    #[default]
    Off,
    /// The clock leaps, unless a task waits for something that the outside can bring.
    On,
    /// The clock leaps, even if a task waits for something that the outside can bring.
    Force,
}

/// How a clock treats idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipping {
    /// The mode in force.
    pub mode: SkipMode,
    /// Whether the clock adds [`Leaps`] to its time. Once true, it stays true.
    pub leaps_enabled: bool,
    /// Virtual time by which each clock read moves the clock, ns; zero for none.
    pub read_cost: Span,
}

impl SkipMode {
    /// Bit in the word of the mode: the clock believes leaps.
    pub(crate) const LEAPS_ENABLED: u32 = 1;
    /// Bit in the word of the mode: the clock stands while tasks run ([`crate::ClockPage::stands_while_tasks_run`]).
    pub(crate) const STANDS_WHILE_TASKS_RUN: u32 = 8;
    /// Bit in the word of the mode: the clock shows a time of its own in an experiment ([`crate::ClockPage::shows_own_time`]).
    pub(crate) const SHOWS_OWN_TIME: u32 = 16;

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
struct SharedLogEntry {
    real: AtomicI64,
    leapt: AtomicI64,
    /// [`seal`] of the other two words and the leap's number.
    seal: AtomicU64,
}

/// The sum of all leaps and the log, in shared memory.
#[repr(C, align(64))]
pub struct Leaps {
    leapt: AtomicI64,
    /// Number of leaps so far.
    count: AtomicI64,
    log: [SharedLogEntry; LEAP_LOG_LEN],
}

#[cfg(loom)]
impl Default for Leaps {
    fn default() -> Self {
        Leaps {
            leapt: AtomicI64::default(),
            count: AtomicI64::default(),
            log: core::array::from_fn(|_| SharedLogEntry::default()),
        }
    }
}

/// A leap that a reader has read from the log.
#[derive(Clone, Copy)]
struct LogEntry {
    when: RealInstant,
    sum: Span,
}

impl Leaps {
    /// Returns the virtual time skipped so far.
    #[inline(always)]
    pub fn sum(&self) -> Span {
        Span(self.leapt.load(Ordering::Acquire))
    }

    /// Returns the number of leaps so far.
    pub fn count(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds `cost` to the sum if it is above zero: the price of a clock read. The log does not remember it.
    pub fn add_read_cost(&self, cost: Span) {
        self.leapt.fetch_add(cost.0, Ordering::SeqCst);
    }

    /// Returns the sum at the instant when the host's clock showed `real`.
    pub fn at(&self, real: RealInstant) -> Span {
        let (before, _) = self.around(|leap| leap.when <= real);
        before.map_or(Span::ZERO, |leap| leap.sum)
    }

    /// Returns the real instant at which a clock showed some time.
    ///
    /// `real_of` computes that instant for a given sum of leaps; a larger sum must give an earlier instant. For a time that the
    /// clock leapt over, the result is the instant of the leap.
    pub fn real_of(&self, real_of: impl Fn(Span) -> RealInstant) -> RealInstant {
        let (before, after) = self.around(|leap| real_of(leap.sum) >= leap.when);
        let real = real_of(before.map_or(Span::ZERO, |leap| leap.sum));
        after.map_or(real, |next| real.min(next.when))
    }

    /// Returns two remembered leaps: the latest one for which `before` is true, and the earliest one after it.
    fn around(&self, before: impl Fn(&LogEntry) -> bool) -> (Option<LogEntry>, Option<LogEntry>) {
        let count = self.count.load(Ordering::Acquire).max(0) as u64;
        let mut after: Option<LogEntry> = None;
        for level in LeapLevel::all() {
            let numbers = level.numbers(count);
            let whole = |number| Some((number, self.load(level, number)?));
            let Some((number, first)) = numbers.clone().find_map(whole) else { continue };
            if before(&first) {
                let later = number + 1..numbers.end;
                let (found, next) = self.search(level, first, later, &before);
                let earlier = |next: &LogEntry| after.is_none_or(|after| next.when < after.when);
                return (Some(found), next.filter(earlier).or(after));
            }
            // All leaps that this level remembers came later. A coarser level goes further back, unless this level begins with
            // the first leap.
            after = Some(first);
            if number == 0 {
                break;
            }
        }
        (None, after)
    }

    /// Does the work of [`Leaps::around`] within one level, by binary search among `numbers`, which follow `first`. The leaps are
    /// in order, except those that several leapers made at the same moment.
    fn search(
        &self,
        level: LeapLevel,
        first: LogEntry,
        numbers: Range<u64>,
        before: &impl Fn(&LogEntry) -> bool,
    ) -> (LogEntry, Option<LogEntry>) {
        let Range { start: mut low, end: mut high } = numbers;
        let (mut found, mut next) = (first, None);
        while low < high {
            let middle = low + (high - low) / 2;
            // Skip entries that their leapers never completed.
            match (middle..high).find_map(|at| Some((at, self.load(level, at)?))) {
                Some((at, leap)) if before(&leap) => (found, low) = (leap, at + 1),
                Some((_, leap)) => (next, high) = (Some(leap), middle),
                None => high = middle,
            }
        }
        (found, next)
    }

    /// Returns leap `number` of a level if its entry is whole.
    fn load(&self, level: LeapLevel, number: u64) -> Option<LogEntry> {
        let entry = &self.log[level.index(number)];
        let seal_read = entry.seal.load(Ordering::Acquire);
        let real = entry.real.load(Ordering::Relaxed);
        let leapt = entry.leapt.load(Ordering::Relaxed);
        let whole = seal_read == seal(number << level.stride, real, leapt);
        whole.then_some(LogEntry { when: RealInstant(real), sum: Span(leapt) })
    }

    /// Adds `by` to the instant of each remembered leap. Nobody else uses the log meanwhile.
    pub(crate) fn rebase(&self, by: Span) {
        for level in LeapLevel::all() {
            for number in level.numbers(self.count().max(0) as u64) {
                let Some(leap) = self.load(level, number) else { continue };
                let entry = &self.log[level.index(number)];
                let when = leap.when.plus(by).0;
                entry.real.store(when, Ordering::Relaxed);
                let sealed = seal(number << level.stride, when, leap.sum.0);
                entry.seal.store(sealed, Ordering::Relaxed);
            }
        }
    }

    /// Leaps by `by` from the sum `from`, at the real instant `at`. Returns false, and changes nothing, if the sum is not `from`:
    /// another leaper was faster.
    pub(crate) fn leap(
        &self,
        failpoints: &Failpoints,
        from: Span,
        by: Span,
        at: RealInstant,
    ) -> bool {
        let sum = from.0.saturating_add(by.0);
        let done = self.leapt.compare_exchange(from.0, sum, Ordering::SeqCst, Ordering::Relaxed);
        if done.is_err() {
            return false;
        }
        failpoint(failpoints, Failpoint::LeapBeforeLog);
        let number = self.count.fetch_add(1, Ordering::AcqRel).max(0) as u64;
        for level in LeapLevel::all().take_while(|level| number.is_multiple_of(1 << level.stride)) {
            let entry = &self.log[level.index(number >> level.stride)];
            // The entry must not be valid while its words change: neither with the old words nor with the new ones.
            entry.seal.store(!seal(number, at.0, sum), Ordering::Relaxed);
            entry.real.store(at.0, Ordering::Release);
            failpoint(failpoints, Failpoint::LeapInLog);
            entry.leapt.store(sum, Ordering::Release);
            entry.seal.store(seal(number, at.0, sum), Ordering::Release);
        }
        true
    }
}

/// A level of the log: the latest leaps among every 2^stride-th one.
#[derive(Clone, Copy)]
struct LeapLevel {
    /// Exponent: the level remembers every 2^stride-th leap.
    stride: u32,
    begin: usize,
    len: usize,
}

impl LeapLevel {
    /// Returns all levels, the finest first.
    fn all() -> impl Iterator<Item = LeapLevel> {
        let coarse = STRIDES.enumerate().map(|(i, stride)| LeapLevel {
            stride,
            begin: EXACT + i * COARSE,
            len: COARSE,
        });
        core::iter::once(LeapLevel { stride: 0, begin: 0, len: EXACT }).chain(coarse)
    }

    fn index(self, number: u64) -> usize {
        self.begin + number as usize % self.len
    }

    /// Returns which leaps this level remembers after `count` leaps. The numbers count in steps of 2^stride leaps.
    fn numbers(self, count: u64) -> Range<u64> {
        let end = count.div_ceil(1 << self.stride);
        end.saturating_sub(self.len as u64)..end
    }
}

/// Computes the word that ties the words of a log entry together. It is no protection against forgery: programs can write the
/// log.
fn seal(number: u64, real: i64, leapt: i64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (number ^ 0x4c5a_6c65_6170).wrapping_mul(ODD) ^ real as u64;
    mixed.wrapping_mul(ODD).rotate_left(29) ^ (leapt as u64).wrapping_mul(ODD)
}
