//! struct timex of adjtimex(2): its fields, and the requests that the kernel refuses.

use crate::{AdjModes, Errno};

/// struct timex, as programs pass it and the kernel answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Timex {
    /// ADJ_*, as a number: see [`Timex::modes`].
    pub modes: u32,
    #[doc(hidden)]
    pub modes_padding: u32,
    /// us or ns.
    pub offset: i64,
    /// ppm << 16.
    pub frequency: i64,
    /// us.
    pub max_error: i64,
    /// us.
    pub estimated_error: i64,
    /// STA_*.
    pub status: u32,
    #[doc(hidden)]
    pub status_padding: u32,
    /// Time constant of the loop; with ADJ_TAI, TAI less UTC.
    pub constant: i64,
    /// us.
    pub precision: i64,
    /// ppm << 16.
    pub tolerance: i64,
    /// Seconds of `time`.
    pub secs: i64,
    /// Micro- or nanoseconds of `time`.
    pub fraction: i64,
    /// us.
    pub tick: i64,
    /// Of a PPS source: its frequency and its jitter.
    pub pps: [i64; 2],
    /// Its interval.
    pub pps_shift: u32,
    #[doc(hidden)]
    pub shift_padding: u32,
    /// Its stability, and four counts.
    pub pps_counts: [i64; 5],
    /// TAI less UTC, s.
    pub tai: i32,
    #[doc(hidden)]
    pub reserved: [i32; 11],
}

const _: () = assert!(size_of::<Timex>() == 208);

/// STA_*.
pub mod status {
    #![allow(missing_docs)]
    pub const PLL: u32 = 0x0001;
    pub const FLL: u32 = 0x0008;
    pub const INS: u32 = 0x0010;
    pub const DEL: u32 = 0x0020;
    pub const UNSYNC: u32 = 0x0040;
    pub const FREQHOLD: u32 = 0x0080;
    pub const CLOCKERR: u32 = 0x1000;
    pub const NANO: u32 = 0x2000;
    pub const MODE: u32 = 0x4000;
    /// The bits that only the kernel sets.
    pub const READ_ONLY: u32 = 0xff00;
}

const NANOS_PER_SEC: i64 = 1_000_000_000;
const MICROS_PER_SEC: i64 = 1_000_000;
const NANOS_PER_MICRO: i64 = 1_000;

impl Timex {
    /// The length of struct timex, bytes.
    pub const LEN: usize = size_of::<Timex>();
    /// One part per million of a second is 1,000 ns; a frequency has 16 bits of fraction, and the kernel's lengths 32.
    pub const PPM_SCALE: i64 = 1000 << 16;

    /// The struct in a program's memory.
    pub fn from_bytes(bytes: [u8; Timex::LEN]) -> Timex {
        // SAFETY: plain numbers, without padding between them.
        unsafe { core::mem::transmute(bytes) }
    }

    /// The struct as it lies in memory.
    pub fn to_bytes(self) -> [u8; Timex::LEN] {
        // SAFETY: as above.
        unsafe { core::mem::transmute(self) }
    }

    /// The same struct with these modes.
    #[must_use]
    pub fn with_modes(self, modes: AdjModes) -> Timex {
        Timex { modes: modes.bits(), ..self }
    }

    /// The request.
    pub fn modes(&self) -> AdjModes {
        AdjModes::new(self.modes)
    }

    /// Says that there is no PPS source.
    pub fn clear_pps(&mut self) {
        (self.pps, self.pps_shift, self.pps_counts) = ([0; 2], 0, [0; 5]);
    }

    /// Returns the step of the wall clock that ADJ_SETOFFSET asks for: seconds, and nanoseconds from 0 on.
    pub fn step(&self) -> Option<(i64, i64)> {
        let modes = self.modes();
        let unit = if modes.contains(AdjModes::ADJ_NANO) { 1 } else { NANOS_PER_MICRO };
        let step = (self.secs, self.fraction.wrapping_mul(unit));
        modes.contains(AdjModes::ADJ_SETOFFSET).then_some(step)
    }

