//! The state machine behind adjtimex(2), as the kernel has it: pure arithmetic, a second at a time.
//!
//! Formulas: D. Mills, "A Kernel Model for Precision Timekeeping" (RFC 1589), in the kernel's units and with its roundings. A PPS
//! source does not exist here; its fields are 0. Where the kernel's versions differ, this is Linux 6.1.

use lorentz_syscalls::timex::{status, Timex};
use lorentz_syscalls::AdjModes;
use serde::{Deserialize, Serialize};

/// Fraction bits of the kernel's lengths of time: nanoseconds times 2^32.
const SCALE_SHIFT: u32 = 32;
/// The kernel keeps an offset and the length of a second in parts, one for each of its ticks in a second (Debian's CONFIG_HZ).
const TICKS_PER_SEC: i64 = 250;
const PPM_SCALE: i64 = Timex::PPM_SCALE;
const PPM_SCALE_INV_SHIFT: u32 = 19;
const PPM_SCALE_INV: i64 =
    ((1_i128 << (PPM_SCALE_INV_SHIFT + SCALE_SHIFT)) / PPM_SCALE as i128 + 1) as i64;
/// Largest frequency, 500 ppm, in ns/s.
const MAX_FREQUENCY: i64 = 500_000;
const MAX_FREQUENCY_SCALED: i64 = MAX_FREQUENCY << SCALE_SHIFT;
/// Largest offset that the loop takes, ns.
const MAX_PHASE: i64 = 500_000_000;
/// Largest error that is told, us.
pub const MAX_ERROR: i64 = 16_000_000;
/// Most that adjtime(3) slews in a second, us.
const MAX_ADJUST: i64 = 500;
const MAX_TIME_CONSTANT: i64 = 10;
/// The bounds between which the loop may be a frequency-locked one, s.
const MIN_FLL_SECS: i64 = 256;
const MAX_PLL_SECS: i64 = 2048;
const PLL_SHIFT: u32 = 2;
const FLL_SHIFT: u32 = 2;
const MAX_TAI_OFFSET: i64 = 100_000;
const SECS_PER_DAY: i64 = 86_400;
/// An instant that never comes.
const NEVER: i64 = i64::MAX;

/// A second without any correction, in the kernel's units.
pub const SECOND: i64 = 1_000_000_000;

/// The state of a leap second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeapSecond {
    /// None is to come (TIME_OK).
    No,
    /// One is inserted at the end of the day (TIME_INS).
    Insert,
    /// One is deleted at the end of the day (TIME_DEL).
    Delete,
    /// The inserted second is under way (TIME_OOP).
    UnderWay,
    /// It has been, and the bits that asked for it are still set (TIME_WAIT).
    Over,
}

impl LeapSecond {
    /// The answer of adjtimex(2).
    fn number(self) -> i64 {
        self as i64
    }
}

/// The answer to a clock whose time cannot be relied on (TIME_ERROR).
pub const TIME_ERROR: i64 = 5;

/// The state that adjtimex(2) reads and changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Discipline {
    /// STA_*.
    pub status: u32,
    /// The leap second to come, or that has been.
    pub leap: LeapSecond,
    /// Second of the wall clock at which it comes.
    leap_at: i64,
    /// The rest of an offset, in ns << 32 by tick.
    offset: i64,
    /// The frequency, in ns/s << 32.
    frequency: i64,
    /// Length of a tick, us.
    tick: i64,
    constant: i64,
    /// us.
    pub max_error: i64,
    /// us.
    pub estimated_error: i64,
    /// TAI less UTC, s.
    pub tai: i64,
    /// The rest of an adjtime(3), us.
    adjust: i64,
    /// Second of the wall clock of the last offset.
    reference: i64,
    /// By how much this second is longer than frequency and tick say, in ns << 32 by tick.
    slew: i64,
}

impl Default for Discipline {
    fn default() -> Discipline {
        Discipline {
            status: status::UNSYNC,
            leap: LeapSecond::No,
            leap_at: NEVER,
            offset: 0,
            frequency: 0,
            tick: 10_000,
            constant: 2,
            max_error: MAX_ERROR,
            estimated_error: MAX_ERROR,
            tai: 0,
            adjust: 0,
            reference: 0,
            slew: 0,
        }
    }
}

