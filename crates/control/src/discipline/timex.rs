//! struct timex of adjtimex(2), as a program passes it.

/// The length of struct timex, bytes.
pub const TIMEX_LEN: usize = 208;

/// The modes of adjtimex(2).
pub mod mode {
    /// ADJ_OFFSET; with ADJTIME, what makes it adjtime(3).
    pub const OFFSET: u32 = 0x0001;
    /// ADJ_FREQUENCY.
    pub const FREQUENCY: u32 = 0x0002;
    /// ADJ_MAXERROR.
    pub const MAXERROR: u32 = 0x0004;
    /// ADJ_ESTERROR.
    pub const ESTERROR: u32 = 0x0008;
    /// ADJ_STATUS.
    pub const STATUS: u32 = 0x0010;
    /// ADJ_TIMECONST.
    pub const TIMECONST: u32 = 0x0020;
    /// ADJ_TAI.
    pub const TAI: u32 = 0x0080;
    /// ADJ_SETOFFSET.
    pub const SETOFFSET: u32 = 0x0100;
    /// ADJ_MICRO.
    pub const MICRO: u32 = 0x1000;
    /// ADJ_NANO; with ADJTIME, a read that changes nothing.
    pub const NANO: u32 = 0x2000;
    /// With ADJTIME: a read that changes nothing.
    pub const READONLY: u32 = 0x2000;
    /// ADJ_TICK.
    pub const TICK: u32 = 0x4000;
    /// adjtime(3).
    pub const ADJTIME: u32 = 0x8000;
}

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

/// The fields of struct timex that Lorentz knows; those of a PPS source are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timex {
    /// ADJ_*.
    pub modes: u32,
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
    /// TAI less UTC, s.
    pub tai: i64,
}

/// Offsets of the fields, in words of eight bytes. `modes` and `status` fill half of theirs.
mod word {
    pub const MODES: usize = 0;
    pub const OFFSET: usize = 1;
    pub const FREQUENCY: usize = 2;
    pub const MAXERROR: usize = 3;
    pub const ESTERROR: usize = 4;
    pub const STATUS: usize = 5;
    pub const CONSTANT: usize = 6;
    pub const PRECISION: usize = 7;
    pub const TOLERANCE: usize = 8;
    pub const SECS: usize = 9;
    pub const FRACTION: usize = 10;
    pub const TICK: usize = 11;
    /// The first field of a PPS source.
    pub const PPS: usize = 12;
    /// Where TAI lies, after three numbers of four bytes.
    pub const TAI: usize = 20;
}

impl Timex {
    /// Reads the fields from a program's struct timex.
    pub fn parse(bytes: &[u8; TIMEX_LEN]) -> Timex {
        let at = |word: usize| {
            let field: [u8; 8] = bytes[word * 8..][..8].try_into().expect("eight bytes");
            i64::from_ne_bytes(field)
        };
        Timex {
            modes: at(word::MODES) as u32,
            offset: at(word::OFFSET),
            frequency: at(word::FREQUENCY),
            max_error: at(word::MAXERROR),
            estimated_error: at(word::ESTERROR),
            status: at(word::STATUS) as u32,
            constant: at(word::CONSTANT),
            precision: at(word::PRECISION),
            tolerance: at(word::TOLERANCE),
            secs: at(word::SECS),
            fraction: at(word::FRACTION),
            tick: at(word::TICK),
            tai: i64::from(at(word::TAI) as i32),
        }
    }

    /// Writes the fields into a program's struct timex, except for the modes. Padding stays.
    pub fn write(&self, bytes: &mut [u8; TIMEX_LEN]) {
        let mut put = |word: usize, value: &[u8]| {
            bytes[word * 8..][..value.len()].copy_from_slice(value);
        };
        for (word, value) in [
            (word::OFFSET, self.offset),
            (word::FREQUENCY, self.frequency),
            (word::MAXERROR, self.max_error),
            (word::ESTERROR, self.estimated_error),
            (word::CONSTANT, self.constant),
            (word::PRECISION, self.precision),
            (word::TOLERANCE, self.tolerance),
            (word::SECS, self.secs),
            (word::FRACTION, self.fraction),
            (word::TICK, self.tick),
        ] {
            put(word, &value.to_ne_bytes());
        }
        put(word::STATUS, &self.status.to_ne_bytes());
        // Two numbers of eight bytes, one of four with padding, five of eight.
        for word in [0, 1, 3, 4, 5, 6, 7] {
            put(word::PPS + word, &[0; 8]);
        }
        put(word::PPS + 2, &[0; 4]);
        put(word::TAI, &(self.tai as i32).to_ne_bytes());
    }

    /// Returns the step of the wall clock that ADJ_SETOFFSET asks for, ns.
    pub fn step(&self) -> Option<i128> {
        let unit = if self.modes & mode::NANO != 0 { 1 } else { 1000 };
        let nanos = i128::from(self.secs) * 1_000_000_000 + i128::from(self.fraction) * unit;
        (self.modes & mode::SETOFFSET != 0).then_some(nanos)
    }
}