    /// Refuses the requests that the kernel refuses before it changes anything, in its order.
    ///
    /// # Errors
    ///
    /// EINVAL, or EPERM for a change by a program that may not set clocks.
    pub fn check(&self, may_set: bool) -> Result<(), Errno> {
        const MIN_TICK: i64 = 9_000;
        const MAX_TICK: i64 = 11_000;
        const MAX_FREQUENCY: i64 = i64::MAX / Timex::PPM_SCALE;
        let modes = self.modes();
        let has = |mode: AdjModes| modes.contains(mode);
        let permitted = |changes: bool| match changes && !may_set {
            true => Err(Errno::EPERM),
            false => Ok(()),
        };
        let valid = |holds: bool| if holds { Ok(()) } else { Err(Errno::EINVAL) };
        if has(AdjModes::ADJ_ADJTIME) {
            valid(has(AdjModes::ADJ_SINGLESHOT))?;
            permitted(!has(AdjModes::ADJ_READONLY))?;
        } else {
            permitted(modes != AdjModes::new(0))?;
            valid(!has(AdjModes::ADJ_TICK) || (MIN_TICK..=MAX_TICK).contains(&self.tick))?;
        }
        if has(AdjModes::ADJ_SETOFFSET) {
            let end = if has(AdjModes::ADJ_NANO) { NANOS_PER_SEC } else { MICROS_PER_SEC };
            permitted(true)?;
            valid((0..end).contains(&self.fraction))?;
        }
        let in_range = (-MAX_FREQUENCY..=MAX_FREQUENCY).contains(&self.frequency);
        valid(!has(AdjModes::ADJ_FREQUENCY) || in_range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_lie_where_the_kernel_has_them() {
        let mut bytes = [0xff; Timex::LEN];
        bytes[0..4].copy_from_slice(&0x2100_u32.to_ne_bytes());
        bytes[40..44].copy_from_slice(&0x40_u32.to_ne_bytes());
        bytes[72..80].copy_from_slice(&(-3_i64).to_ne_bytes());
        bytes[80..88].copy_from_slice(&5_i64.to_ne_bytes());
        bytes[88..96].copy_from_slice(&10_000_i64.to_ne_bytes());
        bytes[160..164].copy_from_slice(&37_i32.to_ne_bytes());
        let mut timex = Timex::from_bytes(bytes);
        assert_eq!((timex.status, timex.tick, timex.tai), (0x40, 10_000, 37));
        assert_eq!(timex.step(), Some((-3, 5)));
        assert_eq!(timex.to_bytes(), bytes);
        timex.clear_pps();
        assert_eq!(timex.to_bytes()[96..116], [0; 20]);
        // The padding, and the reserved words.
        assert_eq!(timex.to_bytes()[116..120], [0xff; 4]);
        assert_eq!(timex.to_bytes()[120..160], [0; 40]);
        assert_eq!(timex.to_bytes()[164..], [0xff; 44]);
    }

    #[test]
    fn requests_are_refused_in_the_kernels_order() {
        let timex = |modes: u32| Timex::default().with_modes(AdjModes::new(modes));
        assert_eq!(timex(0).check(false), Ok(()));
        assert_eq!(timex(0x8000).check(false), Err(Errno::EINVAL));
        assert_eq!(timex(0x8001).check(false), Err(Errno::EPERM));
        assert_eq!(timex(0xa001).check(false), Ok(()));
        assert_eq!(timex(0x4000).check(false), Err(Errno::EPERM));
        assert_eq!(timex(0x4000).check(true), Err(Errno::EINVAL));
        assert_eq!(Timex { fraction: 1_000_000, ..timex(0x100) }.check(true), Err(Errno::EINVAL));
        assert_eq!(Timex { fraction: 1_000_000, ..timex(0x2100) }.check(true), Ok(()));
        assert_eq!(Timex { frequency: i64::MIN, ..timex(2) }.check(true), Err(Errno::EINVAL));
    }
}
