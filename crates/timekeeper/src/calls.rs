//! TimeKeeper's functions with their C signatures. `include/timekeeper.h` documents their effects.
//!
//! Each returns 0, or -1 with `errno` set and the reason in [`timekeeper_error`].

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_long, c_ulong, CStr, CString};

use lorentz_embed::{real_wall_clock, Error, ErrorKind, Result, WallTime};

use crate::{clone, commands, keeper};

/// The type of dilations: that of TimeKeeper's published code, or that of its documentation and of this library's first interface.
#[cfg(not(feature = "float-dilation"))]
type Dilation = std::ffi::c_double;
#[cfg(feature = "float-dilation")]
type Dilation = std::ffi::c_float;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the error of this thread's last call that failed.
#[no_mangle]
pub extern "C" fn timekeeper_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Returns 0; or -1, and sets `errno` and the text of [`timekeeper_error`].
fn to_status(result: Result<()>) -> c_int {
    let Err(error) = result else { return 0 };
    LAST.set(CString::new(error.text).unwrap_or_default());
    let errno = match error.kind {
        ErrorKind::WrongInput => libc::EINVAL,
        ErrorKind::NotFound => libc::ESRCH,
        ErrorKind::Refused => libc::EPERM,
        ErrorKind::Ended => libc::EPIPE,
        ErrorKind::Failed => libc::EIO,
    };
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

#[allow(clippy::useless_conversion)]
fn exact(dilation: Dilation) -> f64 {
    dilation.into()
}

fn who(pid: c_int) -> String {
    pid.to_string()
}

/// Makes a copy of this process in virtual time.
#[no_mangle]
pub extern "C" fn clone_time(
    flags: c_ulong,
    dilation: Dilation,
    should_start: c_int,
) -> libc::pid_t {
    match clone::clone_time(flags, exact(dilation), should_start != 0) {
        Ok(pid) => pid,
        Err(error) => to_status(Err(error)),
    }
}

/// Sets the TDF of a process.
#[no_mangle]
pub extern "C" fn dilate(pid: c_int, dilation: Dilation) -> c_int {
    to_status(keeper::dilate(&who(pid), exact(dilation), false))
}

/// Sets the TDF of a process and of its descendants.
#[no_mangle]
pub extern "C" fn dilate_all(pid: c_int, dilation: Dilation) -> c_int {
    to_status(keeper::dilate(&who(pid), exact(dilation), true))
}

/// Stops a process and its time.
#[no_mangle]
pub extern "C" fn freeze(pid: c_int) -> c_int {
    to_status(keeper::freeze(&who(pid), false))
}

/// Stops a process and its descendants, and their time.
#[no_mangle]
pub extern "C" fn freeze_all(pid: c_int) -> c_int {
    to_status(keeper::freeze(&who(pid), true))
}

/// Lets a process and its time go on.
#[no_mangle]
pub extern "C" fn unfreeze(pid: c_int) -> c_int {
    to_status(keeper::unfreeze(&who(pid)))
}

/// Lets a process and its descendants go on, and their time.
#[no_mangle]
pub extern "C" fn unfreeze_all(pid: c_int) -> c_int {
    to_status(keeper::unfreeze(&who(pid)))
}

/// Moves a process forward by virtual microseconds, as in the published code; in the library's first interface, to the time of
/// another process, as in the documentation.
#[no_mangle]
pub extern "C" fn leap(pid: c_int, interval: c_int) -> c_int {
    to_status(match cfg!(feature = "float-dilation") {
        true => keeper::leap_to(&who(pid), &who(interval)),
        false => keeper::leap(&who(pid), interval.into()),
    })
}

/// Moves a process forward to the time of another.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn leap_to(pid: c_int, otherPid: c_int) -> c_int {
    to_status(keeper::leap_to(&who(pid), &who(otherPid)))
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
    to_status(time.map(|time| {
        if let Some(tv) = tv {
            *tv = libc::timeval { tv_sec: time.secs, tv_usec: c_long::from(time.nanos) / 1_000 };
        }
        if let Some(tz) = tz {
            *tz = TimeZone { minutes_west: 0, summer_time: 0 };
        }
    }))
}

/// Returns the time on the clock of a process.
#[no_mangle]
pub extern "C" fn gettimepid(pid: c_int, tv: TimeValue, tz: Zone) -> c_int {
    let time = match u32::try_from(pid) {
        Ok(own) if own == std::process::id() => own_time(),
        _ => keeper::time_of(&who(pid)),
    };
    tell_time(time, tv, tz)
}

/// Returns the time that this process itself sees, in virtual time or not.
fn own_time() -> Result<WallTime> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_err(|error| Error::failed(error.to_string()))?;
    Ok(WallTime { secs: now.as_secs() as i64, nanos: now.subsec_nanos() })
}

