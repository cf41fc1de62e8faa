//! Experiments: their state by their sockets.

use std::collections::BTreeMap;
use std::time::Instant;

use lorentz_container::StateDir;
use lorentz_experiment as experiment;
use lorentz_experiment::{ContainerStatus, ExperimentStatus, Phase};

use super::clocks;
use super::pace::{limit_wait, Growth, Pace};
use crate::types::{CpuShare, Experiment, ExperimentMember, Nanos, Verdict};

/// All experiments.
#[derive(Default)]
pub struct Experiments {
    all: BTreeMap<String, Watched>,
}

#[derive(Default)]
struct Watched {
    connection: Option<experiment::Experiment>,
    pace: Pace,
    shares: BTreeMap<String, (Growth, Growth)>,
    shown: Option<Experiment>,
}

impl Experiments {
    /// Looks at the experiments in `state`.
    pub fn look(&mut self, state: &StateDir, thorough: bool) -> Vec<Experiment> {
        let names = experiment::Experiment::list(state).unwrap_or_default();
        self.all.retain(|name, _| names.contains(name));
        for name in names {
            let watched = self.all.entry(name.clone()).or_default();
            if thorough || watched.pace.is_due() {
                let begin = Instant::now();
                watched.look(state, &name);
                watched.pace.has_read(begin);
            }
        }
        self.all.values().filter_map(|watched| watched.shown.clone()).collect()
    }
}

impl Watched {
    fn look(&mut self, state: &StateDir, name: &str) {
        if self.connection.is_none() {
            self.connection = experiment::Experiment::open(state, name).ok();
            self.connection.iter().for_each(limit_wait);
        }
        let Some(connection) = &mut self.connection else {
            self.shown = Some(ended(name));
            return;
        };
        match connection.status() {
            Ok(status) => self.shown = Some(self.show(&status)),
            Err(error) => {
                // An answer that comes later would be taken for that of the next question.
                self.connection = None;
                match (is_timeout(&error), &mut self.shown) {
                    (true, Some(shown)) => shown.verdict = Verdict::no_answer(),
                    _ => self.shown = Some(ended(name)),
                }
            }
        }
    }

    fn show(&mut self, status: &ExperimentStatus) -> Experiment {
        self.shares.retain(|name, _| status.containers.iter().any(|one| one.name == *name));
        let now = clocks::now().real_ns.0 as f64;
        let members = status.containers.iter().map(|one| self.member(one, now)).collect();
        let greatest = status.containers.iter().map(|one| one.tdf).fold(0.0, f64::max);
        let is_running = status.phase == Phase::Running;
        Experiment {
            name: status.name.clone(),
            phase: phase_name(status.phase).to_string(),
            pid: Some(status.pid),
            timeslice_ns: status.timeslice_ns,
            rounds: status.rounds,
            virtual_ns: Nanos(status.virtual_ns),
            slowdown: status.slowdown,
            cpus: status.cpus.to_string(),
            containers: members,
            verdict: Verdict::of_experiment(is_running, status.slowdown, greatest),
        }
    }

    fn member(&mut self, one: &ContainerStatus, now: f64) -> ExperimentMember {
        let (wanted, got) = self.shares.entry(one.name.clone()).or_default();
        let wanted = wanted.add(now, one.cpu_wanted_ns as f64);
        let got = got.add(now, one.cpu_got_ns as f64);
        ExperimentMember {
            name: one.name.clone(),
            tdf: one.tdf,
            timeline: one.timeline,
            virtual_ns: Nanos(one.virtual_ns),
            stopped: one.stopped,
            cpu_wanted_ns: one.cpu_wanted_ns.max(0) as u64,
            cpu_got_ns: one.cpu_got_ns.max(0) as u64,
            cpu_share: wanted.zip(got).map(|(wanted, got)| CpuShare { wanted, got }),
            overrun_median_ns: one.overrun_median_ns,
            overrun_p99_ns: one.overrun_p99_ns,
            perceived_overshoot_ns: one.perceived_overshoot_ns,
        }
    }
}

/// Whether the other end did not answer in time.
pub fn is_timeout(error: &anyhow::Error) -> bool {
    let of = |cause: &(dyn std::error::Error + 'static)| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        matches!(kind, Some(std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
    };
    error.chain().any(of)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::SettingUp => "setting-up",
        Phase::Synchronized => "synchronized",
        Phase::Running => "running",
        Phase::Paused => "paused",
        Phase::Stepping => "stepping",
    }
}

fn ended(name: &str) -> Experiment {
    Experiment {
        name: name.to_string(),
        phase: "ended".to_string(),
        pid: None,
        timeslice_ns: 0,
        rounds: 0,
        virtual_ns: Nanos(0),
        slowdown: None,
        cpus: String::new(),
        containers: Vec::new(),
        verdict: Verdict::ended("its process has ended; 'lorentz experiment rm' clears the rest"),
    }
}
