//! Which processes belong to a container, and which container a process belongs to.

use std::path::Path;

use super::{file_error, Container, StateDir};
use crate::processes::{self, FileId, Process};
use crate::StateError;

/// Whether anything of a container still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// A monitor looks after it.
    Alive,
    /// Programs run on, but nobody looks after them: none of them can start another.
    MonitorDead,
    /// Nothing runs.
    Ended,
}

impl StateDir {
    /// The container called `text`, or the one that the process of that number belongs to: a program, or the
    /// `lorentz` command that looks after it. A container of an OCI runtime is also found by its id, or by as much of
    /// its beginning as no other has.
    ///
    /// # Errors
    ///
    /// Where there is no such container or process, or the process is in none.
    pub fn find(&self, text: &str) -> Result<Container, StateError> {
        self.find_here(text).map_err(|error| explain(text, error))
    }

    fn find_here(&self, text: &str) -> Result<Container, StateError> {
        match self.container(text) {
            Err(StateError::Unknown(what)) => {
                let by_number = text.parse().ok().map(|pid| self.of_process(pid));
                match by_number {
                    Some(Ok(found)) => Ok(found),
                    other => match self.by_id(text)? {
                        Some(found) => Ok(found),
                        None => other.unwrap_or(Err(StateError::Unknown(what))),
                    },
                }
            }
            found => found,
        }
    }

    /// The container that an OCI runtime knows by an id that is `text` or, as no other, begins with it.
    fn by_id(&self, text: &str) -> Result<Option<Container>, StateError> {
        const SHORTEST: usize = 3;
        let id = |container: &Container| Some(container.record().bundle.as_ref()?.id.clone());
        let mut found = self.list()?;
        found.retain(|container| id(container).is_some_and(|id| id.starts_with(text)));
        if let Some(exact) = found.iter().find(|one| id(one).as_deref() == Some(text)) {
            return Ok(Some(exact.clone()));
        }
        Ok(found.pop().filter(|_| found.is_empty() && text.len() >= SHORTEST))
    }

    /// The container that process `pid` belongs to.
    ///
    /// # Errors
    ///
    /// Where there is no such process, or it is in none.
    pub fn of_process(&self, pid: u32) -> Result<Container, StateError> {
        let containers = self.list()?;
        if let Some(looked_after) = containers.iter().find(|c| c.is_monitored_by(pid)) {
            return Ok(looked_after.clone());
        }
        let all = all_processes()?;
        let lineage = processes::lineage(&all, pid);
        if lineage.is_empty() {
            return Err(StateError::NoProcess(pid));
        }
        if let Some(clock) = processes::clock_of(pid) {
            let sharing: Vec<&Container> = containers.iter().filter(|c| c.is_on(&clock)).collect();
            if let Some(container) = owner(&sharing, &lineage) {
                return Ok(container.clone());
            }
        }
        // One that may not be looked into, or is on its way in.
        let parent = lineage.iter().find_map(|process| {
            containers.iter().find(|container| container.is_monitored_by(process.pid))
        });
        parent.cloned().ok_or(StateError::NotInside(pid))
    }
}

impl Container {
    /// Whether anything of it still runs.
    ///
    /// # Errors
    ///
    /// Where /proc is not mounted.
    pub fn life(&self) -> Result<Life, StateError> {
        if self.record().live_monitor().is_some() {
            return Ok(Life::Alive);
        }
        if !self.record().is_of_this_boot() {
            return Ok(Life::Ended);
        }
        self.life_among(&all_processes()?)
    }

    /// The same, where all processes are known already.
    ///
    /// # Errors
    ///
    /// Where the state directory cannot be read.
    pub fn life_among(&self, all: &[Process]) -> Result<Life, StateError> {
        if self.record().live_monitor().is_some() {
            return Ok(Life::Alive);
        }
        Ok(if self.processes(all)?.is_empty() { Life::Ended } else { Life::MonitorDead })
    }

