//! The timers' clocks, compared with the system's, and on many threads.

use lorentz_timers::{Moment, Reference};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Reads the system's clock between two reads of the timers' clock. Returns how far, in ns, it lies outside.
fn off(reference: Reference) -> i64 {
    let read = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a local variable.
        unsafe { libc::clock_gettime(reference.id(), &mut now) };
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    let one = || {
        let before = read();
        let ours = reference.now();
        let after = read();
        (ours - ours.clamp(before, after), after - before)
    };
    // Take the narrowest of some samples: another program may have used the processor during the others.
    (0..20).map(|_| one()).min_by_key(|(_, width)| *width).unwrap().0
}

/// Returns the duration of the test. LORENTZ_TIMERS_TEST_SECONDS=60 makes it a minute or more.
fn test_time() -> Duration {
    let seconds =
        std::env::var("LORENTZ_TIMERS_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(3.0))
}

#[test]
fn the_clocks_of_the_system_are_followed() {
    let (start, mut worst) = (Instant::now(), [0i64; 4]);
    while start.elapsed() < test_time() {
        for (reference, worst) in Reference::ALL.into_iter().zip(&mut worst) {
            *worst = (*worst).max(off(reference).abs());
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    println!("worst, nanoseconds: {worst:?}");
    // A clock that NTP begins to slew deviates by 500 ppm of the 100 ms between samples.
    for (reference, worst) in Reference::ALL.into_iter().zip(worst) {
        // On a quiet machine the deviation is some 100 ns. It is more if the machine takes the processor away between
        // two reads.
        let bound = if reference == Reference::MonotonicRaw { 20_000 } else { 60_000 };
        assert!(worst <= bound, "{reference:?} is {worst} ns off");
        assert!(reference == Reference::Realtime || reference.resets() == 0, "{reference:?}");
    }
}

#[test]
fn moments_are_where_the_raw_clock_was() {
    let mut before = i64::MIN;
    for _ in 0..2_000 {
        let moment = Moment::now();
        let nanos = moment.nanos();
        assert!(nanos >= before && nanos == moment.nanos(), "{before} then {nanos}");
        before = nanos;
    }
}

fn pin_to(cpu: usize) {
    // SAFETY: the set is a local variable, and concerns only this thread. A processor that is not available changes
    // nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

/// Each thread reads the latest time that the others have published, then takes a time of its own. Meanwhile it wanders
/// over the processors.
fn never_backwards(take: impl Fn() -> i64 + Sync) {
    let (latest, over) = (AtomicI64::new(i64::MIN), AtomicBool::new(false));
    let turn = |number: usize| {
        let mut turns = 0u64;
        while !over.load(Ordering::Relaxed) {
            if turns.is_multiple_of(2_000) {
                pin_to((turns as usize / 2_000 + number) % 2);
            }
            let seen = latest.load(Ordering::Acquire);
            let now = take();
            assert!(now >= seen, "thread {number}: {seen} was read, then {now}");
            latest.fetch_max(now, Ordering::AcqRel);
            turns += 1;
        }
        turns
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || turn(number))).collect();
        std::thread::sleep(Duration::from_millis(700));
        over.store(true, Ordering::Relaxed);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() > 1_000));
    });
}

#[test]
fn moments_never_go_back_across_threads_and_processors() {
    never_backwards(|| Moment::now().ticks());
}

#[test]
fn clocks_never_go_back_across_threads_and_processors() {
    never_backwards(|| Reference::MonotonicRaw.now());
    never_backwards(|| Reference::Monotonic.now());
}

#[test]
fn a_child_of_fork_follows_on() {
    let before = Moment::now().nanos();
    // SAFETY: the child only reads clocks and exits.
    match unsafe { libc::fork() } {
        0 => {
            let after = Moment::now().nanos();
            let good = after >= before && off(Reference::Monotonic).abs() < 100_000;
            // SAFETY: the call ends the child without the parent's exit handlers.
            unsafe { libc::_exit(if good { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the process is a child of this one.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
    }
}
