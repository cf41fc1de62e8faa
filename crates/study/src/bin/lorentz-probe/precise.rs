//! What a read of a clock costs, and how late a sleep ends, one by one: Kirova et al. 2019, section 2.3.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use lorentz_study::protocol::{Nanos, Sample, Ticks};
use lorentz_study::Metric;
use lorentz_timers::{sleep, Interval, Moment};

use crate::{calls, stopwatch};

/// Reads in one sample, so that what the stopwatch costs does not count.
const TOGETHER: u64 = 16;
/// Sleeps before those that count: the precise timers learn how late the kernel is.
const LEARNT: u64 = 20;

/// `count` samples of `metric`.
pub fn samples(metric: Metric, count: u64) -> io::Result<Vec<Sample>> {
    let of = |one: &dyn Fn(u64) -> Sample| {
        (0..LEARNT).map(one).for_each(drop);
        (0..count).map(one).collect()
    };
    Ok(match metric {
        Metric::CostMoment => of(&|_| {
            cost(|| {
                black_box(Moment::now());
            })
        }),
        Metric::CostClockGettime => of(&|_| {
            cost(|| {
                calls::vdso(libc::CLOCK_MONOTONIC);
            })
        }),
        Metric::MissSleep => of(&|turn| {
            let length = length(turn);
            let nanos = Interval::from_nanos(length.as_nanos() as i64).expect("below a second");
            slept(length, || sleep(nanos))
        }),
        Metric::MissUsleep => of(&|turn| {
            let length = length(turn);
            // SAFETY: any number is a length.
            slept(length, || unsafe {
                libc::usleep(length.as_micros() as libc::c_uint);
            })
        }),
        other => return Err(io::Error::other(format!("{other:?} has no samples"))),
    })
}

fn cost(mut read: impl FnMut()) -> Sample {
    let elapsed = stopwatch::time(|| (0..TOGETHER).for_each(|_| read()));
    Sample { calls: TOGETHER, elapsed, asked: Nanos(0) }
}

/// From 200 us to 1 ms, in no order.
fn length(turn: u64) -> Duration {
    Duration::from_micros(200 + turn * 37 % 800)
}

fn slept(length: Duration, work: impl FnOnce()) -> Sample {
    let elapsed: Ticks = stopwatch::time(work);
    Sample { calls: 1, elapsed, asked: Nanos(length.as_nanos() as i64) }
}
