//! The fast path of a clock read: a writer computes its terms once for each change, so that no read computes them.
//!
//! `elapsed * num / den`, rounded down, is `elapsed * whole + (elapsed * part >> 64)`. Here `whole` is `num / den`, and `part` is
//! the rest of that division in parts of 2^64, rounded up. The rounding adds less than `elapsed / 2^64` to a number whose
//! fraction is at most `1 - 1 / den`. As long as `elapsed < 2^64 / den`, it changes no digit before the point. Until then the
//! fast path shows exactly what the slow path shows. From then on the fast path is closed.

use super::piece::Piece;
use super::shift::add;
use crate::instant::{RealInstant, Span, VirtualInstant, WallTime, NANOS_PER_SEC};
use crate::rate::Rate;
use crate::segment::Pace;
use crate::sync::{unmodelled, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The kind of terms that the fast path has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum FastTerms {
    /// No terms: the start of the latest change is not decided yet ([`crate::Start`]).
    Undecided = 0,
    /// No terms: leaps over idle time are part of the clock, or it stands while tasks run.
    Slow = 1,
    /// An offset to the host's clock: the clock runs at rate one, without a limit and without a change to come.
    Offset = 2,
    /// A straight line from `begin` on, for `length` ns.
    Linear = 3,
}

/// The fast path of one version of the clock: one cache line, except for the offset of CLOCK_BOOTTIME.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct FastPath {
    /// A [`FastTerms`]. The writer stores it last: all other words belong to it.
    terms: AtomicU32,
    /// Nanoseconds (0..1e9) of the monotonic and of the wall clock. They are the offset to the host's clock, or the time at
    /// `begin`.
    nanos: [AtomicU32; 2],
    unused: AtomicU32,
    /// The seconds that go with `nanos`.
    secs: [AtomicI64; 2],
    /// Start of the piece, ns of the host's monotonic clock.
    begin: AtomicI64,
    /// Time after `begin` for which the terms hold, real ns.
    length: AtomicU64,
    whole: AtomicU64,
    part: AtomicU64,
    // The words from here on lie behind the cache line.
    /// The offset of CLOCK_BOOTTIME to the monotonic clock, ns.
    boot: unmodelled::AtomicI64,
}

/// A clock that the fast path can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastClock {
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_REALTIME.
    Wall,
    /// CLOCK_BOOTTIME.
    Boot,
}

impl FastPath {
    /// Closes the fast path until the start of the latest change is decided. The caller uses it on a view that no reader sees
    /// yet.
    pub fn close(&self) {
        self.terms.store(FastTerms::Undecided as u32, Ordering::Relaxed);
    }

    /// Whether the start of the latest change has still to be decided.
    #[inline(always)]
    pub fn is_undecided(&self) -> bool {
        self.terms.load(Ordering::Acquire) == FastTerms::Undecided as u32
    }

    /// Adds `by` to the start of a piece that stands still.
    pub fn rebase(&self, by: Span) {
        add(&self.begin, by);
    }

    /// Returns the start of the piece that the fast path belongs to.
    pub fn begins(&self) -> RealInstant {
        RealInstant(self.begin.load(Ordering::Relaxed))
    }

    /// Opens the fast path for `piece`, which is in force until `until`; or closes it, if all reads are to be `slow`.
    pub fn open(&self, piece: &Piece, until: RealInstant, slow: bool) {
        let Piece { segment, limit, .. } = piece;
        self.begin.store(segment.real.0, Ordering::Relaxed);
        self.boot.store(segment.boot.0, Ordering::Relaxed);
        let (terms, virt) = match segment.pace {
            _ if slow => (FastTerms::Slow, 0),
            Pace::Running(Rate::ONE)
                if *limit == VirtualInstant::NEVER && until == RealInstant::NEVER =>
            {
                (FastTerms::Offset, i128::from(segment.virt.0) - i128::from(segment.real.0))
            }
            pace => {
                self.store_line(piece, pace, until);
                (FastTerms::Linear, i128::from(segment.virt.min(*limit).0))
            }
        };
        let clocks = [virt, virt + segment.wall.as_nanos()].map(WallTime::from_nanos);
        for (clock_index, shown) in clocks.iter().enumerate() {
            self.secs[clock_index].store(shown.secs, Ordering::Relaxed);
            self.nanos[clock_index].store(shown.nanos, Ordering::Relaxed);
        }
        self.terms.store(terms as u32, Ordering::Release);
    }

