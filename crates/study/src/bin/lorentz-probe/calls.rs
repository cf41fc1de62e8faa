//! Measures many calls in a row; a sample is their mean.

use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_int, c_long, clockid_t, itimerspec, timer_t, timespec, timeval};
use lorentz_study::protocol::{Nanos, Sample, Ticks};
use lorentz_study::Metric;
use lorentz_timers::tsc;

use crate::stopwatch;

/// A sleep of the paper (section VI A).
const SLEEP_LENGTH: Nanos = Nanos(100_000_000);
/// Expiration time of armed timers. None expires during a study.
const HOUR: itimerspec = itimerspec {
    it_interval: timespec { tv_sec: 0, tv_nsec: 0 },
    it_value: timespec { tv_sec: 3_600, tv_nsec: 0 },
};
/// Timers that exist at once. The usual limits of descriptors and of queued signals are higher.
const BATCH_LEN: u64 = 128;
/// Clock reads between two reads of the stopwatch.
const STRIDE: u64 = 1_000;
const MAX_WARM_UP: u64 = 10_000;

/// Measures `count` calls, after a tenth as many to warm up. Sleeps have no warm-up.
pub fn mean(metric: Metric, count: u64) -> io::Result<Sample> {
    if matches!(metric, Metric::Nanosleep | Metric::ClockNanosleep) {
        return repeated(metric, count).map(|elapsed| sample(count, elapsed, SLEEP_LENGTH));
    }
    repeated(metric, (count / 10).clamp(1, MAX_WARM_UP))?;
    repeated(metric, count).map(|elapsed| sample(count, elapsed, Nanos(0)))
}

fn sample(calls: u64, elapsed: Ticks, asked: Nanos) -> Sample {
    Sample { calls, elapsed, asked }
}

/// Reads a clock for `millis` of real time, as the patch set's gettime_perf does.
pub fn in_a_row(metric: Metric, millis: u64) -> io::Result<Sample> {
    let clock = match metric {
        Metric::HotBoottime => libc::CLOCK_BOOTTIME,
        _ => libc::CLOCK_MONOTONIC,
    };
    let hertz = about_hertz()?;
    let stretch = (hertz / 1_000).saturating_mul(millis) as i64;
    let read = || {
        for _ in 0..STRIDE {
            vdso(clock);
        }
    };
    read();
    let mut calls = 0;
    let start = stopwatch::now();
    loop {
        read();
        calls += STRIDE;
        let elapsed = stopwatch::now() - start;
        if elapsed >= stretch {
            return Ok(sample(calls, Ticks(elapsed), Nanos(0)));
        }
    }
}

/// Returns the counter's frequency, Hz, by the processor's data or by a clock of the level. It only decides when to stop.
fn about_hertz() -> io::Result<u64> {
    if let Some(hertz) = tsc::reported_hertz() {
        return Ok(hertz);
    }
    let start = (stopwatch::now(), lorentz_timers::os::read(libc::CLOCK_MONOTONIC));
    loop {
        let ticks = stopwatch::now() - start.0;
        let nanos = lorentz_timers::os::read(libc::CLOCK_MONOTONIC) - start.1;
        if nanos > 10_000_000 {
            return Ok((ticks as f64 / nanos as f64 * 1e9) as u64);
        }
    }
}

fn repeated(metric: Metric, count: u64) -> io::Result<Ticks> {
    match metric {
        Metric::Harness => {
            let nothing: fn() -> c_int = black_box(|| 0);
            each(count, nothing)
        }
        Metric::ClockGetres => {
            each(count, || syscall(libc::SYS_clock_getres, libc::CLOCK_MONOTONIC))
        }
        Metric::ClockGettimeMonotonic => {
            each(count, || syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC))
        }
        Metric::ClockGettimeBoottime => {
            each(count, || syscall(libc::SYS_clock_gettime, libc::CLOCK_BOOTTIME))
        }
        Metric::VdsoClockGettimeMonotonic => each(count, || vdso(libc::CLOCK_MONOTONIC)),
        Metric::VdsoClockGettimeBoottime => each(count, || vdso(libc::CLOCK_BOOTTIME)),
        Metric::Gettimeofday => each(count, gettimeofday_syscall),
        Metric::VdsoGettimeofday => each(count, gettimeofday),
        Metric::Nanosleep => each(count, nanosleep),
        Metric::ClockNanosleep => each(count, clock_nanosleep),
        Metric::TimerCreate => posix_timers(count).map(|(made, _)| made),
        Metric::TimerDelete => posix_timers(count).map(|(_, deleted)| deleted),
        Metric::TimerSettime => with_timer(|timer| {
            // SAFETY: the timer exists. The pointer for the old setting is null.
            each(count, || unsafe { libc::timer_settime(timer, 0, &HOUR, ptr::null_mut()) })
        }),
        Metric::TimerGetoverrun => with_timer(|timer| {
            // SAFETY: the timer exists.
            each(count, || unsafe { libc::timer_getoverrun(timer) })
        }),
        Metric::TimerfdCreate => timerfds(count),
        Metric::TimerfdSettime => timerfd_settime(count),
        other => Err(io::Error::other(format!("{other:?} is no call"))),
    }
}

/// Measures `count` calls. An error if one does not return 0.
#[inline(always)]
fn each(count: u64, mut call: impl FnMut() -> c_int) -> io::Result<Ticks> {
    let mut wrong = 0;
    let elapsed = stopwatch::time(|| {
        for _ in 0..count {
            wrong |= black_box(call());
        }
    });
    good(wrong == 0).map(|()| elapsed)
}