/// Returns the step that ADJ_SETOFFSET asks for, ns.
pub fn step_of(timex: &Timex) -> Option<i128> {
    let (secs, nanos) = timex.step()?;
    Some(i128::from(secs) * i128::from(SECOND) + i128::from(nanos))
}

/// Rounds towards zero, as the kernel does.
fn shift_right(value: i64, by: u32) -> i64 {
    if value < 0 {
        -(value.wrapping_neg() >> by)
    } else {
        value >> by
    }
}

impl Discipline {
    /// Returns the state of a clock that goes with the host's: its status without what disciplines the host's clock, its errors in us,
    /// and its offset to TAI in s.
    pub fn of_host(status: u32, max_error: i64, estimated_error: i64, tai: i64) -> Discipline {
        let status = status & (status::UNSYNC | status::CLOCKERR | status::NANO);
        Discipline { status, max_error, estimated_error, tai, ..Discipline::default() }
    }

    /// Returns how much the clock goes on in a second of its oscillator, in ns << 32.
    pub fn second_length(&self) -> i64 {
        self.tick * 100_000 * (1 << SCALE_SHIFT) + self.frequency + self.slew * TICKS_PER_SEC
    }

    /// Returns the frequency that frequency and tick ask for, without slews, in ppm.
    pub fn frequency_ppm(&self) -> f64 {
        self.frequency as f64 / PPM_SCALE as f64 / 65_536.0 + (self.tick - 10_000) as f64 * 100.0
    }

    /// Whether seconds differ: an offset or an adjtime(3) is not at its end, or a leap second may come.
    pub fn is_slewing(&self) -> bool {
        self.slew != 0 || self.adjust != 0 || self.chunk() != 0
    }

    /// The part of the offset that the next second is to take off.
    fn chunk(&self) -> i64 {
        shift_right(self.offset, PLL_SHIFT + self.constant as u32)
    }

    /// Returns the second of the wall clock at which a leap second comes, and how the wall clock steps then, s.
    pub fn leap_to_come(&self) -> Option<(i64, i64)> {
        let by = match self.leap {
            LeapSecond::Insert if self.status & status::INS != 0 => -1,
            LeapSecond::Delete if self.status & status::DEL != 0 => 1,
            _ => return None,
        };
        (self.leap_at != NEVER).then_some((self.leap_at, by))
    }

    /// Second `secs` of the wall clock begins. Returns how the wall clock steps there, s: a leap second.
    pub fn begin_second(&mut self, secs: i64) -> i64 {
        let in_force = *self;
        self.begin_second_slewed_by(&in_force, secs)
    }

    /// The same, while the clock still goes on by `in_force`: a slew that has been asked for since begins with a later second, whole.
    pub fn begin_second_slewed_by(&mut self, in_force: &Discipline, secs: i64) -> i64 {
        let step = self.leap_at_second(secs);
        self.max_error += MAX_FREQUENCY / 1000;
        if self.max_error > MAX_ERROR {
            self.max_error = MAX_ERROR;
            self.status |= status::UNSYNC;
        }
        let chunk = in_force.chunk();
        let now = in_force.adjust.clamp(-MAX_ADJUST, MAX_ADJUST);
        if self.offset == in_force.offset {
            self.offset -= chunk;
        }
        if self.adjust == in_force.adjust {
            self.adjust -= now;
        }
        self.slew = chunk + ((now * 1000 / TICKS_PER_SEC) << SCALE_SHIFT);
        step
    }

    fn leap_at_second(&mut self, secs: i64) -> i64 {
        let inserts = self.status & status::INS != 0;
        let deletes = self.status & status::DEL != 0;
        let mut step = 0;
        (self.leap, self.leap_at) = match self.leap {
            LeapSecond::No if inserts => {
                (LeapSecond::Insert, secs + SECS_PER_DAY - secs % SECS_PER_DAY)
            }
            LeapSecond::No if deletes => {
                (LeapSecond::Delete, secs + SECS_PER_DAY - (secs + 1) % SECS_PER_DAY)
            }
            LeapSecond::Insert if !inserts => (LeapSecond::No, NEVER),
            LeapSecond::Insert if secs == self.leap_at => {
                (step, self.tai) = (-1, self.tai + 1);
                (LeapSecond::UnderWay, self.leap_at)
            }
            LeapSecond::Delete if !deletes => (LeapSecond::No, NEVER),
            LeapSecond::Delete if secs == self.leap_at => {
                (step, self.tai) = (1, self.tai - 1);
                (LeapSecond::Over, NEVER)
            }
            LeapSecond::UnderWay => (LeapSecond::Over, NEVER),
            LeapSecond::Over if !inserts && !deletes => (LeapSecond::No, self.leap_at),
            as_it_is => (as_it_is, self.leap_at),
        };
        step
    }