    fn store_line(&self, piece: &Piece, pace: Pace, until: RealInstant) {
        let Piece { segment, limit, .. } = piece;
        const EVER: u64 = i64::MAX as u64;
        let (length, whole, part) = match pace {
            Pace::Running(rate) if segment.virt < *limit => {
                let (num, den) = (rate.num(), rate.den());
                let until_limit = segment.real_at(*limit).since(segment.real).0.max(0) as u64;
                let part = (u128::from(num % den) << 64).div_ceil(u128::from(den)) as u64;
                let exact = (u64::MAX / den).min(EVER / (num / den + 1));
                (until_limit.min(exact), num / den, part)
            }
            _ => (EVER, 0, 0),
        };
        let until_next = until.since(segment.real).0.max(0) as u64;
        self.length.store(length.min(until_next), Ordering::Relaxed);
        self.whole.store(whole, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
    }

    /// Returns what `clock` shows when the host's monotonic clock shows `secs` and `nanos`, as seconds and nanoseconds (0..1e9).
    ///
    /// `None` means that the caller has to take the slow path. `lags` says that the host's clock is a coarse one, which may still
    /// show a time before the piece began. The caller discards the result if the version of the clock has changed meanwhile.
    #[inline(always)]
    pub fn at(&self, secs: i64, nanos: i64, clock: FastClock, lags: bool) -> Option<(i64, i64)> {
        let (secs, nanos) = self.stored(secs, nanos, clock == FastClock::Wall, lags)?;
        if clock != FastClock::Boot {
            return Some((secs, nanos));
        }
        let nanos = nanos.wrapping_add(self.boot.load(Ordering::Relaxed));
        Some((secs + nanos.div_euclid(NANOS_PER_SEC), nanos.rem_euclid(NANOS_PER_SEC)))
    }

    /// Returns one of the two clocks whose terms are stored.
    #[inline(always)]
    fn stored(&self, secs: i64, nanos: i64, wall: bool, lags: bool) -> Option<(i64, i64)> {
        let terms = self.terms.load(Ordering::Acquire);
        let clock_index = wall as usize;
        if terms == FastTerms::Offset as u32 {
            if lags && secs * NANOS_PER_SEC + nanos < self.begin.load(Ordering::Relaxed) {
                return None;
            }
            let nanos = nanos + i64::from(self.nanos[clock_index].load(Ordering::Relaxed));
            let carry = (nanos >= NANOS_PER_SEC) as i64;
            let secs = secs + self.secs[clock_index].load(Ordering::Relaxed) + carry;
            return Some((secs, nanos - carry * NANOS_PER_SEC));
        }
        if terms != FastTerms::Linear as u32 {
            return None;
        }
        self.on_line(secs * NANOS_PER_SEC + nanos, clock_index)
    }

    /// Computes one of the two clocks on the straight line; `None` before the piece and after its length.
    #[inline(always)]
    fn on_line(&self, real: i64, clock_index: usize) -> Option<(i64, i64)> {
        // Before the piece this difference is negative: as an unsigned number it exceeds any length.
        let elapsed = real.wrapping_sub(self.begin.load(Ordering::Relaxed)) as u64;
        if elapsed >= self.length.load(Ordering::Relaxed) {
            return None;
        }
        let part = u128::from(elapsed) * u128::from(self.part.load(Ordering::Relaxed));
        // The check of the version discards torn terms.
        let whole = elapsed.wrapping_mul(self.whole.load(Ordering::Relaxed));
        let nanos = u64::from(self.nanos[clock_index].load(Ordering::Relaxed));
        let nanos = nanos.wrapping_add(whole).wrapping_add((part >> 64) as u64);
        /// One second, ns.
        const SECOND: u64 = NANOS_PER_SEC as u64;
        // The pieces of an experiment are so short that a division is rarely needed here.
        let gone = match nanos {
            0..SECOND => 0,
            _ => nanos / SECOND,
        };
        let secs = self.secs[clock_index].load(Ordering::Relaxed).wrapping_add(gone as i64);
        Some((secs, (nanos - gone * SECOND) as i64))
    }
}
