//! What the short ways to read a clock need, computed once per change and not at each look.
//!
//! `elapsed * num / den`, rounded down, is here `elapsed * whole + (elapsed * part >> 64)`, with `whole = num / den` and `part`
//! the rest of that division in parts of 2^64, rounded up. The rounding adds less than `elapsed / 2^64` to a number whose
//! fraction is at most `1 - 1 / den`: as long as `elapsed < 2^64 / den` nothing changes before the point. Until then a short
//! way says exactly what the long one says, and where it would not it is closed.

use super::{AtomicI64, AtomicU32, AtomicU64, Ordering, Terms};
use crate::instant::{RealInstant, VirtualInstant, WallTime, NANOS_PER_SEC};
use crate::rate::Rate;
use crate::segment::Pace;

/// Which short way there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Way {
    /// None: leaps are part of the time.
    Long = 0,
    /// The clock runs at rate one without a limit: so much is to be added to the host's clock.
    Ahead = 1,
    /// The clock stands, or runs at rate one to a limit.
    Piece = 2,
    /// The clock runs at another rate.
    Dilated = 3,
}

/// With the sequence and the way one cache line.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Short {
    /// Seconds of the monotonic and of the wall clock: what they are ahead of the host's, or show where the piece begins.
    secs: [AtomicI64; 2],
    /// The nanoseconds of the same, 0..1e9.
    nanos: [AtomicU32; 2],
    /// Where the piece begins, the host's monotonic clock.
    begin: AtomicI64,
    /// For so many ns from there this holds.
    length: AtomicU64,
    whole: AtomicU64,
    part: AtomicU64,
}

impl Short {
    /// Writes down the short way under `terms`, and tells which it is.
    pub fn store(&self, terms: &Terms) -> Way {
        let Terms { segment, limit, .. } = terms;
        let (way, virt) = match segment.pace {
            Pace::Running(Rate::ONE) if *limit == VirtualInstant::NEVER => {
                (Way::Ahead, segment.virt.0 as i128 - segment.real.0 as i128)
            }
            pace => {
                self.store_piece(terms, pace);
                let way = match pace {
                    Pace::Running(Rate::ONE) | Pace::Frozen => Way::Piece,
                    Pace::Running(_) => Way::Dilated,
                };
                (way, segment.virt.min(*limit).0 as i128)
            }
        };
        let clocks = [virt, virt + segment.wall.as_nanos()].map(WallTime::from_nanos);
        for (place, shown) in clocks.iter().enumerate() {
            self.secs[place].store(shown.secs, Ordering::Relaxed);
            self.nanos[place].store(shown.nanos, Ordering::Relaxed);
        }
        way
    }

    fn store_piece(&self, terms: &Terms, pace: Pace) {
        let Terms { segment, limit, .. } = terms;
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
        self.begin.store(segment.real.0, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.whole.store(whole, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
    }

    /// Seconds and nanoseconds (0..1e9) as they were written down, of the monotonic clock or the wall clock.
    #[inline(always)]
    pub fn load(&self, wall: bool) -> (i64, i64) {
        let place = wall as usize;
        let nanos = self.nanos[place].load(Ordering::Relaxed);
        (self.secs[place].load(Ordering::Relaxed), i64::from(nanos))
    }

    /// What the clock shows at `real`, as seconds and nanoseconds; none before the piece and after its length.
    #[inline(always)]
    pub fn piece_at(&self, real: RealInstant, wall: bool) -> Option<(i64, i64)> {
        // Before the piece this is negative: as a number without a sign, beyond any length.
        let elapsed = real.0.wrapping_sub(self.begin.load(Ordering::Relaxed)) as u64;
        if elapsed >= self.length.load(Ordering::Relaxed) {
            return None;
        }
        let part = u128::from(elapsed) * u128::from(self.part.load(Ordering::Relaxed));
        // Torn terms are thrown away by the sequence check.
        let whole = elapsed.wrapping_mul(self.whole.load(Ordering::Relaxed));
        let (secs, nanos) = self.load(wall);
        let nanos = (nanos as u64).wrapping_add(whole).wrapping_add((part >> 64) as u64);
        /// A second, ns.
        const SECOND: u64 = NANOS_PER_SEC as u64;
        // The pieces of an experiment are too short for a division to be worth it.
        let gone = match nanos {
            0..SECOND => 0,
            _ => nanos / SECOND,
        };
        Some((secs.wrapping_add(gone as i64), (nanos - gone * SECOND) as i64))
    }
}