    /// `count` seconds pass in which nothing is slewed and no leap second comes.
    pub fn pass_seconds(&mut self, count: i64) {
        self.max_error = self.max_error.saturating_add(count.saturating_mul(MAX_FREQUENCY / 1000));
        if self.max_error > MAX_ERROR {
            self.max_error = MAX_ERROR;
            self.status |= status::UNSYNC;
        }
    }

    /// The wall clock is stepped: by clock_settime(2), or ADJ_SETOFFSET.
    pub fn clear(&mut self) {
        self.adjust = 0;
        self.status |= status::UNSYNC;
        self.max_error = MAX_ERROR;
        self.estimated_error = MAX_ERROR;
        (self.offset, self.slew) = (0, 0);
        self.leap_at = NEVER;
    }

    /// Carries `timex` out, and fills in the answer. Returns the state that adjtimex(2) returns. `wall` is the wall clock's seconds and
    /// nanoseconds, after the step of [`Timex::step`].
    pub fn adjust(&mut self, timex: &mut Timex, wall: (i64, i64)) -> i64 {
        if timex.modes().contains(AdjModes::ADJ_ADJTIME) {
            let before = self.adjust;
            if !timex.modes().contains(AdjModes::ADJ_READONLY) {
                self.adjust = timex.offset;
            }
            timex.offset = before;
        } else {
            if timex.modes() != AdjModes::new(0) {
                self.change(timex, wall.0);
            }
            timex.offset = shift_right(self.offset.wrapping_mul(TICKS_PER_SEC), SCALE_SHIFT);
            if self.status & status::NANO == 0 {
                timex.offset /= 1000;
            }
        }
        self.answer(timex, wall)
    }

    fn change(&mut self, timex: &Timex, secs: i64) {
        let has = |mode: AdjModes| timex.modes().contains(mode);
        if has(AdjModes::ADJ_STATUS) {
            self.set_status(timex.status, secs);
        }
        if has(AdjModes::ADJ_NANO) {
            self.status |= status::NANO;
        }
        if has(AdjModes::ADJ_MICRO) {
            self.status &= !status::NANO;
        }
        if has(AdjModes::ADJ_FREQUENCY) {
            let frequency = timex.frequency * PPM_SCALE;
            self.frequency = frequency.clamp(-MAX_FREQUENCY_SCALED, MAX_FREQUENCY_SCALED);
        }
        if has(AdjModes::ADJ_MAXERROR) {
            self.max_error = timex.max_error.clamp(0, MAX_ERROR);
        }
        if has(AdjModes::ADJ_ESTERROR) {
            self.estimated_error = timex.estimated_error.clamp(0, MAX_ERROR);
        }
        if has(AdjModes::ADJ_TIMECONST) {
            let more = if self.status & status::NANO == 0 { 4 } else { 0 };
            let constant = timex.constant.clamp(0, MAX_TIME_CONSTANT) + more;
            self.constant = constant.min(MAX_TIME_CONSTANT);
        }
        if has(AdjModes::ADJ_TAI) && (0..=MAX_TAI_OFFSET).contains(&timex.constant) {
            self.tai = timex.constant;
        }
        if has(AdjModes::ADJ_OFFSET) {
            self.take_offset(timex.offset, secs);
        }
        if has(AdjModes::ADJ_TICK) {
            self.tick = timex.tick;
        }
    }

    fn set_status(&mut self, new: u32, secs: i64) {
        let was_loop = self.status & status::PLL != 0;
        let is_loop = new & status::PLL != 0;
        if was_loop && !is_loop {
            self.leap = LeapSecond::No;
            self.status = status::UNSYNC;
            self.leap_at = NEVER;
        }
        if self.status & status::PLL == 0 && is_loop {
            self.reference = secs;
        }
        self.status = self.status & status::READ_ONLY | new & !status::READ_ONLY;
    }

