//! Attempts to set a clock: clock_settime, settimeofday, adjtimex, clock_adjtime.
//!
//! A program that may set clocks sets its container's wall clock, by way of the monitor: the page is read-only here. Bad
//! arguments are refused in the order in which the kernel looks at them. Nothing here sets a clock of the host.

use crate::clocks;
use crate::filter::{ASK_MONITOR, ASK_SET_WALL, ASK_STEP_WALL};
use crate::process;
use crate::sys::{clk, errno, sys, Sysno, Timespec};
use crate::trap::Call;
use crate::user;
use lorentz_clock::{MOST_SETTABLE_SECS, NANOS_PER_SEC};

const MICRO: i64 = 1000;

/// clock_settime(2).
pub fn clock_settime(call: &Call) -> isize {
    let [clock, at, ..] = call.args;
    if clock as i32 != clk::REALTIME {
        return on_other_clock(call, clock as i32);
    }
    match user::read_timespec(at) {
        Err(error) => error,
        Ok(new) if !is_settable(new) => -errno::EINVAL,
        Ok(_) if !may_set_clocks() => -errno::EPERM,
        Ok(new) => ask_monitor(ASK_SET_WALL, new),
    }
}

/// A clock other than the wall clock: the kernel says what is wrong. A PTP device's clock shows its own time inside, and is set as
/// natively. The kernel's auxiliary clocks, where it has them, are the host's, and not for a container to set.
fn on_other_clock(call: &Call, clock: i32) -> isize {
    const AUXILIARY: core::ops::Range<i32> = 16..24;
    let mut now = Timespec::default();
    // SAFETY: writes to `now`.
    let is_there = || unsafe { sys!(Sysno::clock_gettime, clock, &mut now as *mut Timespec) } == 0;
    match AUXILIARY.contains(&clock) && { is_there }() {
        true => -errno::EPERM,
        false => call.by_kernel(),
    }
}

/// settimeofday(2).
pub fn settimeofday(call: &Call) -> isize {
    let [at, zone_at, ..] = call.args;
    let (new, zone) = match read_time_of_day(at, zone_at) {
        Ok(read) => read,
        Err(error) => return error,
    };
    if new.is_some_and(|new| !is_settable(new)) {
        return -errno::EINVAL;
    }
    if !may_set_clocks() {
        return -errno::EPERM;
    }
    if let Some(error) = zone.and_then(refused_zone) {
        return error;
    }
    new.map_or(0, |new| ask_monitor(ASK_SET_WALL, new))
}

/// The time and the time zone, where they are given.
fn read_time_of_day(at: u64, zone_at: u64) -> Result<(Option<Timespec>, Option<u64>), isize> {
    let mut new = None;
    if at != 0 {
        let tv = user::read_timespec(at)?;
        // A whole second of microseconds is invalid too; the kernel sees that later.
        if !(0..=1_000_000).contains(&tv.nanos) {
            return Err(-errno::EINVAL);
        }
        new = Some(Timespec { secs: tv.secs, nanos: tv.nanos * MICRO });
    }
    let zone = if zone_at != 0 { Some(user::read_u64(zone_at)?) } else { None };
    Ok((new, zone))
}

/// Why a struct timezone is refused: out of range, or not the kernel's own, of which there is one for the whole machine.
fn refused_zone(zone: u64) -> Option<isize> {
    const MOST_MINUTES: i32 = 15 * 60;
    if !(-MOST_MINUTES..=MOST_MINUTES).contains(&(zone as i32)) {
        return Some(-errno::EINVAL);
    }
    let mut kernels = 0u64;
    // SAFETY: writes eight bytes.
    unsafe { sys!(Sysno::gettimeofday, 0u64, &mut kernels as *mut u64) };
    (zone != kernels).then_some(-errno::EPERM)
}

/// A time that the kernel lets a wall clock be set to.
fn is_settable(new: Timespec) -> bool {
    (0..MOST_SETTABLE_SECS).contains(&new.secs) && (0..NANOS_PER_SEC).contains(&new.nanos)
}

/// Has the monitor set or step the wall clock. It answers EINVAL where that would be before CLOCK_MONOTONIC. Without a monitor the
/// kernel says ENOSYS.
fn ask_monitor(request: u64, time: Timespec) -> isize {
    // SAFETY: numbers only.
    unsafe { sys!(ASK_MONITOR, request, time.secs, time.nanos) }
}

fn may_set_clocks() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    process::has_capability(CAP_SYS_TIME)
}

/// struct timex.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Timex {
    words: [Timespec; TIMEX_WORDS],
}

const TIMEX_WORDS: usize = 208 / 16;

/// Modes of struct timex.
mod mode {
    pub const FREQUENCY: u32 = 0x2;
    pub const TICK: u32 = 0x4000;
    pub const SETOFFSET: u32 = 0x100;
    pub const NANO: u32 = 0x2000;
    pub const MICRO: u32 = 0x1000;
    /// adjtime(3), with SINGLESHOT; with READ_ONLY it changes nothing.
    pub const ADJTIME: u32 = 0x8000;
    pub const SINGLESHOT: u32 = 0x1;
    pub const READ_ONLY: u32 = 0x2000;
    /// Whatever disciplines a clock: offset, frequency, errors, status, time constant, TAI, tick.
    pub const DISCIPLINE: u32 = 0x40bf;
}

