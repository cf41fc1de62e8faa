//! Measures the cost of a clock read and the lateness of a sleep, sample by sample: Kirova et al. 2019, section 2.3.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use lorentz_study::protocol::{Nanos, Sample, Ticks};
use lorentz_study::Metric;
use lorentz_timers::{sleep, Interval, Moment};

use crate::{calls, stopwatch};

/// Reads in one sample. The cost of the stopwatch is spread over them.
const CALLS_PER_SAMPLE: u64 = 16;
/// Samples before those that count. In them the precise timers learn the lateness of the kernel.
const LEARNING_SLEEPS: u64 = 20;

/// Takes `count` samples of `metric`.
pub fn samples(metric: Metric, count: u64) -> io::Result<Vec<Sample>> {
    let of = |one: &dyn Fn(u64) -> Sample| {
        (0..LEARNING_SLEEPS).map(one).for_each(drop);
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
            // SAFETY: usleep takes any number.
            slept(length, || unsafe {
                libc::usleep(length.as_micros() as libc::c_uint);
            })
        }),
        other => return Err(io::Error::other(format!("{other:?} has no samples"))),
    })
}

fn cost(mut read: impl FnMut()) -> Sample {
    let elapsed = stopwatch::time(|| (0..CALLS_PER_SAMPLE).for_each(|_| read()));
    Sample { calls: CALLS_PER_SAMPLE, elapsed, asked: Nanos(0) }
}

/// Returns the length of a sleep: 200 us to 1 ms, in scattered order.
fn length(turn: u64) -> Duration {
    Duration::from_micros(200 + turn * 37 % 800)
}

fn slept(length: Duration, work: impl FnOnce()) -> Sample {
    let elapsed: Ticks = stopwatch::time(work);
    Sample { calls: 1, elapsed, asked: Nanos(length.as_nanos() as i64) }
}