    /// ADJ_OFFSET: the phase-locked loop, or the frequency-locked one after long intervals.
    fn take_offset(&mut self, offset: i64, secs: i64) {
        if self.status & status::PLL == 0 {
            return;
        }
        let nanos = match self.status & status::NANO {
            0 => offset.clamp(-1_000_000, 1_000_000) * 1000,
            _ => offset,
        };
        let offset = nanos.clamp(-MAX_PHASE, MAX_PHASE);
        let mut interval = secs.wrapping_sub(self.reference);
        if self.status & status::FREQHOLD != 0 {
            interval = 0;
        }
        self.reference = secs;
        let by_frequency = self.frequency_locked(offset, interval);
        interval = interval.min(1 << (PLL_SHIFT + 1 + self.constant as u32));
        let gain = SCALE_SHIFT - 2 * (PLL_SHIFT + 2 + self.constant as u32);
        let by_phase = offset.wrapping_mul(interval) << gain;
        let frequency = by_frequency.wrapping_add(by_phase).wrapping_add(self.frequency);
        self.frequency = frequency.clamp(-MAX_FREQUENCY_SCALED, MAX_FREQUENCY_SCALED);
        self.offset = (offset << SCALE_SHIFT) / TICKS_PER_SEC;
    }

    fn frequency_locked(&mut self, offset: i64, interval: i64) -> i64 {
        self.status &= !status::MODE;
        let asked = self.status & status::FLL != 0;
        if interval < MIN_FLL_SECS || !asked && interval <= MAX_PLL_SECS {
            return 0;
        }
        self.status |= status::MODE;
        (offset << (SCALE_SHIFT - FLL_SHIFT)) / interval
    }

    fn answer(&self, timex: &mut Timex, wall: (i64, i64)) -> i64 {
        let mut state = if self.is_in_error() { TIME_ERROR } else { self.leap.number() };
        timex.frequency =
            shift_right((self.frequency >> PPM_SCALE_INV_SHIFT) * PPM_SCALE_INV, SCALE_SHIFT);
        (timex.max_error, timex.estimated_error) = (self.max_error, self.estimated_error);
        (timex.status, timex.constant, timex.tick) = (self.status, self.constant, self.tick);
        (timex.precision, timex.tolerance) = (1, MAX_FREQUENCY_SCALED / PPM_SCALE);
        (timex.tai, timex.secs) = (self.tai as i32, wall.0);
        timex.clear_pps();
        timex.fraction = if self.status & status::NANO != 0 { wall.1 } else { wall.1 / 1000 };
        // The second has begun, and nobody has called `begin_second` yet.
        if wall.0 >= self.leap_at {
            match self.leap_to_come() {
                Some((_, -1)) => {
                    state = LeapSecond::UnderWay.number();
                    (timex.tai, timex.secs) = (timex.tai + 1, timex.secs - 1);
                }
                Some(_) => {
                    state = LeapSecond::Over.number();
                    (timex.tai, timex.secs) = (timex.tai - 1, timex.secs + 1);
                }
                None if self.leap == LeapSecond::UnderWay && wall.0 == self.leap_at => {
                    state = LeapSecond::Over.number();
                }
                None => {}
            }
        }
        state
    }

    /// Whether the status says that the clock's time cannot be relied on.
    fn is_in_error(&self) -> bool {
        // Kernels that stop their tick know no PPS source: distributions' kernels do.
        self.status & (status::UNSYNC | status::CLOCKERR) != 0
    }

    /// Whether the status says that a daemon keeps the time: STA_UNSYNC is not set.
    pub fn is_synchronized(&self) -> bool {
        self.status & status::UNSYNC == 0
    }

    /// Whether the status asks for a leap second.
    pub fn asks_leap_second(&self) -> bool {
        self.status & (status::INS | status::DEL) != 0
    }

    /// Ends the slew of this second.
    pub fn end_slew(&mut self) {
        self.slew = 0;
    }

    /// As an operator does: the status asks for a leap second at the end of the day.
    pub fn ask_leap_second(&mut self, insert: Option<bool>) {
        self.status &= !(status::INS | status::DEL);
        self.status |= match insert {
            Some(true) => status::INS,
            Some(false) => status::DEL,
            None => 0,
        };
    }
}
