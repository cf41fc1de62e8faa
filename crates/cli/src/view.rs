//! The shown facts of a container, gathered once and printed in either form.

use lorentz_clock::{SkipMode, Span};
use lorentz_container::{
    rewritten_sites, scan_processes, Container, ContainerRecord, Liveness, StateDir, StateError,
};
use lorentz_control::processes::{self, FileId, Process};
use lorentz_control::{HostNow, Reading};
use lorentz_idle::SkipReport;

/// A container as it stands.
pub struct View {
    /// Its record in the state directory.
    pub record: ContainerRecord,
    /// Its clocks, or why they cannot be read.
    pub reading: Result<Reading, String>,
    /// Whether anything of it runs.
    pub life: Liveness,
    /// Its processes, where they were looked for.
    pub processes: Vec<Process>,
    /// How it skips idle time, where it does.
    pub skip: Option<SkipReport>,
    /// How long it has been there, in the host's time.
    pub uptime: Span,
    /// For each process that was asked for: how many of its call sites are rewritten, where that can be read.
    pub rewritten: Vec<(u32, Option<usize>)>,
}

impl View {
    /// Looks at `container`.
    ///
    /// # Errors
    ///
    /// The container has ended meanwhile.
    pub fn of(container: &Container) -> anyhow::Result<View> {
        let processes = container.processes().map_err(|error| container.explain(error.into()))?;
        let life = container.liveness_with(&processes);
        View::of_one(container, life, processes)
    }

    /// As [`View::of`], but not for its processes: to find them /proc is walked over. For pages that do not show them.
    pub fn without_processes(container: &Container) -> anyhow::Result<View> {
        View::of_one(container, container.liveness()?, Vec::new())
    }

    fn of_one(
        container: &Container,
        life: Liveness,
        processes: Vec<Process>,
    ) -> anyhow::Result<View> {
        let on_clock =
            || Ok(processes::on_clock_or_entering(&FileId::of(&container.clock_path())?)?);
        let view = View::gather(container, life, processes, on_clock);
        let view = view.map_err(|error| container.explain(error))?;
        match view.is_removed(container) {
            true => Err(StateError::EndedMeanwhile(container.name().to_string()).into()),
            false => Ok(view),
        }
    }

    /// Looks at all of `containers`, which are in `state`. However many they are, /proc is walked over once. A container that is
    /// removed meanwhile is left out.
    pub fn of_all(state: &StateDir, containers: &[Container]) -> anyhow::Result<Vec<View>> {
        let seen = scan_processes()?;
        let each: Vec<&Container> = containers.iter().collect();
        let processes = state.processes_of(&each, &seen)?;
        let views = containers.iter().zip(processes).filter_map(|(container, processes)| {
            let life = container.liveness_with(&processes);
            let on_clock = || Ok(seen.of(&FileId::of(&container.clock_path())?).cloned().collect());
            let view = View::gather(container, life, processes, on_clock);
            Some(view).filter(|view| !is_removed_meanwhile(container, view))
        });
        views.collect()
    }

    /// `on_clock` finds all processes on its clock, those of other containers too.
    fn gather(
        container: &Container,
        life: Liveness,
        processes: Vec<Process>,
        on_clock: impl FnOnce() -> anyhow::Result<Vec<Process>>,
    ) -> anyhow::Result<View> {
        let record = container.record().clone();
        let age = HostNow::read()?.boot.0.saturating_sub(record.created_boot_ns);
        let reading =
            container.clock().map(|clock| clock.reading()).map_err(|error| error.to_string());
        let skips = reading.as_ref().is_ok_and(|reading| reading.skipping.mode != SkipMode::Off);
        Ok(View {
            skip: if skips {
                Some(lorentz_idle::report(container.clock()?, &on_clock()?)?)
            } else {
                None
            },
            reading,
            life,
            processes,
            uptime: Span(if record.is_of_this_boot() { age.max(0) } else { 0 }),
            record,
            rewritten: Vec::new(),
        })
    }

    fn is_removed(&self, container: &Container) -> bool {
        self.reading.is_err() && !container.dir().exists()
    }

    /// Looks also at the call sites of the processes `pids`.
    pub fn with_rewritten(mut self, pids: &[u32]) -> View {
        self.rewritten.extend(pids.iter().map(|pid| (*pid, rewritten_sites(*pid))));
        self
    }

    /// Whether a monitor looks after it.
    pub fn monitor_alive(&self) -> bool {
        self.life == Liveness::Alive
    }

    /// Whether it has programs whose monitor has died.
    pub fn needs_adopt(&self) -> bool {
        self.life != Liveness::Ended && self.record.has_dead_monitor()
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

/// Whether `container` was removed while it was looked at: before its clock was read, or after that.
fn is_removed_meanwhile(container: &Container, view: &anyhow::Result<View>) -> bool {
    match view {
        Ok(view) => view.is_removed(container),
        Err(_) => !container.dir().exists(),
    }
}

/// [`View::state`] alone, without its processes: to find those takes long where many containers share a clock.
pub fn state_of(container: &Container) -> anyhow::Result<&'static str> {
    let reading = container.clock().map(|clock| clock.reading()).map_err(|e| e.to_string());
    Ok(state(container.liveness()?, container.record(), &reading))
}

fn state(
    life: Liveness,
    record: &ContainerRecord,
    reading: &Result<Reading, String>,
) -> &'static str {
    match life {
        Liveness::Alive => clock_state(record, reading),
        Liveness::MonitorDead => "monitor dead",
        Liveness::Ended => "ended",
    }
}

fn clock_state(record: &ContainerRecord, reading: &Result<Reading, String>) -> &'static str {
    match reading {
        Ok(_) if record.experiment.is_some() => "in experiment",
        Ok(reading) if reading.frozen => "frozen",
        Ok(_) => "running",
        Err(_) => "unreadable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_container::{MonitorKind, NewContainer};
    use lorentz_control::ClockOptions;

    #[test]
    fn a_container_that_is_removed_while_it_is_looked_at_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path()).unwrap();
        let settings = ClockOptions::default().settings(&HostNow::read().unwrap()).unwrap();
        let create = |name| {
            let new =
                NewContainer { name: Some(name), ..NewContainer::monitored_by(MonitorKind::Run) };
            state.create(&new, &settings).unwrap()
        };
        let (first, second) = (create("first"), create("second"));
        let listed = state.list().unwrap();
        first.remove().unwrap();
        let views = View::of_all(&state, &listed).unwrap();
        let names: Vec<&str> = views.iter().map(|view| view.record.name.as_str()).collect();
        assert_eq!(names, ["second"]);
        second.remove().unwrap();
    }

    #[test]
    fn a_container_that_is_removed_after_its_clock_was_read_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path()).unwrap();
        let skips = ClockOptions { skip_idle: Some(SkipMode::On), ..Default::default() };
        let settings = skips.settings(&HostNow::read().unwrap()).unwrap();
        let new =
            NewContainer { name: Some("first"), ..NewContainer::monitored_by(MonitorKind::Run) };
        let first = state.create(&new, &settings).unwrap();
        let found = &state.list().unwrap()[0];
        // Its skipper is looked for after its clock was read.
        let on_clock = || {
            first.remove().unwrap();
            Ok(Vec::new())
        };
        let view = View::gather(found, Liveness::Alive, Vec::new(), on_clock);
        assert!(view.is_err());
        assert!(is_removed_meanwhile(found, &view));
    }
}
