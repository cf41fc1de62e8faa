//! The estimators on simulated paths with hundreds of random capacities and loads.

use lorentz_bandwidth::simulation::{Model, Simulation};
use lorentz_bandwidth::{
    measure, BitRate, Bound, Caution, Estimate, Limits, Method, Path, PathError, Stream, StreamPlan,
};

fn estimate(model: Model, method: Method) -> Estimate {
    measure(&mut Simulation::new(model), method, &mut |_| {}).expect("a simulated path")
}

/// Returns a path of 10 Mbit/s to 10 Gbit/s with 0 to 80 % of cross traffic. The same number gives the same path.
fn random_path(number: u64) -> Model {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let capacity = 10f64.powf(7.0 + 3.0 * uniform());
    let cross = capacity * 0.8 * uniform();
    let mut model = Model::new(BitRate::from_f64(capacity), BitRate::from_f64(cross));
    model.seed = number;
    model.rate_max = BitRate(20_000_000_000);
    if capacity > 2e9 {
        model.most_bytes = 9000;
    }
    model
}

/// Returns the relative errors on `paths` paths, sorted by size, and how often the truth is inside the interval.
fn errors(method: Method, paths: u64) -> (Vec<f64>, usize) {
    let mut inside = 0;
    let mut errors: Vec<f64> = (0..paths)
        .map(|number| {
            let model = random_path(number);
            let found = estimate(model, method).finding;
            assert_eq!(found.bound, Bound::Value, "{method} {model:?}");
            let truth = model.available();
            inside += usize::from((found.low.as_f64()..=found.high.as_f64()).contains(&truth));
            found.available.as_f64() / truth - 1.0
        })
        .collect();
    errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    (errors, inside)
}

/// Checks that the errors on half of the paths, on nine of ten, and on all are below these bounds.
fn converges(method: Method, paths: u64, half: f64, most: f64, worst: f64) {
    let (errors, inside) = errors(method, paths);
    let at = |share: f64| errors[(share * (errors.len() - 1) as f64) as usize];
    println!(
        "{method}: {} paths, error in half of them below {:.2} %, 9 in 10 {:.2} %, worst {:.2} %; inside {inside}",
        errors.len(),
        at(0.5).abs() * 100.0,
        at(0.9).abs() * 100.0,
        at(1.0) * 100.0
    );
    assert!(at(0.5).abs() < half && at(0.9).abs() < most && at(1.0).abs() < worst, "{method}");
}

#[test]
fn trains_converge() {
    converges(Method::Trains, 300, 0.015, 0.06, 0.2);
}

#[test]
fn slops_converges() {
    converges(Method::Slops, 200, 0.03, 0.1, 0.2);
}

#[test]
fn yaz_converges() {
    converges(Method::Yaz, 200, 0.03, 0.1, 0.2);
}

