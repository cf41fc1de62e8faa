//! What is shown of a container, gathered once and printed in either form.

use lorentz_clock::{SkipMode, Span};
use lorentz_container::processes::{self, Process};
use lorentz_container::skip::{self, SkipReport};
use lorentz_container::{Clock, Container, HostNow, Life, Reading, Record};

/// A container as it stands.
pub struct View {
    /// What was written down about it.
    pub record: Record,
    /// Its clocks, or why they cannot be read.
    pub reading: Result<Reading, String>,
    /// Whether anything of it runs.
    pub life: Life,
    /// Its processes.
    pub processes: Vec<Process>,
    /// How it skips idle time, where it does.
    pub skip: Option<SkipReport>,
    /// How long it has been there, in the host's time.
    pub uptime: Span,
}

impl View {
    /// Looks at `container`.
    pub fn of(container: &Container) -> anyhow::Result<View> {
        View::among(container, &processes::all()?)
    }

    /// Looks at `container`, where all processes are known already.
    pub fn among(container: &Container, all: &[Process]) -> anyhow::Result<View> {
        let record = container.record().clone();
        let age = HostNow::read()?.boot.0.saturating_sub(record.created_boot_ns);
        let skips = |clock: &Clock| clock.reading().skipping.mode != SkipMode::Off;
        let skips = container.clock().is_ok_and(|clock| skips(&clock));
        Ok(View {
            skip: if skips { Some(skip::report(container)?) } else { None },
            reading: container.clock().map(|clock| clock.reading()).map_err(|e| e.to_string()),
            life: container.life_among(all)?,
            processes: container.processes(all)?,
            uptime: Span(if record.is_of_this_boot() { age.max(0) } else { 0 }),
            record,
        })
    }

    /// Whether a monitor looks after it.
    pub fn monitor_alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// `running` or `frozen`: its clock; `in experiment` where that is neither.
    pub fn clock_state(&self) -> &'static str {
        clock_state(&self.record, &self.reading)
    }

    /// The same, or what is worse: `monitor dead`, `ended`.
    pub fn state(&self) -> &'static str {
        state(self.life, &self.record, &self.reading)
    }

    /// The numbers of its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid).collect()
    }
}

/// [`View::state`] alone, without its processes: to find those takes long where many containers share a clock.
pub fn state_of(container: &Container) -> anyhow::Result<&'static str> {
    let reading = container.clock().map(|clock| clock.reading()).map_err(|e| e.to_string());
    Ok(state(container.life()?, container.record(), &reading))
}

fn state(life: Life, record: &Record, reading: &Result<Reading, String>) -> &'static str {
    match life {
        Life::Alive => clock_state(record, reading),
        Life::MonitorDead => "monitor dead",
        Life::Ended => "ended",
    }
}

fn clock_state(record: &Record, reading: &Result<Reading, String>) -> &'static str {
    match reading {
        Ok(_) if record.experiment.is_some() => "in experiment",
        Ok(reading) if reading.frozen => "frozen",
        Ok(_) => "running",
        Err(_) => "unreadable",
    }
}