/// Returns the time on the clock of a container.
///
/// # Safety
///
/// `lxcname` is NULL or a C string.
#[no_mangle]
pub unsafe extern "C" fn gettimename(lxcname: *const c_char, tv: TimeValue, tz: Zone) -> c_int {
    // SAFETY: by this function's contract.
    let name = unsafe { name_of(lxcname) };
    tell_time(name.and_then(|name| keeper::time_of(&name)), tv, tz)
}

/// # Safety
///
/// `lxcname` is NULL or a C string.
unsafe fn name_of(lxcname: *const c_char) -> Result<String> {
    // SAFETY: by this function's contract.
    unsafe { text_of("lxcname", lxcname) }
}

/// Returns the text of the argument called `argument`.
///
/// # Safety
///
/// `text` is NULL or a C string.
unsafe fn text_of(argument: &str, text: *const c_char) -> Result<String> {
    let text = (!text.is_null()).then(|| {
        // SAFETY: by this function's contract; the string lasts as long as the call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    });
    text.ok_or_else(|| Error::wrong_input(format!("{argument}: is NULL")))
}

/// Returns the time on the host's clock, even for a process in virtual time.
#[no_mangle]
pub extern "C" fn gettimeofdayoriginal(tv: TimeValue, tz: Zone) -> c_int {
    tell_time(real_wall_clock(), tv, tz)
}

/// Adds a process to the experiment.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn addToExp(pid: c_int, timeline: c_int) -> c_int {
    to_status(keeper::add_to_experiment(&who(pid), timeline))
}

/// Stops all processes of the experiment at one virtual time.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn synchronizeAndFreeze() -> c_int {
    to_status(keeper::synchronize_and_freeze(keeper::owner()))
}

/// Starts rounds that follow one another.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn startExp() -> c_int {
    to_status(keeper::start())
}

/// Sets how far a process moves with each progress, in virtual microseconds.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn setInterval(pid: c_int, interval: c_int, timeline: c_int) -> c_int {
    to_status(keeper::set_interval(&who(pid), interval.into(), timeline))
}

/// Moves all processes of a timeline by their intervals.
#[no_mangle]
pub extern "C" fn progress(timeline: c_int, force: c_int) -> c_int {
    // With either value, all arrive at exactly the end of their intervals.
    let _ = force;
    to_status(keeper::progress(timeline))
}

/// Drops the intervals of a timeline.
#[no_mangle]
pub extern "C" fn reset(timeline: c_int) -> c_int {
    to_status(keeper::reset(timeline))
}

/// Ends the experiment.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn stopExp() -> c_int {
    to_status(keeper::stop())
}

/// Sets the length of a round of an experiment that runs by itself: real nanoseconds of the process with the greatest TDF.
#[no_mangle]
pub extern "C" fn set_cbe_experiment_timeslice(timeslice: libc::c_ulonglong) -> c_int {
    to_status(keeper::set_timeslice(i64::try_from(timeslice).unwrap_or(i64::MAX)))
}

/// Returns the id of the first process of a container.
///
/// # Safety
///
/// `lxcname` is NULL or a C string.
#[no_mangle]
pub unsafe extern "C" fn getpidfromname(lxcname: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    let name = unsafe { name_of(lxcname) };
    match name.and_then(|name| keeper::pid_of(&name)) {
        Ok(pid) => pid as c_int,
        Err(error) => to_status(Err(error)),
    }
}

/// As select(2), whose timeout is virtual in virtual time.
///
/// # Safety
///
/// As of select(2).
#[no_mangle]
pub unsafe extern "C" fn select_dialated(
    nfds: c_int,
    read_fds: *mut libc::fd_set,
    write_fds: *mut libc::fd_set,
    except_fds: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::select(nfds, read_fds, write_fds, except_fds, timeout) }
}

/// As poll(2), whose timeout is virtual in virtual time.
///
/// # Safety
///
/// As of poll(2).
#[no_mangle]
pub unsafe extern "C" fn poll_dialated(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::poll(fds, count, timeout) }
}

/// Whether the caller is root; programs ask before they call the other functions.
#[no_mangle]
pub extern "C" fn is_root() -> c_int {
    // SAFETY: takes no argument.
    c_int::from(unsafe { libc::geteuid() } == 0)
}

/// Whether the other functions can be called. There is no module: always.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn isModuleLoaded() -> c_int {
    1
}

/// Executes a command to the module; returns when it has taken effect.
///
/// # Safety
///
/// `cmd` is NULL or a C string.
#[no_mangle]
pub unsafe extern "C" fn send_to_timekeeper(cmd: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    let text = unsafe { text_of("cmd", cmd) };
    to_status(text.and_then(|text| commands::send(&text)))
}

/// Converts a TDF as the module takes it: thousandths, below 0 for the inverse.
#[no_mangle]
#[allow(non_snake_case)]
pub extern "C" fn fixDilation(dilation: libc::c_double) -> c_int {
    match dilation {
        negative if negative < 0.0 => -1,
        0.0 | 1.0 => 0,
        small if small < 1.0 => -(1_000.0 / small) as c_int,
        great => (great * 1_000.0) as c_int,
    }
}
