//! Measures clocks and sleeps side by side, for `make bench ARGS=timers`, and prints JSON.
//!
//!     timers_bench cost SAMPLES        cost of one read of each clock, nanoseconds
//!     timers_bench miss SAMPLES [fifo] lateness of sleeps of 200 to 1000 us, nanoseconds
//!     timers_bench share SECONDS       CPU share of a loop of 1 ms and of 10 ms sleeps, percent
//!     timers_bench squares SECONDS     a load: 100 threads that compute square roots

use lorentz_timers::{sleep, use_fifo_scheduling, Interval, Moment, Reference, TimeSource};
use serde_json::{json, Map, Value};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Summarizes samples: median, MAD (half the interquartile range, as in the paper), least, most, and the CCDF. The CCDF
/// has the values that one sample in 10, 100, 1000 and 10,000 exceeds; as a curve it has ten points to a power of ten.
fn summary(mut samples: Vec<f64>) -> Value {
    samples.sort_by(f64::total_cmp);
    let count = samples.len();
    let at = |share: f64| samples[((count as f64 * share) as usize).min(count - 1)];
    let points = (0..).map(|tenths| 10_f64.powf(-f64::from(tenths) / 10.0));
    let points = points.take_while(|above| above * count as f64 >= 1.0);
    let curve: Vec<Value> = points.map(|above| json!([above, at(1.0 - above)])).collect();
    json!({
        "median": at(0.5), "mad": (at(0.75) - at(0.25)) / 2.0, "min": at(0.0), "max": at(1.0),
        "above": { "0.1": at(0.9), "0.01": at(0.99), "0.001": at(0.999), "0.0001": at(0.9999) },
        "curve": curve, "samples": count,
    })
}

fn vdso(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Returns the cost of one read, ns, from 16 reads in a row: the cost of the measurement itself is then negligible.
fn cost_of<T>(read: impl Fn() -> T) -> f64 {
    const TOGETHER: i64 = 16;
    let start = Moment::now();
    for _ in 0..TOGETHER {
        black_box(read());
    }
    Moment::now().since(start).nanos() as f64 / TOGETHER as f64
}

fn cost(samples: usize) -> Value {
    let clock = quanta::Clock::new();
    let reads: [(&str, &dyn Fn() -> f64); 7] = [
        ("moment", &|| cost_of(Moment::now)),
        ("moment_unordered", &|| cost_of(Moment::now_unordered)),
        ("monotonic", &|| cost_of(|| Reference::Monotonic.now())),
        ("clock_gettime", &|| cost_of(|| vdso(libc::CLOCK_MONOTONIC))),
        ("quanta", &|| cost_of(|| clock.now())),
        ("minstant", &|| cost_of(minstant::Instant::now)),
        ("std", &|| cost_of(Instant::now)),
    ];
    let mut found = vec![Vec::with_capacity(samples); reads.len()];
    for (_, read) in reads {
        (0..1_000).for_each(|_| assert!(read() >= 0.0));
    }
    for _ in 0..samples {
        for ((_, read), found) in reads.iter().zip(&mut found) {
            found.push(read());
        }
    }
    let names = reads.iter().map(|(name, _)| name.to_string());
    Value::Object(names.zip(found.into_iter().map(summary)).collect())
}

#[inline]
fn usleep(length: &Length) {
    // SAFETY: usleep accepts any number.
    unsafe { libc::usleep(length.standard.as_micros() as libc::c_uint) };
}

/// A length in the type of each function that sleeps, so that a sleep does not include the conversion.
struct Length {
    standard: Duration,
    precise: Interval,
}

impl Length {
    fn micros(micros: u64) -> Length {
        let precise = Interval::from_micros(micros as i64).expect("a short sleep");
        Length { standard: Duration::from_micros(micros), precise }
    }
}

#[inline]
fn precise(length: &Length) {
    sleep(length.precise);
}

#[inline]
fn spinning(length: &Length) {
    spin_sleep::sleep(length.standard);
}

type Sleep = (&'static str, fn(&Length));
const SLEEPS: [Sleep; 3] = [("lorentz", precise), ("spin_sleep", spinning), ("usleep", usleep)];

/// Measures each kind of sleep in a thread of its own: the timer slack and the learnt lateness belong to a thread. Each
/// function is called directly, as programs call it.
fn miss(samples: usize, fifo: bool) -> Value {
    fn of(samples: usize, fifo: bool, kind: impl Fn(&Length) + Copy + Send + 'static) -> Value {
        let one = move |turn: usize| {
            let length = Length::micros(200 + turn as u64 * 37 % 800);
            let start = Moment::now();
            kind(&length);
            (Moment::now().since(start) - length.precise).nanos() as f64
        };
        let thread = std::thread::spawn(move || {
            if fifo {
                use_fifo_scheduling(50).expect("SCHED_FIFO");
            }
            let learnt: Vec<f64> = (0..50).map(one).collect();
            drop(learnt);
            (0..samples).map(one).collect::<Vec<f64>>()
        });
        summary(thread.join().expect("a thread that sleeps"))
    }
    json!({
        "lorentz": of(samples, fifo, precise),
        "spin_sleep": of(samples, fifo, spinning),
        "usleep": of(samples, fifo, usleep),
    })
}

/// Returns the user and system time of the process, s.
fn cpu_time() -> f64 {
    vdso(libc::CLOCK_PROCESS_CPUTIME_ID) as f64 * 1e-9
}

fn share(seconds: f64) -> Value {
    let mut found = Map::new();
    for (name, kind) in SLEEPS {
        for millis in [1u64, 10] {
            let length = Length::micros(millis * 1_000);
            let of = move || {
                // Do not measure the first sleeps, in which the thread learns its lateness.
                (0..20).for_each(|_| kind(&length));
                let (start, before) = (Instant::now(), cpu_time());
                while start.elapsed().as_secs_f64() < seconds {
                    kind(&length);
                }
                (cpu_time() - before) / start.elapsed().as_secs_f64() * 100.0
            };
            let percent = std::thread::spawn(of).join().expect("a thread that sleeps");
            found.insert(format!("{name}_{millis}ms"), json!(percent));
        }
    }
    Value::Object(found)
}

fn squares(seconds: f64) -> Value {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..100 {
            scope.spawn(move || {
                let mut value = f64::from(number) + 2.0;
                while start.elapsed().as_secs_f64() < seconds {
                    (0..10_000).for_each(|_| value = black_box((value + 1.0).sqrt()));
                }
                value
            });
        }
    });
    json!({ "threads": 100 })
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = words.get(1).and_then(|word| word.parse::<f64>().ok());
    let (Some(what), Some(number)) = (words.first(), number) else {
        eprintln!("usage: timers_bench cost|miss|share|squares NUMBER [fifo]");
        std::process::exit(2);
    };
    let found = match what.as_str() {
        "cost" => cost(number as usize),
        "miss" => miss(number as usize, words.get(2).is_some_and(|word| word == "fifo")),
        "share" => share(number),
        "squares" => squares(number),
        other => {
            eprintln!("timers_bench: {other}: expected cost, miss, share or squares");
            std::process::exit(2);
        }
    };
    let about = json!({
        "source": TimeSource::in_force().to_string(), "reason": TimeSource::reason(),
        "hertz": TimeSource::hertz(), "found": found,
    });
    println!("{about}");
}