    /// Its processes among `all`, by number.
    ///
    /// # Errors
    ///
    /// Where the state directory cannot be read.
    pub fn processes(&self, all: &[Process]) -> Result<Vec<Process>, StateError> {
        let Ok(clock) = FileId::of(&self.clock_path()) else { return Ok(Vec::new()) };
        let mut found = processes::on_clock(all, &clock);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let sharing = self.sharing_its_clock()?;
        if sharing.len() > 1 {
            let sharing: Vec<&Container> = sharing.iter().collect();
            found.retain(|process| {
                let lineage = processes::lineage(all, process.pid);
                owner(&sharing, &lineage).is_some_and(|owner| owner.name() == self.name())
            });
        }
        Ok(found.into_iter().cloned().collect())
    }

    /// All containers on its clock, itself among them.
    ///
    /// # Errors
    ///
    /// Where the state directory cannot be read.
    pub fn sharing_its_clock(&self) -> Result<Vec<Container>, StateError> {
        let path = self.clock_path();
        let clock = FileId::of(&path).map_err(|e| file_error(&path, e))?;
        let mut sharing = self.state.list()?;
        sharing.retain(|container| container.is_on(&clock));
        Ok(sharing)
    }

    /// Whether `pid` is one of its monitors, alive.
    fn is_monitored_by(&self, pid: u32) -> bool {
        self.record().monitors.iter().any(|monitor| monitor.pid == pid && monitor.is_alive())
    }

    /// Whether `process` is one of its monitors or their first programs.
    fn knows(&self, process: &Process) -> bool {
        self.record().monitors.iter().any(|monitor| {
            let is_monitor =
                (monitor.pid, monitor.start_ticks) == (process.pid, process.start_ticks);
            is_monitor || monitor.program == Some(process.pid)
        })
    }
}

/// Which of the containers on one clock a process belongs to: by its next ancestor that one of them knows, else
/// by its control group, else the one that the clock was made for.
fn owner<'a>(sharing: &[&'a Container], lineage: &[&Process]) -> Option<&'a Container> {
    let by_ancestor = lineage
        .iter()
        .find_map(|process| sharing.iter().find(|container| container.knows(process)));
    let by_cgroup = || {
        let pid = lineage.first()?.pid;
        let group = crate::cgroup::of_process(pid)?;
        sharing.iter().find(|container| {
            let own = container.record().cgroup.as_deref();
            own.is_some_and(|own: &Path| group.starts_with(own))
        })
    };
    let by_making = || sharing.iter().find(|container| container.record().clock_of.is_none());
    by_ancestor.or_else(by_cgroup).or_else(by_making).or_else(|| sharing.first()).copied()
}

/// `error` as it is, or why a container that runs is not found: its clock is in another directory, or nowhere any more.
pub(super) fn explain(text: &str, error: StateError) -> StateError {
    match error {
        StateError::Unknown(_) | StateError::NotInside(_) => stray(text).unwrap_or(error),
        error => error,
    }
}

fn stray(text: &str) -> Option<StateError> {
    let clocks = processes::all().ok()?.into_iter().filter_map(|process| {
        let clock = processes::clock_of(process.pid)?;
        let dir = clock.path().parent()?.to_path_buf();
        let named = dir.file_name().is_some_and(|name| name == text);
        (named || process.pid.to_string() == text).then_some((process.pid, clock, dir))
    });
    let clocks: Vec<_> = clocks.collect();
    let (pid, clock, dir) = clocks.first()?;
    let name = text.to_string();
    if clock.is_deleted() {
        let of_same = clocks.iter().filter(|(_, other, _)| other.is_same(clock));
        let pids: Vec<String> = of_same.map(|(pid, ..)| pid.to_string()).collect();
        return Some(StateError::Deleted { name, pids: pids.join(" ") });
    }
    Some(StateError::Elsewhere { name, dir: dir.clone(), pid: *pid })
}

fn all_processes() -> Result<Vec<Process>, StateError> {
    processes::all().map_err(|e| file_error(Path::new("/proc"), e))
}
