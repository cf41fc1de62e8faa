//! Leaps over idle time: how much virtual time has been skipped on a clock, and when.
//!
//! `V(R) = segment(R) + leapt`. The sum stands beside the segments, so that a leap is one addition: no writer's lock, no
//! new state of the clock. It only grows: while nothing runs that could see it happen, or as the price of a read. It lies among
//! what programs can write; a clock believes it only from the moment its page says so ([`Skipping::believed`]).
//!
//! For the times of files it is remembered when which sum came to be. When the log is full every second entry goes: what
//! was leapt over in the gap is then told as leapt at its end.

use crate::instant::{RealInstant, Span};
use crate::sync::{fence, spin_loop, AtomicI64, AtomicU32, Ordering};

/// Leaps remembered.
#[cfg(not(loom))]
pub const LEAPS: usize = 2_048;
/// Few, so that the model stays small.
#[cfg(loom)]
pub const LEAPS: usize = 2;

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

/// How a clock goes about idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipping {
    /// What it does now.
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

#[repr(C)]
#[cfg_attr(loom, derive(Default))]
struct Logged {
    real: AtomicI64,
    leapt: AtomicI64,
}

/// The sum and the log, in shared memory.
#[repr(C, align(64))]
pub struct Leaps {
    leapt: AtomicI64,
    /// How many leaps there were.
    count: AtomicI64,
    /// Odd while the log is written.
    sequence: AtomicU32,
    /// Entries in the log.
    len: AtomicU32,
    log: [Logged; LEAPS],
}

#[cfg(loom)]
impl Default for Leaps {
    fn default() -> Self {
        Leaps {
            leapt: AtomicI64::default(),
            count: AtomicI64::default(),
            sequence: AtomicU32::default(),
            len: AtomicU32::default(),
            log: core::array::from_fn(|_| Logged::default()),
        }
    }
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

    /// Leaps by `by` from the sum `from`, at the real instant `at`. False, and nothing done, where another has leapt.
    pub fn leap(&self, from: Span, by: Span, at: RealInstant) -> bool {
        let sum = from.0.saturating_add(by.0);
        let done = self.leapt.compare_exchange(from.0, sum, Ordering::SeqCst, Ordering::Relaxed);
        if done.is_err() {
            return false;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.note(at, sum);
        true
    }

    /// Virtual time that reading a clock costs, where it costs something: no leap that is remembered.
    pub fn pay(&self, cost: Span) {
        self.leapt.fetch_add(cost.0, Ordering::SeqCst);
    }

    fn note(&self, at: RealInstant, sum: i64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let odd = sequence | 1;
        // Where another writes, or died in the middle, this leap is not remembered.
        if sequence == odd
            || self
                .sequence
                .compare_exchange(sequence, odd, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let mut len = (self.len.load(Ordering::Relaxed) as usize).min(LEAPS);
        if len == LEAPS {
            len /= 2;
            (0..len).for_each(|i| self.log[i].copy(&self.log[2 * i + 1]));
        }
        self.log[len].real.store(at.0, Ordering::Relaxed);
        self.log[len].leapt.store(sum, Ordering::Relaxed);
        self.len.store(len as u32 + 1, Ordering::Relaxed);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The sum as it was when the host's clock showed `real`.
    pub fn at(&self, real: RealInstant) -> Span {
        self.look_back(|log| match log.partition_point(|entry| entry.when() <= real) {
            0 => Span::ZERO,
            after => log[after - 1].sum(),
        })
    }

    /// The real instant at which a clock showed something, where `real_of` tells it for a sum of leaps: it falls with the
    /// sum. What was leapt over is told as the moment of the leap.
    pub fn real_of(&self, real_of: impl Fn(Span) -> RealInstant) -> RealInstant {
        self.look_back(|log| {
            let begun = |entry: &Logged| real_of(entry.sum()) >= entry.when();
            let after = log.partition_point(begun);
            let real = real_of(if after == 0 { Span::ZERO } else { log[after - 1].sum() });
            log.get(after).map_or(real, |next| real.min(next.when()))
        })
    }

    fn look_back<T>(&self, look: impl Fn(&[Logged]) -> T) -> T {
        /// A writer is done within microseconds; one that died is not waited for.
        const TRIES: u32 = 100_000;
        for attempt in 0.. {
            let sequence = self.sequence.load(Ordering::Acquire);
            let len = (self.len.load(Ordering::Relaxed) as usize).min(LEAPS);
            let found = look(&self.log[..len]);
            fence(Ordering::Acquire);
            let whole = sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence;
            if whole || attempt == TRIES {
                return found;
            }
            spin_loop();
        }
        unreachable!()
    }
}

impl Logged {
    fn when(&self) -> RealInstant {
        RealInstant(self.real.load(Ordering::Relaxed))
    }

    fn sum(&self) -> Span {
        Span(self.leapt.load(Ordering::Relaxed))
    }

    fn copy(&self, other: &Logged) {
        self.real.store(other.when().0, Ordering::Relaxed);
        self.leapt.store(other.sum().0, Ordering::Relaxed);
    }
}
