//! Status reports of an experiment, for people and for Prometheus. They show overload.

use std::fmt::Write as _;
use std::time::Duration;

use lorentz_clock::Rate;

use crate::container::ExperimentContainer;
use crate::protocol::{ContainerStatus, ExperimentStatus};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Returns the status, with the containers in the order in which they were added. No worker has a container meanwhile.
    pub(crate) fn status(&self) -> ExperimentStatus {
        let virtual_ns = match self.phase {
            crate::phase::Phase::SettingUp => 0,
            crate::phase::Phase::Stepping => self
                .containers()
                .map(|container| container.clock.now().since(self.synchronized_at).0)
                .max()
                .unwrap_or(0),
            _ => self.now.since(self.synchronized_at).0,
        };
        let idle = self.real.saturating_sub(self.working);
        let ratio = |over: f64, under: f64| (under > 0.0).then_some(over / under);
        let leader = self
            .containers()
            .min_by(|one, other| one.rate.as_f64().total_cmp(&other.rate.as_f64()));
        let mut containers: Vec<&ExperimentContainer> = self.containers().collect();
        containers.sort_unstable_by_key(|container| container.added_before);
        ExperimentStatus {
            name: self.name.clone(),
            phase: self.phase,
            pid: std::process::id(),
            timeslice_ns: self.settings.timeslice.0,
            as_fast_as_possible: self.settings.as_fast_as_possible,
            most: self.settings.most,
            cpus: self.settings.cpus.clone(),
            told_by_kernel: self.watch.uses_bpf(),
            rounds: self.rounds,
            virtual_ns,
            real_ns: nanos(self.real),
            working_ns: nanos(self.working),
            slowdown: ratio(self.real.as_secs_f64(), virtual_ns as f64 / 1e9),
            overhead_ratio: ratio(self.working.as_secs_f64(), idle.as_secs_f64()),
            leader: leader.map(|container| container.name.clone()),
            containers: containers.into_iter().map(container_status).collect(),
        }
    }
}

fn container_status(container: &ExperimentContainer) -> ContainerStatus {
    let used = &container.statistics;
    let quantile = |part| used.overruns.quantile(part).map(nanos);
    ContainerStatus {
        name: container.name.clone(),
        tdf: tdf(container.rate),
        timeline: container.timeline,
        compute: container.compute,
        virtual_ns: container.clock.now().0,
        cpus: container.cpus.clone(),
        stopped: container.stopped,
        slices: used.slices,
        at_limit: used.at_limit,
        cpu_wanted_ns: nanos(used.wanted),
        cpu_got_ns: nanos(container.cpu_time()),
        perceived_overshoot_ns: used.perceived_overshoot.0,
        overrun_median_ns: quantile(0.5),
        overrun_p99_ns: quantile(0.99),
    }
}

fn tdf(rate: Rate) -> f64 {
    rate.inverse().as_f64()
}

fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

impl ExperimentStatus {
    /// Formats the status as a page for Prometheus (text format 0.0.4).
    pub fn prometheus(&self) -> String {
        prometheus(&[self])
    }
}

/// Formats the status of several experiments as one page for Prometheus (text format 0.0.4). The page explains each metric once.
pub fn prometheus(all: &[&ExperimentStatus]) -> String {
    let mut page = String::new();
    for (name, kind, help, value) in METRICS {
        let rows = value.rows(all);
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(page, "# HELP lorentz_experiment_{name} {help}");
        let _ = writeln!(page, "# TYPE lorentz_experiment_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(page, "lorentz_experiment_{name}{{{labels}}} {value}");
        }
    }
    page
}

/// A metric's value: one for the experiment, or one for each container that has it.
enum Value {
    Whole(fn(&ExperimentStatus) -> f64),
    Each(fn(&ContainerStatus) -> Option<f64>),
}
use Value::{Each, Whole};

impl Value {
    /// Its values in all experiments, each with its labels.
    fn rows(&self, all: &[&ExperimentStatus]) -> Vec<(String, f64)> {
        let mut rows = Vec::new();
        for status in all {
            let experiment = format!("experiment=\"{}\"", label(&status.name));
            match self {
                Whole(value) => rows.push((experiment, value(status))),
                Each(value) => rows.extend(status.containers.iter().filter_map(|one| {
                    let labels = format!("{experiment},container=\"{}\"", label(&one.name));
                    Some((labels, value(one)?))
                })),
            }
        }
        rows
    }
}

/// A metric: name, kind, explanation, value.
type Metric = (&'static str, &'static str, &'static str, Value);

const METRICS: [Metric; 11] = [
    ("rounds_total", "counter", "Rounds so far.", Whole(|all| all.rounds as f64)),
    (
        "virtual_seconds_total",
        "counter",
        "Virtual time since synchronization.",
        Whole(|all| seconds(all.virtual_ns)),
    ),
    (
        "real_seconds_total",
        "counter",
        "Real time that the rounds took.",
        Whole(|all| seconds(all.real_ns)),
    ),
    (
        "working_seconds_total",
        "counter",
        "Real time in which some container ran.",
        Whole(|all| seconds(all.working_ns)),
    ),
    ("tdf", "gauge", "Real seconds per virtual second in a slice.", Each(|one| Some(one.tdf))),
    ("slices_total", "counter", "Slices given.", Each(|one| Some(one.slices as f64))),
    (
        "slices_at_limit_total",
        "counter",
        "Slices at whose end it still ran.",
        Each(|one| Some(one.at_limit as f64)),
    ),
    (
        "cpu_wanted_seconds_total",
        "counter",
        "Time it had something to do.",
        Each(|one| Some(seconds(one.cpu_wanted_ns))),
    ),
    (
        "cpu_got_seconds_total",
        "counter",
        "CPU time it used.",
        Each(|one| Some(seconds(one.cpu_got_ns))),
    ),
    (
        "perceived_overshoot_seconds",
        "gauge",
        "Time seen beyond a slice's end.",
        Each(|one| Some(seconds(one.perceived_overshoot_ns))),
    ),
    (
        "overrun_p99_seconds",
        "gauge",
        "From a slice's end until its tasks stopped.",
        Each(|one| one.overrun_p99_ns.map(seconds)),
    ),
];

fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
