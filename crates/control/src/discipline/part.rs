//! A straight part of the line between a clock that errs and the truth.

use lorentz_clock::saturate;

use super::kernel::SECOND;

/// A second of the oscillator, in ns << 32.
pub(super) const WHOLE: i128 = (SECOND as i128) << 32;

/// A straight part of the line: from `own` on, the clock goes on by `length` where the truth goes on by [`WHOLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The clock's own time at the start, ns.
    pub own: i64,
    /// The truth there, ns.
    pub truth: i64,
    /// The part of a nanosecond by which the truth is ahead of that, in [`WHOLE`]ths of the clock's nanosecond.
    pub rest: i64,
    pub length: i128,
}

impl Part {
    /// The truth when the clock shows `own`, rounded up to whole nanoseconds.
    pub fn truth_at(&self, own: i64) -> i64 {
        let elapsed = (i128::from(own) - i128::from(self.own)) * WHOLE + i128::from(self.rest);
        saturate(i128::from(self.truth) - (-elapsed).div_euclid(self.length))
    }

    /// The time of the clock at `truth`, rounded down to whole nanoseconds.
    pub fn own_at(&self, truth: i64) -> i64 {
        let elapsed = (i128::from(truth) - i128::from(self.truth)) * self.length;
        saturate(i128::from(self.own) + (elapsed - i128::from(self.rest)).div_euclid(WHOLE))
    }
}
