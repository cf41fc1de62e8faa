//! The past of networks and experiments since the server began: a point each second at most, for two hours.

use std::collections::BTreeMap;

use crate::system::time_of;
use crate::types::{History, HistoryPoint, Nanos, State};

/// Shortest time between two points, ns.
const INTERVAL: i64 = 1_000_000_000;
/// Points are kept so long, ns.
const LONGEST: i64 = 2 * 3_600 * INTERVAL;
/// Most points of one network. Beyond that, every second one of the older half goes.
const MAX_POINTS: usize = 2_400;
/// Networks and experiments that have ended and are kept for the report, at most.
const MAX_KEPT: usize = 64;

/// The past of everything, by kind and name.
#[derive(Default)]
pub struct Histories(BTreeMap<(&'static str, String), Past>);

#[derive(Default)]
struct Past {
    points: Vec<HistoryPoint>,
    /// When it started, by its own clock: another start is another history.
    started: Option<Nanos>,
}

impl Histories {
    /// Adds the present of all that runs.
    pub fn add(&mut self, state: &State) {
        for network in state.networks.iter().filter(|network| network.started_ns.is_some()) {
            let point = HistoryPoint {
                real_ns: state.now.real_ns,
                virtual_ns: Nanos(time_of(network, state.now.real_ns.0)),
                rate: None,
                lateness_p99_ns: (network.lateness.count > 0).then_some(network.lateness.p99_ns),
                behind_ns: network.rounds.as_ref().map(|rounds| rounds.behind_ns),
                cpu: network.emulator.and_then(|emulator| emulator.cpu_share),
            };
            self.past("network", &network.name).add(network.started_ns, point);
        }
        for experiment in state.experiments.iter().filter(|experiment| experiment.pid.is_some()) {
            let shares = experiment.containers.iter().filter_map(|one| one.cpu_share);
            let point = HistoryPoint {
                real_ns: state.now.real_ns,
                virtual_ns: experiment.virtual_ns,
                rate: None,
                lateness_p99_ns: None,
                behind_ns: None,
                cpu: Some(shares.map(|share| share.got).sum()),
            };
            let pid = experiment.pid.map(|pid| Nanos(pid.into()));
            self.past("experiment", &experiment.name).add(pid, point);
        }
    }

    fn past(&mut self, kind: &'static str, name: &str) -> &mut Past {
        let key = (kind, name.to_string());
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(&key) {
            let last = |past: &Past| past.points.last().map(|point| point.real_ns);
            let oldest = self.0.iter().min_by_key(|(_, past)| last(past));
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.entry(key).or_default()
    }

    /// Returns the past of `name`.
    pub fn of(&self, kind: &str, name: &str) -> History {
        let found = self.0.iter().find(|((one, other), _)| *one == kind && other == name);
        History { points: found.map(|(_, past)| past.points.clone()).unwrap_or_default() }
    }
}

impl Past {
    fn add(&mut self, started: Option<Nanos>, mut point: HistoryPoint) {
        // The pace of clocks in rounds is an average, by which time may seem to go back a little.
        let is_back = |last: &HistoryPoint| last.virtual_ns.0 - point.virtual_ns.0 >= INTERVAL;
        let is_back = self.points.last().is_some_and(is_back);
        if self.started != started || is_back {
            self.points.clear();
            self.started = started;
        }
        if let Some(last) = self.points.last() {
            let elapsed = point.real_ns.0 - last.real_ns.0;
            if elapsed < INTERVAL {
                return;
            }
            let gone = point.virtual_ns.0 - last.virtual_ns.0;
            point.rate = Some(gone as f64 / elapsed as f64);
        }
        self.points.push(point);
        let begin = point.real_ns.0 - LONGEST;
        self.points.retain(|point| point.real_ns.0 >= begin);
        if self.points.len() > MAX_POINTS {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at > MAX_POINTS / 2 || at % 2 == 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seconds: i64, virtual_ns: i64) -> HistoryPoint {
        HistoryPoint {
            real_ns: Nanos(seconds * INTERVAL),
            virtual_ns: Nanos(virtual_ns),
            rate: None,
            lateness_p99_ns: None,
            behind_ns: None,
            cpu: None,
        }
    }

    #[test]
    fn a_point_has_the_rate_since_the_one_before() {
        let mut past = Past::default();
        past.add(None, point(10, 0));
        past.add(None, HistoryPoint { real_ns: Nanos(10 * INTERVAL + 1), ..point(10, 9) });
        past.add(None, point(12, INTERVAL));
        let rates: Vec<Option<f64>> = past.points.iter().map(|point| point.rate).collect();
        assert_eq!(rates, [None, Some(0.5)]);
        past.add(None, point(13, 0));
        assert_eq!(past.points.len(), 1, "another network of the name");
    }

    #[test]
    fn old_points_are_thinned_and_those_of_long_ago_go() {
        let mut past = Past::default();
        for at in 0..3 * 3_600 {
            past.add(None, point(at, at));
        }
        assert!(past.points.len() <= MAX_POINTS);
        let real: Vec<i64> = past.points.iter().map(|point| point.real_ns.0 / INTERVAL).collect();
        assert!(real.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(real[0] >= 3_600 && real[0] < 3_900, "{}", real[0]);
        assert_eq!(real[real.len() - 100..], Vec::from_iter(3 * 3_600 - 100..3 * 3_600));
    }
}