/// Checks the median error of many estimates of one load: an error that more estimates would not reduce.
fn bias(method: Method, cross: u64, most: f64) {
    let mut errors: Vec<f64> = (1..=100)
        .map(|seed| {
            let cross = BitRate(cross * 1_000_000);
            let model = Model { seed, ..Model::new(BitRate(300_000_000), cross) };
            estimate(model, method).finding.available.as_f64() / model.available() - 1.0
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let middle = errors[errors.len() / 2];
    println!("{method}, {cross} of 300 Mbit/s taken: {:+.1} %", middle * 100.0);
    assert!(middle.abs() < most, "{method}, {cross} of 300 Mbit/s taken: {middle}");
}

#[test]
fn no_method_is_biased_by_more_than_five_percent_at_any_load() {
    for cross in [0, 50, 100, 150, 200, 250] {
        bias(Method::Trains, cross, 0.02);
        bias(Method::Slops, cross, 0.04);
        bias(Method::Yaz, cross, 0.05);
    }
}

/// Returns a path of 300 Mbit/s of which two thirds are available.
fn usual() -> Model {
    Model::new(BitRate(300_000_000), BitRate(100_000_000))
}

#[test]
fn a_rate_that_cannot_be_sent_is_a_lower_bound() {
    for method in Method::ALL {
        // 12 us for a packet of 1500 bytes are 1 Gbit/s, over a path of 10 Gbit/s.
        let model = Model {
            least_interval: 12_000,
            rate_max: BitRate(10_000_000_000),
            ..Model::new(BitRate(10_000_000_000), BitRate(0))
        };
        let found = estimate(model, method);
        assert_eq!(found.finding.bound, Bound::AtLeast, "{method} {found:?}");
        let available = found.finding.available.as_f64();
        assert!((0.9e9..1.05e9).contains(&available), "{method} {available}");
    }
}

#[test]
fn no_rate_beyond_the_highest_is_promised() {
    for method in Method::ALL {
        let model = Model { rate_max: BitRate(150_000_000), ..usual() };
        let found = estimate(model, method);
        assert_eq!(found.finding.bound, Bound::AtLeast, "{method} {found:?}");
        assert!(found.finding.available.0 <= 151_000_000, "{method} {found:?}");
    }
}

#[test]
fn random_loss_is_said_and_does_no_great_harm() {
    for method in Method::ALL {
        let model = Model { loss: 0.002, ..usual() };
        let found = estimate(model, method);
        assert!(found.cautions.contains(&Caution::Loss), "{method} {found:?}");
        let off = found.finding.available.as_f64() / model.available() - 1.0;
        assert!(off.abs() < 0.15, "{method}: {off}");
    }
}

/// On a path with almost no queue, too high a rate shows in losses and hardly in delays.
#[test]
fn a_short_queue_gives_no_confident_wrong_number() {
    for method in Method::ALL {
        for queue in [8_000, 15_000, 30_000] {
            let found = estimate(Model { queue, ..usual() }, method);
            let off = found.finding.available.as_f64() / usual().available() - 1.0;
            println!("{method}, {queue} bytes: {:+.1} % {:?}", off * 100.0, found.finding);
            let no_value = found.finding.bound == Bound::Unknown;
            assert!(no_value || off.abs() < 0.1, "{method}, {queue} bytes: {off}");
        }
    }
}

#[test]
fn a_path_that_loses_most_gives_no_confident_number() {
    for method in Method::ALL {
        let found = estimate(Model { loss: 0.7, ..usual() }, method);
        assert!(found.cautions.contains(&Caution::Loss), "{method}");
        assert_ne!(found.finding.bound, Bound::Value, "{method} {found:?}");
    }
}

#[test]
fn a_clock_of_a_millisecond_is_said_to_be_coarse() {
    for method in Method::ALL {
        let found = estimate(Model { grain: 1_000_000, ..usual() }, method);
        assert!(found.cautions.contains(&Caution::ClockTooCoarse), "{method} {found:?}");
    }
}

/// A path between machines that do other work.
struct Busy {
    path: Simulation,
    /// Number of probes of a stream for which the receiver has room.
    room: usize,
    /// Shortest interval between probes of the second stream and later ones, ns.
    least_interval: u64,
    streams: u32,
}

impl Path for Busy {
    fn limits(&self) -> Limits {
        self.path.limits()
    }

    fn probe(&mut self, plan: &StreamPlan) -> Result<Stream, PathError> {
        let least = if self.streams > 0 { self.least_interval } else { 0 };
        self.streams += 1;
        let sent = self.path.probe(&StreamPlan { interval: plan.interval.max(least), ..*plan })?;
        let mut stream = Stream { plan: *plan, ..sent };
        for probe in stream.probes.iter_mut().skip(self.room) {
            stream.overrun += u32::from(probe.received.take().is_some());
        }
        Ok(stream)
    }
}

#[test]
fn what_the_receivers_machine_loses_is_said_and_is_not_the_paths() {
    for method in Method::ALL {
        let path = Simulation::new(usual());
        let mut busy = Busy { path, room: 190, least_interval: 0, streams: 0 };
        let found = measure(&mut busy, method, &mut |_| {}).unwrap();
        let is_overrun = found.cautions.contains(&Caution::ReceiverOverrun);
        assert_eq!(is_overrun, found.overrun > 0, "{method} {found:?}");
        assert_eq!(found.overrun, found.lost, "{method} {found:?}");
        assert!(!found.cautions.contains(&Caution::Loss), "{method} {found:?}");
        let off = found.finding.available.as_f64() / usual().available() - 1.0;
        assert!(off.abs() < 0.1, "{method}: {off}");
    }
}

#[test]
fn trains_that_could_not_be_sent_as_planned_give_no_confident_number() {
    // 230 Mbit/s are available, and after the first train the sender reaches at most 240.
    let model = Model::new(BitRate(300_000_000), BitRate(70_000_000));
    let path = Simulation::new(model);
    let mut busy = Busy { path, room: usize::MAX, least_interval: 50_000, streams: 0 };
    let found = measure(&mut busy, Method::Trains, &mut |_| {}).unwrap();
    assert_ne!(found.finding.bound, Bound::Value, "{found:?}");
    assert!(found.cautions.contains(&Caution::RateNotReachable), "{found:?}");
}