impl Timex {
    fn read(at: u64) -> Result<Timex, isize> {
        let mut bytes = [0u8; size_of::<Timex>()];
        if !user::read_bytes(at, &mut bytes) {
            return Err(user::FAULT);
        }
        // SAFETY: plain numbers.
        Ok(unsafe { core::mem::transmute::<[u8; size_of::<Timex>()], Timex>(bytes) })
    }

    fn modes(&self) -> u32 {
        self.words[0].secs as u32
    }

    fn frequency(&self) -> i64 {
        self.words[1].secs
    }

    fn is_in_nanos(&self) -> bool {
        const STA_NANO: i64 = 0x2000;
        self.words[2].nanos & STA_NANO != 0
    }

    /// Seconds, and micro- or nanoseconds.
    fn time(&mut self) -> &mut Timespec {
        // At byte 72: half of one pair and half of the next.
        // SAFETY: within the structure, and aligned to eight bytes.
        unsafe { &mut *self.words.as_mut_ptr().cast::<i64>().add(9).cast::<Timespec>() }
    }

    fn tick(&self) -> i64 {
        self.words[5].nanos
    }

    /// What the kernel refuses before it changes anything.
    fn refusal(mut self) -> Option<isize> {
        const LEAST_TICK: i64 = 9_000;
        const MOST_TICK: i64 = 11_000;
        /// Whole parts per million and 16 bits of fraction, in the kernel's finer units.
        const PPM_SCALE: i64 = 1000 << 16;
        let modes = self.modes();
        if modes & mode::ADJTIME != 0 {
            if modes & mode::SINGLESHOT == 0 {
                return Some(-errno::EINVAL);
            }
            if modes & mode::READ_ONLY == 0 && !may_set_clocks() {
                return Some(-errno::EPERM);
            }
        } else if modes != 0 && !may_set_clocks() {
            return Some(-errno::EPERM);
        } else if modes & mode::TICK != 0 && !(LEAST_TICK..=MOST_TICK).contains(&self.tick()) {
            return Some(-errno::EINVAL);
        }
        if modes & mode::SETOFFSET != 0 {
            let most = if modes & mode::NANO != 0 { NANOS_PER_SEC } else { 1_000_000 };
            if !may_set_clocks() {
                return Some(-errno::EPERM);
            }
            if !(0..most).contains(&self.time().nanos) {
                return Some(-errno::EINVAL);
            }
        }
        let most = i64::MAX / PPM_SCALE;
        let frequency = self.frequency();
        (modes & mode::FREQUENCY != 0 && !(-most..=most).contains(&frequency))
            .then_some(-errno::EINVAL)
    }

    /// By how much the wall clock is to be stepped.
    fn offset(mut self) -> Timespec {
        let unit = if self.modes() & mode::NANO != 0 { 1 } else { MICRO };
        let time = *self.time();
        Timespec { secs: time.secs, nanos: time.nanos * unit }
    }
}

/// adjtimex(2).
pub fn adjtimex(call: &Call) -> isize {
    match Timex::read(call.args[0]) {
        Ok(timex) => adjust(timex, call.args[0]),
        Err(error) => error,
    }
}

/// clock_adjtime(2).
pub fn clock_adjtime(call: &Call) -> isize {
    let [clock, at, ..] = call.args;
    match Timex::read(at) {
        Err(error) => error,
        Ok(_) if clock as i32 != clk::REALTIME => on_other_clock(call, clock as i32),
        Ok(timex) => adjust(timex, at),
    }
}

/// Of all that adjtimex does, the step of the wall clock is the container's; what disciplines the kernel's clock is refused.
fn adjust(timex: Timex, at: u64) -> isize {
    let modes = timex.modes();
    if let Some(error) = timex.refusal() {
        return error;
    }
    let reads_adjtime = modes & mode::ADJTIME != 0;
    let disciplines = match reads_adjtime {
        true => modes & mode::READ_ONLY == 0,
        false => {
            let units = if modes & mode::SETOFFSET != 0 { 0 } else { mode::NANO | mode::MICRO };
            modes & (mode::DISCIPLINE | units) != 0
        }
    };
    if disciplines {
        return -errno::EPERM;
    }
    if modes & mode::SETOFFSET != 0 {
        let result = ask_monitor(ASK_STEP_WALL, timex.offset());
        if result != 0 {
            return result;
        }
    }
    let mut told = timex;
    told.words[0].secs = match reads_adjtime {
        true => i64::from(mode::ADJTIME | mode::READ_ONLY | mode::SINGLESHOT),
        false => 0,
    };
    // A copy: what the program has there may change meanwhile, and must set no clock of the host.
    // SAFETY: reads and writes the copy.
    let result = unsafe { sys!(Sysno::adjtimex, &mut told as *mut Timex) };
    if result < 0 {
        return result;
    }
    told.words[0].secs = timex.words[0].secs;
    let wall = clocks::read(clk::REALTIME).unwrap_or_default();
    let unit = if told.is_in_nanos() { 1 } else { MICRO };
    *told.time() = Timespec { secs: wall.secs, nanos: wall.nanos / unit };
    user::write_words(at, &told.words).err().unwrap_or(result)
}
