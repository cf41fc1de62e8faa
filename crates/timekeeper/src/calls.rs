//! TimeKeeper's functions as C calls them; `include/timekeeper.h` tells what they do.
//!
//! Each returns 0, or -1 with `errno` set and the reason in [`timekeeper_error`].

use std::cell::RefCell;
use std::ffi::{c_char, c_float, c_int, c_long, c_ulong, CStr, CString};

use lorentz_embed::{real_wall_clock, Fault, Kind, Owner, Result, WallTime};

use crate::{clone, keeper};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What was wrong with this thread's last call that failed.
#[no_mangle]
pub extern "C" fn timekeeper_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// 0; or -1, with `errno` and [`timekeeper_error`] set.
fn told(result: Result<()>) -> c_int {
    let Err(fault) = result else { return 0 };
    LAST.set(CString::new(fault.text).unwrap_or_default());
    let errno = match fault.kind {
        Kind::WrongInput => libc::EINVAL,
        Kind::NotFound => libc::ESRCH,
        Kind::Refused => libc::EPERM,
        Kind::Ended => libc::EPIPE,
        Kind::Failed => libc::EIO,
    };
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn who(pid: c_int) -> String {
    pid.to_string()
}

/// A process in virtual time, as a copy of this one.
#[no_mangle]
pub extern "C" fn clone_time(
    flags: c_ulong,
    dilation: c_float,
    should_start: c_int,
) -> libc::pid_t {
    match clone::clone_time(flags, dilation, should_start != 0) {
        Ok(pid) => pid,
        Err(fault) => told(Err(fault)),
    }
}

/// Sets the TDF of a process.
#[no_mangle]
pub extern "C" fn dilate(pid: c_int, dilation: c_float) -> c_int {
    told(keeper::dilate(&who(pid), dilation, false))
}

/// ... and of its descendants.
#[no_mangle]
pub extern "C" fn dilate_all(pid: c_int, dilation: c_float) -> c_int {
    told(keeper::dilate(&who(pid), dilation, true))
}

/// Stops a process and its time.
#[no_mangle]
pub extern "C" fn freeze(pid: c_int) -> c_int {
    told(keeper::freeze(&who(pid), false))
}

/// ... and its descendants.
#[no_mangle]
pub extern "C" fn freeze_all(pid: c_int) -> c_int {
    told(keeper::freeze(&who(pid), true))
}

/// Lets it go on.
#[no_mangle]
pub extern "C" fn unfreeze(pid: c_int) -> c_int {
    told(keeper::unfreeze(&who(pid)))
}

/// ... and its descendants.
#[no_mangle]
pub extern "C" fn unfreeze_all(pid: c_int) -> c_int {
    told(keeper::unfreeze(&who(pid)))
}

/// Moves a process to the time of another.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn leap(pid: c_int, otherPid: c_int) -> c_int {
    told(keeper::leap(&who(pid), &who(otherPid)))
}

/// `struct timezone`.
#[repr(C)]
pub struct TimeZone {
    minutes_west: c_int,
    summer_time: c_int,
}

type TimeValue<'a> = Option<&'a mut libc::timeval>;
type Zone<'a> = Option<&'a mut TimeZone>;

fn tell_time(time: Result<WallTime>, tv: TimeValue, tz: Zone) -> c_int {
    told(time.map(|time| {
        if let Some(tv) = tv {
            *tv = libc::timeval { tv_sec: time.secs, tv_usec: c_long::from(time.nanos) / 1_000 };
        }
        if let Some(tz) = tz {
            *tz = TimeZone { minutes_west: 0, summer_time: 0 };
        }
    }))
}

/// What the clock of a process shows.
#[no_mangle]
pub extern "C" fn gettimepid(pid: c_int, tv: TimeValue, tz: Zone) -> c_int {
    let time = match u32::try_from(pid) {
        Ok(own) if own == std::process::id() => own_time(),
        _ => keeper::time_of(&who(pid)),
    };
    tell_time(time, tv, tz)
}

/// What this process sees itself, in virtual time or not.
fn own_time() -> Result<WallTime> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_err(|error| Fault::failed(error.to_string()))?;
    Ok(WallTime { secs: now.as_secs() as i64, nanos: now.subsec_nanos() })
}

/// What the clock of a container shows.
///
/// # Safety
///
/// `lxcname` is NULL or a C string.
#[no_mangle]
pub unsafe extern "C" fn gettimename(lxcname: *const c_char, tv: TimeValue, tz: Zone) -> c_int {
    let name = (!lxcname.is_null()).then(|| {
        // SAFETY: a C string, by the header; it lasts as long as the call.
        unsafe { CStr::from_ptr(lxcname) }.to_string_lossy().into_owned()
    });
    let time = name.ok_or_else(|| Fault::wrong("lxcname: is NULL"));
    tell_time(time.and_then(|name| keeper::time_of(&name)), tv, tz)
}

/// What the host's clock shows, even for a process in virtual time.
#[no_mangle]
pub extern "C" fn gettimeofdayoriginal(tv: TimeValue, tz: Zone) -> c_int {
    tell_time(real_wall_clock(), tv, tz)
}

/// Takes a process into the experiment.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn addToExp(pid: c_int, timeline: c_int) -> c_int {
    told(keeper::add_to_experiment(&who(pid), timeline))
}

/// All to one virtual time, standing still.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn synchronizeAndFreeze() -> c_int {
    told(keeper::synchronize_and_freeze(Owner::ThisProcess))
}

/// Rounds follow one another.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn startExp() -> c_int {
    told(keeper::start())
}

/// How far a process goes with each progress.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn setInterval(pid: c_int, interval: c_int, timeline: c_int) -> c_int {
    told(keeper::set_interval(&who(pid), interval.into(), timeline))
}

/// To go there.
#[no_mangle]
pub extern "C" fn progress(timeline: c_int, force: c_int) -> c_int {
    // Both arrive exactly.
    let _ = force;
    told(keeper::progress(timeline))
}

/// Forgets the intervals of a timeline.
#[no_mangle]
pub extern "C" fn reset(timeline: c_int) -> c_int {
    told(keeper::reset(timeline))
}

/// Ends the experiment.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn stopExp() -> c_int {
    told(keeper::stop())
}
