//! The map from real to virtual time between two changes of a clock.

use crate::instant::{saturate, RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;

/// How fast virtual time passes within a segment: at a [`Rate`], or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Time runs.
    Running(Rate),
    /// Time stands still.
    Frozen,
}

/// One straight piece of a virtual clock: `V(R) = virt + (R - real) * pace`, from `real` on.
///
/// All arithmetic is whole nanoseconds with 128 bits in the middle. Results are held within `i64`,
/// the kernel's own range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it begins, on the host's CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// The virtual CLOCK_MONOTONIC there.
    pub virt: VirtualInstant,
    /// How fast it runs.
    pub pace: Pace,
    /// What wall time (CLOCK_REALTIME) is ahead of the virtual CLOCK_MONOTONIC.
    pub wall: WallTime,
    /// What CLOCK_BOOTTIME is ahead of the virtual CLOCK_MONOTONIC.
    pub boot: Span,
}

impl Segment {
    /// Virtual time at `real`, rounded down. Before the segment begins it is the segment's start.
    ///
    /// ```
    /// use lorentz_clock::{Pace, Rate, RealInstant, Segment, Span, VirtualInstant, WallTime};
    /// let segment = Segment {
    ///     real: RealInstant(1_000), virt: VirtualInstant(5_000),
    ///     pace: Pace::Running(Rate::new(1, 10).unwrap()),
    ///     wall: WallTime::default(), boot: Span::ZERO,
    /// };
    /// assert_eq!(segment.virtual_at(RealInstant(1_109)), VirtualInstant(5_010));
    /// assert_eq!(segment.real_at(VirtualInstant(5_010)), RealInstant(1_100));
    /// ```
    #[inline(always)]
    pub fn virtual_at(&self, real: RealInstant) -> VirtualInstant {
        let elapsed = real.since(self.real).0;
        if elapsed <= 0 {
            return self.virt;
        }
        match self.pace {
            Pace::Frozen => self.virt,
            Pace::Running(rate) => {
                self.virt.plus(Span(scale(elapsed as u64, rate.num(), rate.den())))
            }
        }
    }

    /// The first real instant at which virtual time is `virt` or later; never, where the clock stands still before it.
    pub fn real_at(&self, virt: VirtualInstant) -> RealInstant {
        let ahead = virt.since(self.virt).0;
        if ahead <= 0 {
            return self.real;
        }
        match self.pace {
            Pace::Frozen => RealInstant::NEVER,
            Pace::Running(rate) => {
                let product = ahead as u128 * rate.den() as u128;
                let up = product.div_ceil(rate.num() as u128);
                RealInstant(saturate(self.real.0 as i128 + up.min(i64::MAX as u128) as i128))
            }
        }
    }

    /// A segment that begins as this one does and comes to where `next` begins at an even pace.
    pub(crate) fn evenly_until(self, next: &Segment) -> Segment {
        let virt = next.virt.since(self.virt).0.max(0) as u64;
        let real = next.real.since(self.real).0.max(1) as u64;
        // As exact as the terms of a rate can be.
        let surplus = (u64::BITS - virt.max(real).leading_zeros()).saturating_sub(50);
        let pace = Rate::new(virt >> surplus, real >> surplus);
        Segment { pace: pace.map_or(Pace::Frozen, Pace::Running), ..self }
    }

    /// Wall time at the virtual instant `virt`.
    pub fn wall_at(&self, virt: VirtualInstant) -> WallTime {
        self.wall.plus(Span(virt.0))
    }

    /// The virtual instant at which wall time is `wall`, held within the range of virtual time.
    pub fn virtual_at_wall(&self, wall: WallTime) -> VirtualInstant {
        VirtualInstant(saturate(wall.as_nanos() - self.wall.as_nanos()))
    }
}

/// `elapsed * num / den`, rounded down and held below `i64::MAX`.
#[inline(always)]
fn scale(elapsed: u64, num: u64, den: u64) -> i64 {
    if num == den {
        return elapsed as i64;
    }
    let product = elapsed as u128 * num as u128;
    let quotient = if den == 1 { product } else { divide(product, den) };
    if quotient > i64::MAX as u128 {
        i64::MAX
    } else {
        quotient as i64
    }
}

/// `product / den` by one machine division where the quotient fits 64 bits, else `u128::MAX`
/// (a larger quotient is out of range for every caller).
#[inline(always)]
fn divide(product: u128, den: u64) -> u128 {
    if (product >> 64) as u64 >= den {
        return u128::MAX;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let quotient: u64;
        // SAFETY: `div` faults only where the quotient does not fit 64 bits, which the test above
        // excludes (high half < divisor, so the divisor is not zero either).
        unsafe {
            core::arch::asm!(
                "div {den}",
                den = in(reg) den,
                inout("rax") product as u64 => quotient,
                inout("rdx") (product >> 64) as u64 => _,
                options(pure, nomem, nostack)
            );
        }
        quotient as u128
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        product / den as u128
    }
}