fn good(is_good: bool) -> io::Result<()> {
    is_good.then_some(()).ok_or_else(io::Error::last_os_error)
}

#[inline(always)]
pub fn vdso(clock: clockid_t) -> c_int {
    let mut now = MaybeUninit::<timespec>::uninit();
    // SAFETY: the call writes to our own `now`.
    unsafe { libc::clock_gettime(clock, black_box(now.as_mut_ptr())) }
}

#[inline(always)]
fn syscall(number: c_long, clock: clockid_t) -> c_int {
    let mut now = MaybeUninit::<timespec>::uninit();
    // SAFETY: clock_getres and clock_gettime, the two calls that come here, take a clock and write a timespec.
    unsafe { libc::syscall(number, clock, now.as_mut_ptr()) as c_int }
}

#[inline(always)]
fn gettimeofday() -> c_int {
    let mut now = MaybeUninit::<timeval>::uninit();
    // SAFETY: the call writes to our own `now`.
    unsafe { libc::gettimeofday(black_box(now.as_mut_ptr()), ptr::null_mut()) }
}

#[inline(always)]
fn gettimeofday_syscall() -> c_int {
    let mut now = MaybeUninit::<timeval>::uninit();
    let nothing = ptr::null_mut::<libc::timezone>();
    // SAFETY: the call writes to our own `now`.
    unsafe { libc::syscall(libc::SYS_gettimeofday, now.as_mut_ptr(), nothing) as c_int }
}

fn a_sleep() -> timespec {
    timespec { tv_sec: 0, tv_nsec: SLEEP_LENGTH.0 }
}

fn nanosleep() -> c_int {
    // SAFETY: the kernel reads our timespec. It writes no remaining time, for that pointer is null.
    unsafe { libc::nanosleep(&a_sleep(), ptr::null_mut()) }
}

fn clock_nanosleep() -> c_int {
    // SAFETY: as in `nanosleep`.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &a_sleep(), ptr::null_mut()) }
}

fn make_timer() -> io::Result<timer_t> {
    // SAFETY: all zeroes are a valid sigevent. SIGEV_NONE needs no other field than sigev_notify.
    let mut nobody: libc::sigevent = unsafe { std::mem::zeroed() };
    nobody.sigev_notify = libc::SIGEV_NONE;
    let mut timer = MaybeUninit::uninit();
    // SAFETY: the sigevent is initialized, and `timer` has room for a timer_t.
    let result =
        unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut nobody, timer.as_mut_ptr()) };
    good(result == 0)?;
    // SAFETY: timer_create succeeded, and so it has written the timer_t.
    Ok(unsafe { timer.assume_init() })
}

fn delete_timer(timer: timer_t) -> io::Result<()> {
    // SAFETY: the caller made the timer and does not use it again.
    good(unsafe { libc::timer_delete(timer) } == 0)
}

fn with_timer<T>(work: impl FnOnce(timer_t) -> io::Result<T>) -> io::Result<T> {
    let timer = make_timer()?;
    let done = work(timer);
    delete_timer(timer)?;
    done
}

/// Makes and deletes `count` timers, a batch at a time. Returns the times of creation and of deletion.
fn posix_timers(count: u64) -> io::Result<(Ticks, Ticks)> {
    let (mut made, mut deleted) = (0, 0);
    for batch in batches(count) {
        let mut timers = Vec::with_capacity(batch as usize);
        let mut result = Ok(());
        made += stopwatch::time(|| {
            for _ in 0..batch {
                match make_timer() {
                    Ok(timer) => timers.push(timer),
                    Err(error) => result = Err(error),
                }
            }
        })
        .0;
        result?;
        let mut result = Ok(());
        deleted += stopwatch::time(|| {
            for timer in timers {
                if let Err(error) = delete_timer(timer) {
                    result = Err(error);
                }
            }
        })
        .0;
        result?;
    }
    Ok((Ticks(made), Ticks(deleted)))
}

fn batches(count: u64) -> impl Iterator<Item = u64> {
    (0..count.div_ceil(BATCH_LEN)).map(move |number| BATCH_LEN.min(count - number * BATCH_LEN))
}

fn make_timerfd() -> c_int {
    // SAFETY: both arguments are plain numbers.
    unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) }
}

fn timerfds(count: u64) -> io::Result<Ticks> {
    let mut elapsed = 0;
    for batch in batches(count) {
        let mut files = Vec::with_capacity(batch as usize);
        elapsed += stopwatch::time(|| {
            for _ in 0..batch {
                files.push(make_timerfd());
            }
        })
        .0;
        good(files.iter().all(|file| *file >= 0))?;
        for file in files {
            // SAFETY: the descriptor is ours, and nothing uses it again.
            unsafe { libc::close(file) };
        }
    }
    Ok(Ticks(elapsed))
}

fn timerfd_settime(count: u64) -> io::Result<Ticks> {
    let file = make_timerfd();
    good(file >= 0)?;
    // SAFETY: the descriptor is open. The pointer for the old setting is null.
    let done = each(count, || unsafe { libc::timerfd_settime(file, 0, &HOUR, ptr::null_mut()) });
    // SAFETY: the descriptor is ours, and nothing uses it again.
    unsafe { libc::close(file) };
    done
}
