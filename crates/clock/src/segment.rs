//! The map from real to virtual time between two changes of a clock.

use crate::instant::{saturate, RealInstant, Span, VirtualInstant, WallTime};
use crate::rate::Rate;

/// The pace of virtual time within a segment: a [`Rate`], or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Time runs at this rate.
    Running(Rate),
    /// Time stands still.
    Frozen,
}

/// One straight piece of a virtual clock: `V(R) = virt + (R - real) * pace`, from `real` on.
///
/// All values are whole nanoseconds; products have 128 bits. A result outside `i64`, the kernel's own range, becomes the nearest
/// end of that range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Start of the segment, on the host's CLOCK_MONOTONIC.
    pub real: RealInstant,
    /// The virtual CLOCK_MONOTONIC at the start.
    pub virt: VirtualInstant,
    /// The pace of virtual time.
    pub pace: Pace,
    /// The offset of wall time (CLOCK_REALTIME) to the virtual CLOCK_MONOTONIC.
    pub wall: WallTime,
    /// The offset of CLOCK_BOOTTIME to the virtual CLOCK_MONOTONIC.
    pub boot: Span,
}

impl Segment {
    /// Returns virtual time at `real`, rounded down. For an instant before the segment, the result is virtual time at its start.
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

    /// Returns the first real instant at which virtual time is `virt` or later; never, if the clock is frozen before it.
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

    /// Returns a segment that begins as this one does and reaches the start of `next` at an even pace.
    pub(crate) fn evenly_until(self, next: &Segment) -> Segment {
        let virt = next.virt.since(self.virt).0.max(0) as u64;
        let real = next.real.since(self.real).0.max(1) as u64;
        // Drop low bits, so that both terms fit a rate's terms. The result is as exact as they allow.
        let surplus = (u64::BITS - virt.max(real).leading_zeros()).saturating_sub(50);
        let pace = Rate::new(virt >> surplus, real >> surplus);
        Segment { pace: pace.map_or(Pace::Frozen, Pace::Running), ..self }
    }

    /// Returns wall time at the virtual instant `virt`.
    pub fn wall_at(&self, virt: VirtualInstant) -> WallTime {
        self.wall.plus(Span(virt.0))
    }

    /// Returns the virtual instant at which wall time is `wall`. A result out of range becomes the nearest end of the range.
    pub fn virtual_at_wall(&self, wall: WallTime) -> VirtualInstant {
        VirtualInstant(saturate(wall.as_nanos() - self.wall.as_nanos()))
    }

    /// Returns the virtual instant at which CLOCK_BOOTTIME shows `boot`; never, if `boot` is never.
    pub fn virtual_at_boot(&self, boot: VirtualInstant) -> VirtualInstant {
        match boot {
            VirtualInstant::NEVER => boot,
            _ => VirtualInstant(boot.0.saturating_sub(self.boot.0)),
        }
    }
}

/// Returns `elapsed * num / den`, rounded down; at most `i64::MAX`.
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

/// Returns `product / den` by one machine division if the quotient fits 64 bits, else `u128::MAX`. A larger quotient is out of
/// range for every caller.
#[inline(always)]
fn divide(product: u128, den: u64) -> u128 {
    if (product >> 64) as u64 >= den {
        return u128::MAX;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let quotient: u64;
        // SAFETY: `div` faults only if the quotient does not fit 64 bits. The test above excludes that: the high half is below
        // the divisor, so the divisor is not zero either.
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
