//! The C interface of the precise timers. `include/lorentz_timers.h` documents it.

use libc::{c_char, c_int, timespec, timeval};
use lorentz_clock::WallTime;
use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use timers::{
    Hpet, HpetError, Interval, Moment, OutOfRange, Sleeper, SourceError, TimeSource, Woken,
};

/// Major (high half) and minor number of the interface, as in the header.
const VERSION: u32 = 1 << 16 | 1;
const OK: c_int = 0;
const ERANGE: c_int = -1;
const EINVAL: c_int = -2;
const EINUSE: c_int = -3;
const EUNUSABLE: c_int = -4;
const SOURCES: [TimeSource; 3] = [TimeSource::Tsc, TimeSource::Hpet, TimeSource::Os];

/// Writes a result to `out`. Returns 0, EINVAL for a null pointer, or ERANGE for a result out of range.
///
/// # Safety
/// `out` is null or can be written to.
unsafe fn give<T>(result: Result<T, OutOfRange>, out: *mut T) -> c_int {
    match result {
        _ if out.is_null() => EINVAL,
        Err(OutOfRange) => ERANGE,
        Ok(value) => {
            // SAFETY: the caller guarantees it.
            unsafe { out.write(value) };
            OK
        }
    }
}

/// Writes an interval's ticks as [`give`] does.
///
/// # Safety
/// The requirements are those of [`give`].
unsafe fn give_interval(result: Result<Interval, OutOfRange>, out: *mut i64) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { give(result.map(Interval::ticks), out) }
}

macro_rules! exported {
    ($($(#[$note:meta])* fn $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            /// The header documents this function.
            ///
            /// # Safety
            /// Pointers are null, or point to the objects that the header requires.
            $(#[$note])*
            #[no_mangle]
            pub unsafe extern "C" fn $name($($arg: $kind),*) $(-> $result)? $body
        )*
    };
}

exported! {
    fn lorentz_timers_version() -> u32 {
        VERSION
    }

    fn lorentz_source() -> c_int {
        let in_force = TimeSource::in_force();
        1 + SOURCES.iter().position(|source| *source == in_force).unwrap_or(2) as c_int
    }

    fn lorentz_source_reason() -> *const c_char {
        static REASON: OnceLock<CString> = OnceLock::new();
        REASON.get_or_init(|| CString::new(TimeSource::reason()).unwrap_or_default()).as_ptr()
    }

    fn lorentz_source_force(source: c_int) -> c_int {
        let Some(wanted) = usize::try_from(source).ok().and_then(|n| SOURCES.get(n.wrapping_sub(1)))
        else {
            return EINVAL;
        };
        match wanted.force() {
            Ok(()) => OK,
            Err(SourceError::InUse(_)) => EINUSE,
            Err(SourceError::Unusable(..)) => EUNUSABLE,
            Err(SourceError::Calibrated) => EINUSE,
        }
    }

    fn lorentz_source_calibrate(secs: f64) -> c_int {
        if !(0.001..=60.0).contains(&secs) {
            return EINVAL;
        }
        match TimeSource::calibrate(Duration::from_secs_f64(secs)) {
            Ok(()) => OK,
            Err(_) => EINUSE,
        }
    }

    fn lorentz_processor_brand() -> *const c_char {
        static BRAND: OnceLock<CString> = OnceLock::new();
        BRAND.get_or_init(|| CString::new(processor::brand()).unwrap_or_default()).as_ptr()
    }

    fn lorentz_processor_has(feature: c_int) -> c_int {
        processor::has(feature).map_or(EINVAL, c_int::from)
    }

    fn lorentz_hpet_error() -> c_int {
        match Hpet::open(Path::new(Hpet::PATH)) {
            Ok(_) => OK,
            Err(error) => hpet_errno(&error),
        }
    }

    fn lorentz_source_hertz() -> u64 {
        TimeSource::hertz()
    }

    fn lorentz_now() -> i64 {
        Moment::now().ticks()
    }

    fn lorentz_now_unordered() -> i64 {
        Moment::now_unordered().ticks()
    }

    fn lorentz_moment_nanos(moment: i64) -> i64 {
        Moment::from_ticks(moment).nanos()
    }

    fn lorentz_moment_timespec(moment: i64, out: *mut timespec) {
        // SAFETY: the caller guarantees it.
        unsafe { give(Ok(Moment::from_ticks(moment).timespec()), out) };
    }

    fn lorentz_moment_wall(moment: i64, out: *mut timespec) {
        let wall = Moment::from_ticks(moment).wall();
        // SAFETY: the caller guarantees it.
        unsafe { give(Ok(timespec { tv_sec: wall.secs, tv_nsec: wall.nanos.into() }), out) };
    }

    fn lorentz_moment_from_wall(date: *const timespec, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        let date = match unsafe { date.as_ref() } {
            Some(date) if (0..1_000_000_000).contains(&date.tv_nsec) => date,
            _ => return EINVAL,
        };
        let nanos = i128::from(date.tv_sec) * 1_000_000_000 + i128::from(date.tv_nsec);
        let moment = Moment::from_wall(WallTime::from_nanos(nanos));
        // SAFETY: as above.
        unsafe { give(moment.map(Moment::ticks), out) }
    }

    fn lorentz_moment_add(moment: i64, interval: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give(moment.checked_add(interval).ok_or(OutOfRange), out) }
    }

    fn lorentz_interval_from_nanos(nanos: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give_interval(Interval::from_nanos(nanos), out) }
    }

    fn lorentz_interval_from_micros(micros: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give_interval(Interval::from_micros(micros), out) }
    }

    fn lorentz_interval_from_millis(millis: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give_interval(Interval::from_millis(millis), out) }
    }

    fn lorentz_interval_from_secs(secs: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give_interval(Interval::from_secs(secs), out) }
    }

    fn lorentz_interval_from_double(secs: f64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give_interval(Interval::from_secs_f64(secs), out) }
    }

    fn lorentz_interval_from_timespec(spec: *const timespec, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        match unsafe { spec.as_ref() } {
            // SAFETY: as above.
            Some(spec) => unsafe { give_interval((*spec).try_into(), out) },
            None => EINVAL,
        }
    }

    fn lorentz_interval_from_timeval(val: *const timeval, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        match unsafe { val.as_ref() } {
            // SAFETY: as above.
            Some(val) => unsafe { give_interval((*val).try_into(), out) },
            None => EINVAL,
        }
    }

    fn lorentz_interval_nanos(interval: i64, out: *mut i64) -> c_int {
        let nanos = i64::try_from(Interval::from_ticks(interval).nanos());
        // SAFETY: the caller guarantees it.
        unsafe { give(nanos.map_err(|_| OutOfRange), out) }
    }

    fn lorentz_interval_double(interval: i64) -> f64 {
        Interval::from_ticks(interval).secs_f64()
    }

    fn lorentz_interval_timespec(interval: i64, out: *mut timespec) {
        // SAFETY: the caller guarantees it.
        unsafe { give(Ok(Interval::from_ticks(interval).timespec()), out) };
    }

    fn lorentz_interval_timeval(interval: i64, out: *mut timeval) {
        // SAFETY: the caller guarantees it.
        unsafe { give(Ok(Interval::from_ticks(interval).timeval()), out) };
    }

    fn lorentz_interval_add(a: i64, b: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give(a.checked_add(b).ok_or(OutOfRange), out) }
    }

    fn lorentz_interval_sub(a: i64, b: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give(a.checked_sub(b).ok_or(OutOfRange), out) }
    }

    fn lorentz_interval_neg(a: i64, out: *mut i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { give(a.checked_neg().ok_or(OutOfRange), out) }
    }

    fn lorentz_sleep(interval: i64) {
        timers::sleep(Interval::from_ticks(interval));
    }

    fn lorentz_sleep_until(moment: i64) {
        timers::sleep_until(Moment::from_ticks(moment));
    }

    fn lorentz_sleeper_new() -> *mut Sleeper {
        Box::into_raw(Box::new(Sleeper::new()))
    }

    fn lorentz_sleeper_free(sleeper: *mut Sleeper) {
        if !sleeper.is_null() {
            // SAFETY: the caller guarantees that lorentz_sleeper_new made the sleeper, and that nobody uses it any
            // more.
            drop(unsafe { Box::from_raw(sleeper) });
        }
    }

    fn lorentz_sleeper_sleep(sleeper: *const Sleeper, interval: i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { sleep_with(sleeper, Moment::now().saturating_add(Interval::from_ticks(interval))) }
    }

    fn lorentz_sleeper_sleep_until(sleeper: *const Sleeper, moment: i64) -> c_int {
        // SAFETY: the caller guarantees it.
        unsafe { sleep_with(sleeper, Moment::from_ticks(moment)) }
    }

    fn lorentz_interrupt(sleeper: *const Sleeper) -> c_int {
        // SAFETY: the caller guarantees it.
        let Some(sleeper) = (unsafe { sleeper.as_ref() }) else { return EINVAL };
        sleeper.interrupt();
        OK
    }

    fn lorentz_use_fifo_scheduling(priority: c_int) -> c_int {
        match timers::use_fifo_scheduling(priority) {
            Ok(()) => OK,
            Err(_) => EUNUSABLE,
        }
    }
}

