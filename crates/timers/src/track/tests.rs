use super::*;
use proptest::prelude::*;
use std::cell::Cell;

/// A clock beside a counter of 2.6 GHz. The clock is `off` parts per million fast; each sample is up to `noise`
/// nanoseconds off.
struct World {
    ticks: Cell<i64>,
    clock: Cell<f64>,
    off: Cell<f64>,
    noise: f64,
    seed: Cell<u64>,
}

const HERTZ: f64 = 2.6e9;

impl World {
    fn new(off: f64, noise: f64) -> World {
        let (ticks, clock) = (Cell::new(1_000_000), Cell::new(5e9));
        World { ticks, clock, off: Cell::new(off), noise, seed: Cell::new(1) }
    }

    fn pass(&self, seconds: f64) {
        self.ticks.set(self.ticks.get() + (seconds * HERTZ) as i64);
        self.clock.set(self.clock.get() + seconds * 1e9 * (1.0 + self.off.get() * 1e-6));
    }

    fn sample(&self) -> Option<TrackSample> {
        let random =
            self.seed.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.seed.set(random);
        let noise = self.noise * ((random >> 33) as f64 / (1u64 << 30) as f64 - 1.0);
        Some(TrackSample { ticks: self.ticks.get(), nanos: (self.clock.get() + noise) as i64 })
    }

    /// Reads the track as a program does: takes a sample first if one is due.
    fn read(&self, track: &Track) -> Option<i64> {
        let counter = || self.ticks.get();
        if track.is_due(counter()) {
            track.follow(&counter, || self.sample());
        }
        track.at(self.ticks.get(), counter)
    }
}

const MAX_SAMPLE_INTERVAL: i64 = 100_000_000;

#[test]
fn nothing_is_told_before_the_rate_is_known() {
    let (world, track) = (World::new(0.0, 0.0), Track::new(MAX_SAMPLE_INTERVAL));
    assert_eq!(world.read(&track), None);
    world.pass(0.001);
    assert_eq!(world.read(&track), None);
    world.pass(0.002);
    assert!((world.read(&track).unwrap() as f64 - world.clock.get()).abs() < 2.0);
    assert_eq!(track.resets(), 0);
}

#[test]
fn hours_of_a_changing_clock_are_followed() {
    let (world, track) = (World::new(40.0, 20.0), Track::new(MAX_SAMPLE_INTERVAL));
    let mut before = i64::MIN;
    for step in 0..200_000 {
        // The rate wanders by up to 60 ppm, like that of a clock disciplined by NTP.
        world.off.set(40.0 + 60.0 * (f64::from(step) / 9_000.0).sin());
        world.pass(0.05);
        let Some(now) = world.read(&track) else { continue };
        assert!(now >= before, "{before} then {now}");
        before = now;
        if step > 100 {
            let error = now as f64 - world.clock.get();
            assert!(error.abs() < 400.0, "{error} ns off after {step} steps");
        }
    }
    assert_eq!(track.resets(), 0);
}

#[test]
fn a_clock_that_was_left_alone_is_caught_up_with_without_a_jump() {
    let (world, track) = (World::new(3.0, 20.0), Track::new(MAX_SAMPLE_INTERVAL));
    for _ in 0..100 {
        world.pass(0.02);
        world.read(&track);
    }
    world.off.set(3.2);
    world.pass(3600.0);
    let (mut before, mut error) = (world.read(&track).unwrap(), f64::NAN);
    for _ in 0..1000 {
        world.pass(0.01);
        let now = world.read(&track).unwrap();
        let step = (now - before) as f64;
        assert!((step / 1e7 - 1.0).abs() < 600e-6, "a step of {step} ns in 10 ms");
        error = now as f64 - world.clock.get();
        before = now;
    }
    assert!(error.abs() < 200.0, "{error} ns off");
}

#[test]
fn a_clock_that_was_set_is_begun_anew() {
    let (world, track) = (World::new(0.0, 5.0), Track::new(MAX_SAMPLE_INTERVAL));
    for _ in 0..50 {
        world.pass(0.02);
        world.read(&track);
    }
    for leap in [3600e9, -7200e9] {
        world.clock.set(world.clock.get() + leap);
        for _ in 0..30 {
            world.pass(0.02);
            world.read(&track);
        }
        let error = world.read(&track).unwrap() as f64 - world.clock.get();
        assert!(error.abs() < 100.0, "{error}");
    }
    assert_eq!(track.resets(), 2);
}

#[test]
fn moments_convert_as_they_did() {
    let (world, track) = (World::new(10.0, 20.0), Track::new(MAX_SAMPLE_INTERVAL));
    let mut readings: Vec<(i64, i64)> = Vec::new();
    for _ in 0..500 {
        world.pass(0.03);
        if let Some(now) = world.read(&track) {
            readings.push((world.ticks.get(), now));
        }
        // Three pieces back at most, of 100 ms each.
        for (ticks, nanos) in readings.iter().rev().take(8) {
            assert_eq!(track.at(*ticks, || world.ticks.get()), Some(*nanos));
        }
    }
}

proptest! {
    #[test]
    fn never_backwards_whatever_the_clock_does(
        steps in proptest::collection::vec((1u32..200, -450.0..450.0f64), 50..400),
        noise in 0.0..500.0f64,
    ) {
        let (world, track) = (World::new(0.0, noise), Track::new(MAX_SAMPLE_INTERVAL));
        let mut before = i64::MIN;
        for (millis, off) in steps {
            world.off.set(off);
            world.pass(f64::from(millis) * 1e-3);
            if let Some(now) = world.read(&track) {
                prop_assert!(now >= before, "{} then {}", before, now);
                before = now;
            }
        }
    }
}

#[test]
fn never_backwards_across_threads() {
    use std::sync::atomic::AtomicI64;
    use std::time::{Duration, Instant};
    let start = Instant::now();
    let counter = || start.elapsed().as_nanos() as i64 + 1;
    let sample = |off: i64| {
        let ticks = counter();
        Some(TrackSample { ticks, nanos: ticks + off })
    };
    let track = Track::new(50_000);
    // Pieces change every 10 us, each at another rate. Each reader passes the time it has read to the others.
    let latest = AtomicI64::new(i64::MIN);
    let turn = |number: u64| {
        let mut reads = 0u64;
        while start.elapsed() < Duration::from_millis(300) {
            let seen = latest.load(Ordering::Acquire);
            let Some(now) = track.now(counter(), counter) else {
                track.follow(&counter, || sample(0));
                continue;
            };
            assert!(now >= seen, "thread {number}: {seen} was read, then {now}");
            latest.fetch_max(now, Ordering::AcqRel);
            reads += 1;
            if reads % 50 == number {
                track.due.store(0, Ordering::Relaxed);
                let wobble = (reads as i64 % 7 - 3) * 10;
                track.follow(&counter, || sample(wobble));
            }
        }
        reads
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || turn(number))).collect();
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
    });
    assert!(track.latest.load(Ordering::Relaxed) > 10 && track.resets() == 0);
}
