//! The clocks of containers.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use lorentz_embed::{
    rate_of_tdf, AttachOptions, Container, Error, Rate, Reading, Result, Span, Target, WallTime,
};

use crate::ffi_text::{given, optional_text, text, to_status};

/// `lorentz_time_t` of the header.
#[repr(C)]
pub struct LorentzTime {
    wall: libc::timespec,
    host_wall: libc::timespec,
    monotonic_ns: i64,
    boottime_ns: i64,
    host_monotonic_ns: i64,
    limit_ns: i64,
    tdf: f64,
    frozen: c_int,
}

impl From<Reading> for LorentzTime {
    fn from(reading: Reading) -> LorentzTime {
        let wall =
            |time: WallTime| libc::timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
        LorentzTime {
            wall: wall(reading.wall),
            host_wall: wall(reading.host_wall),
            monotonic_ns: reading.virt.0,
            boottime_ns: reading.boot.0,
            host_monotonic_ns: reading.real.0,
            limit_ns: reading.limit.map_or(i64::MAX, |limit| limit.0),
            tdf: reading.rate.inverse().as_f64(),
            frozen: reading.frozen.into(),
        }
    }
}

fn with(container: *const c_char, act: impl FnOnce(Container) -> Result<()>) -> c_int {
    to_status(text("container", container).and_then(Container::find).and_then(act))
}

/// Reads the container's clocks and the host's, of one moment.
#[no_mangle]
pub extern "C" fn lorentz_time(
    container: *const c_char,
    time: Option<&mut MaybeUninit<LorentzTime>>,
) -> c_int {
    with(container, |container| {
        given("time", time)?.write(container.reading()?.into());
        Ok(())
    })
}

/// Changes the container's TDF.
#[no_mangle]
pub extern "C" fn lorentz_dilate(container: *const c_char, tdf: f64) -> c_int {
    with(container, |container| container.dilate(rate_of_tdf(tdf)?, None))
}

/// Stops the container's clock and tasks.
#[no_mangle]
pub extern "C" fn lorentz_freeze(container: *const c_char) -> c_int {
    with(container, |container| container.freeze(None))
}

/// Lets the container's clock and tasks go on.
#[no_mangle]
pub extern "C" fn lorentz_unfreeze(container: *const c_char) -> c_int {
    with(container, |container| container.unfreeze(None))
}

/// Moves the container's clocks forward by a span.
#[no_mangle]
pub extern "C" fn lorentz_leap(container: *const c_char, by_ns: i64) -> c_int {
    with(container, |container| container.leap(Target::By(Span(by_ns)), None))
}

/// Moves the container's clocks forward to another container's wall clock.
#[no_mangle]
pub extern "C" fn lorentz_leap_like(container: *const c_char, other: *const c_char) -> c_int {
    with(container, |container| {
        let other = Container::find(text("other", other)?)?;
        container.leap(Target::Like(other.reading()?.wall), None)
    })
}

/// Moves the container's wall clock.
#[no_mangle]
pub extern "C" fn lorentz_step(container: *const c_char, by_ns: i64) -> c_int {
    with(container, |container| container.step(Target::By(Span(by_ns)), None))
}

/// Reads a time of the host's wall clock.
fn announced(at: libc::timespec) -> Result<Option<WallTime>> {
    match u32::try_from(at.tv_nsec) {
        Ok(nanos @ 0..=999_999_999) => Ok(Some(WallTime { secs: at.tv_sec, nanos })),
        _ => Err(Error::wrong_input("at: expected nanoseconds from 0 to 999999999")),
    }
}

/// Changes the container's TDF at `at`.
#[no_mangle]
pub extern "C" fn lorentz_dilate_at(
    container: *const c_char,
    tdf: f64,
    at: libc::timespec,
) -> c_int {
    with(container, |container| container.dilate(rate_of_tdf(tdf)?, announced(at)?))
}

/// Stops the container's clock and tasks at `at`.
#[no_mangle]
pub extern "C" fn lorentz_freeze_at(container: *const c_char, at: libc::timespec) -> c_int {
    with(container, |container| container.freeze(announced(at)?))
}

/// Lets the container's clock and tasks go on at `at`.
#[no_mangle]
pub extern "C" fn lorentz_unfreeze_at(container: *const c_char, at: libc::timespec) -> c_int {
    with(container, |container| container.unfreeze(announced(at)?))
}

/// Moves the container's clocks forward at `at`.
#[no_mangle]
pub extern "C" fn lorentz_leap_at(
    container: *const c_char,
    by_ns: i64,
    at: libc::timespec,
) -> c_int {
    with(container, |container| container.leap(Target::By(Span(by_ns)), announced(at)?))
}

/// Moves the container's wall clock at `at`.
#[no_mangle]
pub extern "C" fn lorentz_step_at(
    container: *const c_char,
    by_ns: i64,
    at: libc::timespec,
) -> c_int {
    with(container, |container| container.step(Target::By(Span(by_ns)), announced(at)?))
}

/// Brings a running process into virtual time.
///
/// # Safety
///
/// `made` has room for `room` bytes, or is NULL.
#[no_mangle]
pub unsafe extern "C" fn lorentz_attach(
    pid: libc::pid_t,
    tdf: f64,
    tree: c_int,
    name: *const c_char,
    made: *mut c_char,
    room: usize,
) -> c_int {
    let attach = || -> Result<Container> {
        let rate: Rate = rate_of_tdf(tdf)?;
        let name = optional_text("name", name)?;
        let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0);
        let pid =
            pid.ok_or_else(|| Error::wrong_input("pid: expected the number of a running process"))?;
        let name = name.map(str::to_string);
        Container::attach(
            pid,
            &AttachOptions { rate, tree: tree != 0, name, for_experiment: false },
        )
    };
    to_status(attach().map(|container| {
        let name = container.name().as_bytes();
        if !made.is_null() && room > 0 {
            let length = name.len().min(room - 1);
            // SAFETY: the contract of this function requires room for `length` bytes and one more.
            unsafe {
                std::ptr::copy_nonoverlapping(name.as_ptr().cast(), made, length);
                made.add(length).write(0);
            }
        }
    }))
}
