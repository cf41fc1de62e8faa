//! Attempts to set a clock: clock_settime, settimeofday, adjtimex, clock_adjtime.
//!
//! A program that may set clocks sets its container's wall clock, by way of the monitor: the page is read-only here. Bad
//! arguments are refused in the order in which the kernel looks at them. Nothing here sets a clock of the host.

use crate::call::Call;
use crate::filter::{ASK_ADJTIME, ASK_MONITOR, ASK_SET_WALL, ASK_STEP_WALL};
use crate::process;
use crate::read;
use crate::sys::{
    self, sys, AdjModes, ClockId, Errno, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use crate::user::{self, Access};
use lorentz_clock::{MAX_SETTABLE_SECS, NANOS_PER_SEC};

const MICRO: i64 = 1000;

/// clock_settime(2).
pub fn clock_settime(call: &Call, clock: ClockId, new: UserPtr<Timespec>) -> SysResult {
    if clock != ClockId::REALTIME {
        return on_other_clock(call, clock);
    }
    let new = new.read()?;
    if !is_settable(new) {
        return Err(Errno::EINVAL);
    }
    if !may_set_clocks() {
        return Err(Errno::EPERM);
    }
    ask_monitor(ASK_SET_WALL, new)
}

/// A clock other than the wall clock: the kernel says what is wrong. A PTP device's clock shows its own time inside, and is set as
/// natively. The kernel's auxiliary clocks, where it has them, are the host's, and not for a container to set.
fn on_other_clock(call: &Call, clock: ClockId) -> SysResult {
    if clock.is_auxiliary() && sys::clock_gettime(clock).is_ok() {
        return Err(Errno::EPERM);
    }
    call.by_kernel()
}

/// struct timezone: minutes west of Greenwich, and a number that has no use any more.
pub type Timezone = [u32; 2];

/// settimeofday(2).
pub fn settimeofday(
    _: &Call,
    time: Option<UserPtr<Timeval>>,
    zone: Option<UserPtr<Timezone>>,
) -> SysResult {
    let time = match time.map(Access::read).transpose()? {
        // A whole second of microseconds is invalid too; the kernel sees that later.
        Some(time) if !(0..=1_000_000).contains(&time.micros) => return Err(Errno::EINVAL),
        time => time.map(Timeval::to_timespec),
    };
    let zone = zone.map(Access::read).transpose()?;
    if time.is_some_and(|time| !is_settable(time)) {
        return Err(Errno::EINVAL);
    }
    if !may_set_clocks() {
        return Err(Errno::EPERM);
    }
    if let Some(zone) = zone {
        check_zone(zone)?;
    }
    time.map_or(Ok(0), |time| ask_monitor(ASK_SET_WALL, time))
}

/// Refuses a struct timezone that is out of range, or not the kernel's own, of which there is one for the whole machine.
fn check_zone(zone: Timezone) -> SysResult<()> {
    const MAX_MINUTES: i32 = 15 * 60;
    if !(-MAX_MINUTES..=MAX_MINUTES).contains(&(zone[0] as i32)) {
        return Err(Errno::EINVAL);
    }
    let mut kernels: Timezone = [0; 2];
    // SAFETY: writes eight bytes.
    let _ = unsafe { sys!(Sysno::gettimeofday, 0, &raw mut kernels) };
    if zone == kernels {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// A time that the kernel lets a wall clock be set to.
fn is_settable(new: Timespec) -> bool {
    (0..MAX_SETTABLE_SECS).contains(&new.secs) && (0..NANOS_PER_SEC).contains(&new.nanos)
}

/// Has the monitor set or step the wall clock. It answers EINVAL where that would be before CLOCK_MONOTONIC. Without a monitor the
/// kernel says ENOSYS.
fn ask_monitor(request: u64, time: Timespec) -> SysResult {
    // SAFETY: numbers only.
    unsafe { sys!(ASK_MONITOR, request, time.secs, time.nanos) }
}

fn may_set_clocks() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    process::has_capability(CAP_SYS_TIME)
}

/// struct timex, in words.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timex {
    words: [i64; TIMEX_WORDS],
}

const TIMEX_WORDS: usize = 208 / 8;

/// The words of struct timex. The modes share theirs with padding, the status with more of it.
mod word {
    pub const MODES: usize = 0;
    pub const FREQUENCY: usize = 2;
    pub const STATUS: usize = 5;
    pub const TIME: usize = 9;
    pub const TICK: usize = 11;
}

/// Everything that disciplines a clock: offset, frequency, errors, status, time constant, TAI, tick.
const DISCIPLINE: AdjModes = AdjModes::ADJ_OFFSET
    .with(AdjModes::ADJ_FREQUENCY)
    .with(AdjModes::ADJ_MAXERROR)
    .with(AdjModes::ADJ_ESTERROR)
    .with(AdjModes::ADJ_STATUS)
    .with(AdjModes::ADJ_TIMECONST)
    .with(AdjModes::ADJ_TAI)
    .with(AdjModes::ADJ_TICK);

impl Timex {
    fn read(from: UserPtr<Timex>) -> SysResult<Timex> {
        let mut bytes = [0u8; size_of::<Timex>()];
        user::read_bytes(from.field(0), &mut bytes)?;
        // SAFETY: plain numbers.
        Ok(unsafe { core::mem::transmute::<[u8; size_of::<Timex>()], Timex>(bytes) })
    }

    fn modes(&self) -> AdjModes {
        AdjModes::new(self.words[word::MODES] as u32)
    }

    fn is_in_nanos(&self) -> bool {
        const STA_NANO: i64 = 0x2000;
        self.words[word::STATUS] & STA_NANO != 0
    }

    /// Seconds, and micro- or nanoseconds.
    fn time(&self) -> (i64, i64) {
        (self.words[word::TIME], self.words[word::TIME + 1])
    }

    /// Refuses what the kernel refuses before it changes anything.
    fn check(&self) -> SysResult<()> {
        const MIN_TICK: i64 = 9_000;
        const MAX_TICK: i64 = 11_000;
        /// Whole parts per million and 16 bits of fraction, in the kernel's finer units.
        const PPM_SCALE: i64 = 1000 << 16;
        const MAX_FREQUENCY: i64 = i64::MAX / PPM_SCALE;
        let modes = self.modes();
        let tick = self.words[word::TICK];
        if modes.contains(AdjModes::ADJ_ADJTIME) {
            if !modes.contains(AdjModes::ADJ_SINGLESHOT) {
                return Err(Errno::EINVAL);
            }
            if !modes.contains(AdjModes::ADJ_READONLY) && !may_set_clocks() {
                return Err(Errno::EPERM);
            }
        } else if modes != AdjModes::new(0) && !may_set_clocks() {
            return Err(Errno::EPERM);
        } else if modes.contains(AdjModes::ADJ_TICK) && !(MIN_TICK..=MAX_TICK).contains(&tick) {
            return Err(Errno::EINVAL);
        }
        if modes.contains(AdjModes::ADJ_SETOFFSET) {
            let end = if modes.contains(AdjModes::ADJ_NANO) { NANOS_PER_SEC } else { 1_000_000 };
            if !may_set_clocks() {
                return Err(Errno::EPERM);
            }
            if !(0..end).contains(&self.time().1) {
                return Err(Errno::EINVAL);
            }
        }
        let frequency = self.words[word::FREQUENCY];
        if modes.contains(AdjModes::ADJ_FREQUENCY)
            && !(-MAX_FREQUENCY..=MAX_FREQUENCY).contains(&frequency)
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// The step of the wall clock.
    fn offset(&self) -> Timespec {
        let unit = if self.modes().contains(AdjModes::ADJ_NANO) { 1 } else { MICRO };
        let (secs, fraction) = self.time();
        Timespec { secs, nanos: fraction * unit }
    }
}

/// adjtimex(2).
pub fn adjtimex(_: &Call, timex: UserPtr<Timex>) -> SysResult {
    adjust(Timex::read(timex)?, timex)
}

/// clock_adjtime(2).
pub fn clock_adjtime(call: &Call, clock: ClockId, timex: UserPtr<Timex>) -> SysResult {
    let read = Timex::read(timex)?;
    if clock != ClockId::REALTIME {
        return on_other_clock(call, clock);
    }
    adjust(read, timex)
}

/// The monitor carries it out on the container's clock. It answers ENOSYS where it cannot.
fn adjust(timex: Timex, out: UserPtr<Timex>) -> SysResult {
    timex.check()?;
    let mut answer = timex;
    // SAFETY: the monitor reads and writes this copy.
    match unsafe { sys!(ASK_MONITOR, ASK_ADJTIME, &raw mut answer) } {
        Err(Errno::ENOSYS) => adjust_in_experiment(timex, out),
        Err(refused) => Err(refused),
        Ok(state) => {
            out.field::<[i64; TIMEX_WORDS]>(0).write(answer.words)?;
            Ok(state)
        }
    }
}

/// On a clock that an experiment moves, the step of the wall clock is the container's. All that disciplines a clock is refused; reads show the
/// host's state.
fn adjust_in_experiment(timex: Timex, out: UserPtr<Timex>) -> SysResult {
    let modes = timex.modes();
    let reads_adjtime = modes.contains(AdjModes::ADJ_ADJTIME);
    let disciplines = match reads_adjtime {
        true => !modes.contains(AdjModes::ADJ_READONLY),
        false if modes.contains(AdjModes::ADJ_SETOFFSET) => modes.intersects(DISCIPLINE),
        false => {
            let units = AdjModes::ADJ_NANO.with(AdjModes::ADJ_MICRO);
            modes.intersects(DISCIPLINE.with(units))
        }
    };
    if disciplines {
        return Err(Errno::EPERM);
    }
    if modes.contains(AdjModes::ADJ_SETOFFSET) {
        ask_monitor(ASK_STEP_WALL, timex.offset())?;
    }
    let read_only = match reads_adjtime {
        true => AdjModes::ADJ_ADJTIME.with(AdjModes::ADJ_READONLY).with(AdjModes::ADJ_SINGLESHOT),
        false => AdjModes::new(0),
    };
    let mut reported = timex;
    reported.words[word::MODES] = read_only.bits().into();
    // A copy: what the program has there may change meanwhile, and must set no clock of the host.
    // SAFETY: reads and writes the copy.
    let result = unsafe { sys!(Sysno::adjtimex, &raw mut reported)? };
    reported.words[word::MODES] = timex.words[word::MODES];
    let wall = read::clock_time(ClockId::REALTIME).unwrap_or_default();
    let unit = if reported.is_in_nanos() { 1 } else { MICRO };
    reported.words[word::TIME] = wall.secs;
    reported.words[word::TIME + 1] = wall.nanos / unit;
    out.field::<[i64; TIMEX_WORDS]>(0).write(reported.words)?;
    Ok(result)
}
