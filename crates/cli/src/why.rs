//! The cause that keeps a container's time from leaping, and the waits of its tasks.

use anyhow::Context;
use lorentz_clock::SkipMode;
use lorentz_container::{Mechanism, StateDir, StateError};
use lorentz_control::processes::{self, FileId};
use lorentz_control::Reading;
use lorentz_idle::{blocker, task_waits, Blocker, TaskWait};

/// Whether time leaps over idle periods at this moment, and why not.
pub enum Leaping {
    /// Somebody has frozen the clock.
    Frozen,
    /// The experiment of this name moves the clock.
    InExperiment(String),
    /// This task keeps time from leaping.
    Held(Blocker),
    /// All tasks wait, and none has a deadline.
    NoDeadline,
    /// All tasks wait. If the clock skips idle time, it leaps to the next deadline.
    Free,
}

/// A container's time at one look.
pub struct Findings {
    /// The container.
    pub name: String,
    /// Its clocks.
    pub reading: Reading,
    /// Whether time leaps.
    pub leaping: Leaping,
    /// The next deadline on the virtual monotonic clock.
    pub deadline_ns: Option<i64>,
    /// The tasks of the container.
    pub tasks: Vec<TaskWait>,
}

impl Findings {
    /// Whether the clock skips idle time.
    pub fn is_skipping(&self) -> bool {
        self.reading.skipping.mode != SkipMode::Off
    }
}

/// Looks at the container of this name.
pub fn look(state: &StateDir, name: &str) -> anyhow::Result<Findings> {
    let container = state.find(name)?;
    if container.record().mechanism == Mechanism::TimeNamespace {
        return Err(StateError::OffsetsOnly(container.name().to_string()).into());
    }
    let explained = |error: anyhow::Error| container.explain(error);
    let clock = container.clock()?;
    let own = container.processes().map_err(|error| explained(error.into()))?;
    // Containers may share a clock: a task of any of them may hold it.
    let on_clock =
        FileId::of(&container.clock_path()).and_then(|file| processes::on_clock_or_entering(&file));
    let on_clock = on_clock.context("the clock's processes").map_err(explained)?;
    let reading = clock.reading();
    let deadline_ns = clock.next_deadline().map(|at| at.0);
    let tasks = task_waits(&clock, &own);
    let held = blocker(clock, &on_clock).context("the clock").map_err(explained)?;
    let leaping = match (&container.record().experiment, held) {
        (Some(experiment), _) => Leaping::InExperiment(experiment.clone()),
        _ if reading.frozen => Leaping::Frozen,
        (_, Some(blocker)) => Leaping::Held(blocker),
        _ if deadline_ns.is_none() => Leaping::NoDeadline,
        _ => Leaping::Free,
    };
    Ok(Findings { name: container.name().to_string(), reading, leaping, deadline_ns, tasks })
}