/// The processor's counter, as CPUID has it.
#[cfg(target_arch = "x86_64")]
mod processor {
    pub fn brand() -> String {
        timers::tsc::brand_string()
    }

    /// `None` for a number that names no property.
    pub fn has(feature: i32) -> Option<bool> {
        match feature {
            1 => Some(timers::tsc::is_rdtscp_supported()),
            2 => Some(timers::tsc::is_constant_tsc()),
            3 => Some(timers::tsc::is_invariant_tsc()),
            _ => None,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    pub fn brand() -> String {
        String::new()
    }

    pub fn has(feature: i32) -> Option<bool> {
        (1..=3).contains(&feature).then_some(false)
    }
}

fn hpet_errno(error: &HpetError) -> c_int {
    match error {
        HpetError::Access => libc::EACCES,
        HpetError::NoEntry => libc::ENOENT,
        HpetError::NoDevice => libc::ENODEV,
        HpetError::Busy => libc::EBUSY,
        HpetError::TooManyFiles => libc::EMFILE,
        HpetError::NoMemory => libc::ENOMEM,
        HpetError::Again => libc::EAGAIN,
        HpetError::Counter32Bit => libc::EOVERFLOW,
        HpetError::Stopped | HpetError::Period(_) => libc::EIO,
        HpetError::Other(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// # Safety
/// `sleeper` is null or a sleeper.
unsafe fn sleep_with(sleeper: *const Sleeper, until: Moment) -> c_int {
    // SAFETY: the caller guarantees it.
    match unsafe { sleeper.as_ref() } {
        None => EINVAL,
        Some(sleeper) => match sleeper.sleep_until(until) {
            Woken::Interrupted => 1,
            Woken::Elapsed | Woken::Signalled => 0,
        },
    }
}
