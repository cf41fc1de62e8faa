//! The rate of a virtual clock.

/// Virtual seconds per real second, as an exact ratio in lowest terms.
///
/// The field's *time dilation factor* (TimeKeeper, section 2.1) is the inverse: TDF = 1/rate.
/// A clock that stands still is *frozen*; that is a state, not a rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    num: u64,
    den: u64,
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Rate {
    /// The rate of a clock whose virtual time runs as fast as real time.
    pub const ONE: Rate = Rate { num: 1, den: 1 };
    /// The fastest rate accepted. The slowest is its inverse.
    pub const MAX: u64 = 1_000_000;
    /// The rate of a clock that stands in practice: 1 ns in 6.5 days. Such a clock is not frozen, so it can leap over idle time. The
    /// rate is outside of the range that users may choose.
    pub const STANDING: Rate = Rate { num: 1, den: 1 << 49 };
    /// Upper bound of both terms of the reduced ratio, exclusive. Products with any `i64` then fit in 128 bits.
    const TERM_LIMIT: u64 = 1 << 50;

    /// Returns the rate `num`/`den`. `None` if the rate is zero, outside 1/1000000..=1000000, or not representable with terms
    /// below 2^50.
    pub const fn new(num: u64, den: u64) -> Option<Rate> {
        if num == 0 || den == 0 {
            return None;
        }
        let divisor = gcd(num, den);
        let (num, den) = (num / divisor, den / divisor);
        if num >= Self::TERM_LIMIT || den >= Self::TERM_LIMIT {
            return None;
        }
        if num as u128 > den as u128 * Self::MAX as u128
            || den as u128 > num as u128 * Self::MAX as u128
        {
            return None;
        }
        Some(Rate { num, den })
    }

    /// Returns the rate of two terms that are known to be a rate's own, without reducing them again; `None` if either is zero.
    /// The reader's fast path uses it: [`crate::ClockPage`] writes no other terms into a page.
    #[inline(always)]
    pub(crate) const fn from_terms(num: u64, den: u64) -> Option<Rate> {
        if num == 0 || den == 0 {
            return None;
        }
        Some(Rate { num, den })
    }

    /// Returns the virtual seconds that pass in [`Rate::den`] real seconds.
    pub const fn num(self) -> u64 {
        self.num
    }

    /// Returns the real seconds in which [`Rate::num`] virtual seconds pass.
    pub const fn den(self) -> u64 {
        self.den
    }

    /// Returns the inverse: the TDF of a rate, or the rate of a TDF.
    pub const fn inverse(self) -> Rate {
        Rate { num: self.den, den: self.num }
    }

    /// Returns the rate as a decimal fraction, for people to read. Do not compute with it.
    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

impl Default for Rate {
    fn default() -> Rate {
        Rate::ONE
    }
}
