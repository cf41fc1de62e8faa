//! The processes of a container, and the container of a process.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lorentz_control::processes::{self, FileId, OnClocks, Process};
use lorentz_control::Cgroup;
use lorentz_inject::tracer_of_process;

use super::elsewhere::explain_missing;
use super::{file_error, Container, StateDir};
use crate::{nearest, StateError};

/// Whether anything of a container still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// A monitor supervises it.
    Alive,
    /// Programs run, but no monitor supervises them: none of them can start another program.
    MonitorDead,
    /// Nothing runs.
    Ended,
}

impl StateDir {
    /// Returns the container called `text`, or the container of the process with this number: a program, or the `lorentz` command
    /// that supervises it. A container of an OCI runtime is also found by its id, or by a prefix of the id that no other container
    /// has.
    ///
    /// # Errors
    ///
    /// If there is no such container or process, or the process is in no container.
    pub fn find(&self, text: &str) -> Result<Container, StateError> {
        self.find_here(text).map_err(|error| match explain_missing(text, error) {
            StateError::Unknown(name) => match self.near(text) {
                Some(near) => StateError::Misspelt { name, near },
                None => StateError::Unknown(name),
            },
            error => error,
        })
    }

    /// Returns the name of a container that `text` may have meant.
    fn near(&self, text: &str) -> Option<String> {
        nearest(text, self.list().ok()?.iter().map(|one| one.name().to_string()))
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

    /// Returns the container whose id in an OCI runtime is `text`, or the only one whose id begins with it.
    fn by_id(&self, text: &str) -> Result<Option<Container>, StateError> {
        const MIN_ID_PREFIX: usize = 3;
        let id = |container: &Container| Some(container.record().bundle.as_ref()?.id.clone());
        let mut found = self.list()?;
        found.retain(|container| id(container).is_some_and(|id| id.starts_with(text)));
        if let Some(exact) = found.iter().find(|one| id(one).as_deref() == Some(text)) {
            return Ok(Some(exact.clone()));
        }
        Ok(found.pop().filter(|_| found.is_empty() && text.len() >= MIN_ID_PREFIX))
    }

    /// Returns the container of process `pid`.
    ///
    /// # Errors
    ///
    /// If there is no such process, or it is in no container.
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
        let owner_among = |is_it: &dyn Fn(&Container) -> bool| {
            owner(&containers.iter().filter(|one| is_it(one)).collect::<Vec<_>>(), &lineage)
        };
        let by_clock = || {
            let clock = processes::clock_of(pid)?;
            owner_among(&|one| one.is_on(&clock))
        };
        let by_tracer = || {
            let tracer = tracer_of_process(pid)?;
            owner_among(&|one| one.is_monitored_by(tracer))
        };
        let by_file = || {
            let group = Cgroup::of(pid)?;
            owner_among(&|one| one.has_in_its_group(&group) && one.is_opened_by(pid))
        };
        // The caller may not look into this process, or the process is still on its way in.
        let by_parent = || {
            lineage.iter().find_map(|process| {
                containers.iter().find(|container| container.is_monitored_by(process.pid))
            })
        };
        // In the order in which an exec goes through them.
        let found = by_clock().or_else(by_tracer).or_else(by_file).or_else(by_clock);
        found.or_else(by_parent).cloned().ok_or_else(|| match Process::read(pid) {
            Some(process) if !process.has_ended() => StateError::NotInside(pid),
            // Nobody has waited for it yet, or somebody just has.
            _ => StateError::NoProcess(pid),
        })
    }

    /// Returns the processes of each of `containers`, in the order of `containers`, each list sorted by process id. `seen` is one
    /// walk over /proc for all of them. A process in the midst of an exec is found in its container's control group alone.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read.
    pub fn processes_of(
        &self,
        containers: &[&Container],
        seen: &OnClocks,
    ) -> Result<Vec<Vec<Process>>, StateError> {
        let mut of_shared = None;
        let on_clock = containers.iter().map(|container| {
            let Ok(clock) = FileId::of(&container.clock_path()) else { return Ok(Vec::new()) };
            if !container.shares_its_clock() {
                return Ok(seen.of(&clock).cloned().collect());
            }
            let by_name = match &mut of_shared {
                Some(by_name) => by_name,
                none => none.insert(self.processes_on_shared_clocks(seen)?),
            };
            Ok(by_name.get(container.name()).cloned().unwrap_or_default())
        });
        let others = others_by_container(containers, seen);
        let with_entering =
            |(container, found): (&&Container, Result<Vec<Process>, StateError>)| {
                let others = others.get(container.name()).map(Vec::as_slice).unwrap_or_default();
                found.map(|found| container.with_entering(found, others))
            };
        containers.iter().zip(on_clock).map(with_entering).collect()
    }

    /// Returns the processes of all containers that share their clocks with others, by the containers' names.
    fn processes_on_shared_clocks(
        &self,
        seen: &OnClocks,
    ) -> Result<HashMap<String, Vec<Process>>, StateError> {
        let mut by_clock: HashMap<FileId, Vec<Container>> = HashMap::new();
        for container in self.list()? {
            match FileId::of(&container.clock_path()) {
                Ok(clock) if container.shares_its_clock() => {
                    by_clock.entry(clock.without_name()).or_default().push(container);
                }
                _ => (),
            }
        }
        let mut by_name: HashMap<String, Vec<Process>> = HashMap::new();
        for sharing in by_clock.values() {
            let sharing: Vec<&Container> = sharing.iter().collect();
            let Some(clock) = sharing.iter().find_map(|one| FileId::of(&one.clock_path()).ok())
            else {
                continue;
            };
            for process in seen.of(&clock) {
                if let Some(owner) = owner(&sharing, &seen.lineage(process.pid)) {
                    by_name.entry(owner.name().to_string()).or_default().push(process.clone());
                }
            }
        }
        Ok(by_name)
    }
}

impl Container {
    /// Whether anything of the container still runs.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn liveness(&self) -> Result<Liveness, StateError> {
        if self.record().live_monitor().is_some() {
            return Ok(Liveness::Alive);
        }
        if !self.record().is_of_this_boot() {
            return Ok(Liveness::Ended);
        }
        if self.has_one_in_its_group() || self.has_idle_program() {
            return Ok(Liveness::MonitorDead);
        }
        Ok(self.liveness_with(&self.processes()?))
    }

    /// As [`Container::liveness`], with processes that the caller knows already.
    pub fn liveness_with(&self, processes: &[Process]) -> Liveness {
        match self.record().live_monitor() {
            Some(_) => Liveness::Alive,
            None if processes.is_empty() && !self.has_idle_program() => Liveness::Ended,
            None => Liveness::MonitorDead,
        }
    }

    /// Whether the control group shows a running process of the container. There may be others outside the group: attached
    /// processes, and processes that have left it.
    fn has_one_in_its_group(&self) -> bool {
        let pids = self.cgroup().map(|cgroup| cgroup.pids_below()).unwrap_or_default();
        let is_on = |pid: &u32| processes::clock_of(*pid).is_some_and(|clock| self.is_on(&clock));
        !self.shares_its_clock() && pids.iter().any(is_on)
    }

    /// Whether the first process of a container that executes nothing still runs. It is on no clock.
    fn has_idle_program(&self) -> bool {
        self.record().bundle.is_some() && !self.programs_without_monitor().is_empty()
    }

    /// Returns the first programs of its dead monitors that still run.
    pub(crate) fn programs_without_monitor(&self) -> Vec<u32> {
        if !self.record().is_of_this_boot() {
            return Vec::new();
        }
        let group = self.cgroup().map(|cgroup| cgroup.pids_below()).unwrap_or_default();
        let is_on = |pid: u32| processes::clock_of(pid).is_some_and(|clock| self.is_on(&clock));
        let dead = self.record().monitors.iter().filter(|monitor| !monitor.is_alive());
        let programs = dead.filter_map(|monitor| monitor.program);
        programs.filter(|pid| group.contains(pid) || is_on(*pid)).collect()
    }

    /// Returns the container's processes, sorted by process id. The call walks over all of /proc: for many containers
    /// [`StateDir::processes_of`] does so once.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted, or the state directory cannot be read.
    pub fn processes(&self) -> Result<Vec<Process>, StateError> {
        if self.shares_its_clock() {
            let found = self.state.processes_of(&[self], &scan_processes()?)?;
            return Ok(found.into_iter().next().unwrap_or_default());
        }
        match self.cgroup() {
            Some(group) => {
                let pids: HashSet<u32> = group.pids_below().into_iter().collect();
                self.processes_among(|pid| pids.contains(&pid))
            }
            None => self.processes_anywhere(),
        }
    }

    /// As [`Container::processes`], for a container whose control group does not have all its processes yet: also finds those in the
    /// midst of an exec outside it.
    ///
    /// # Errors
    ///
    /// As [`Container::processes`].
    pub fn processes_anywhere(&self) -> Result<Vec<Process>, StateError> {
        if self.shares_its_clock() {
            return self.processes();
        }
        self.processes_among(processes::may_enter)
    }

    /// Returns the processes on its clock, and of those for which `may_enter` holds the ones that execute a program on it.
    fn processes_among(&self, may_enter: impl Fn(u32) -> bool) -> Result<Vec<Process>, StateError> {
        let Ok(clock) = FileId::of(&self.clock_path()) else { return Ok(Vec::new()) };
        let is_living = |process: &Process| !process.has_ended();
        let read = |pid| Process::read(pid).filter(is_living);
        let waits = |pid| read(pid).is_some_and(|process| self.waits_for(&process));
        let maps = |pid| read(pid).is_some_and(|process| self.is_mapped_by(&process));
        processes::on_clock_or(&clock, may_enter, [&waits, &maps]).map_err(not_listed)
    }

    /// Adds to `found`, its processes on its clock, those of `candidates` that execute a program on it: it is not mapped into their
    /// memory yet. The result is sorted by process id.
    fn with_entering(&self, mut found: Vec<Process>, candidates: &[u32]) -> Vec<Process> {
        let known: HashSet<u32> = found.iter().map(|process| process.pid).collect();
        let others = candidates.iter().filter(|pid| !known.contains(pid));
        let others = others.filter_map(|pid| Process::read(*pid));
        found.extend(others.filter(|process| !process.has_ended() && self.is_entered_by(process)));
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Whether `process` is on its way in. One of its monitors waits for its exec, or traces it. Then the monitor lets it go, and the
    /// boot code maps the clock and closes its file: the freezer may stop the process before that.
    fn is_entered_by(&self, process: &Process) -> bool {
        let pid = process.pid;
        let is_its = || !self.shares_its_clock() || self.is_in_its_group(pid);
        let is_on_it = || processes::clock_of(pid).is_some_and(|clock| self.is_on(&clock));
        self.waits_for(process) || is_its() && (self.is_mapped_by(process) || is_on_it())
    }

    /// Whether one of its monitors waits for the exec of `process`, or traces it.
    fn waits_for(&self, process: &Process) -> bool {
        let is_traced =
            || tracer_of_process(process.pid).is_some_and(|one| self.is_monitored_by(one));
        self.is_monitored_by(process.parent) && self.is_in_its_group(process.pid) || is_traced()
    }

    /// Whether `process` has its clock's file open, to map it.
    fn is_mapped_by(&self, process: &Process) -> bool {
        // Those of Lorentz have the file open too.
        !process.comm.starts_with("lorentz") && self.is_opened_by(process.pid)
    }

    /// Whether process `pid` has its clock's file open.
    fn is_opened_by(&self, pid: u32) -> bool {
        let clock = FileId::of(&self.clock_path());
        clock.is_ok_and(|clock| processes::open_files(pid).any(|file| file.is_same(&clock)))
    }

    /// Whether process `pid` is in its control group, or in one below.
    fn is_in_its_group(&self, pid: u32) -> bool {
        self.record().cgroup.is_some()
            && Cgroup::of(pid).is_some_and(|group| self.has_in_its_group(&group))
    }

    /// Whether `group` is its control group, or one below.
    fn has_in_its_group(&self, group: &Cgroup) -> bool {
        self.record().cgroup.as_deref().is_some_and(|own| group.path().starts_with(own))
    }

    /// Whether another container may be on the same clock: each has a name of the clock's file in its directory.
    fn shares_its_clock(&self) -> bool {
        fs::metadata(self.clock_path()).is_ok_and(|file| file.nlink() > 1)
    }

    /// Returns all containers on the same clock, this one included.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read.
    pub fn sharing_its_clock(&self) -> Result<Vec<Container>, StateError> {
        let path = self.clock_path();
        let clock = FileId::of(&path).map_err(|e| file_error(&path, e))?;
        if !self.shares_its_clock() {
            return Ok(vec![self.state.container(self.name())?]);
        }
        let mut names = self.state.names()?;
        names.retain(|name| {
            FileId::of(&self.state.clock_path(name)).is_ok_and(|own| own.is_same(&clock))
        });
        Ok(names.iter().filter_map(|name| self.state.container(name).ok()).collect())
    }

    /// Whether `pid` is one of the living monitors of the container.
    fn is_monitored_by(&self, pid: u32) -> bool {
        self.record().monitors.iter().any(|monitor| monitor.pid == pid && monitor.is_alive())
    }

    /// Whether `process` is a monitor of the container, or the first program of one.
    fn is_monitor_or_program(&self, process: &Process) -> bool {
        self.record().monitors.iter().any(|monitor| {
            let is_monitor =
                (monitor.pid, monitor.start_ticks) == (process.pid, process.start_ticks);
            is_monitor || monitor.program == Some(process.pid)
        })
    }
}

/// Returns the processes on no clock that are in a container's control group, by the containers' names. There are few such processes,
/// and may be many containers: so this looks at each process, and not at each group.
fn others_by_container<'a>(
    containers: &[&'a Container],
    seen: &OnClocks,
) -> HashMap<&'a str, Vec<u32>> {
    let monitors: HashSet<u32> =
        containers.iter().flat_map(|one| &one.record().monitors).map(|one| one.pid).collect();
    let with_group =
        containers.iter().filter_map(|one| Some((one.record().cgroup.as_deref()?, one)));
    let by_group: HashMap<&Path, &&Container> = with_group.collect();
    let mut found: HashMap<&str, Vec<u32>> = HashMap::new();
    if by_group.is_empty() {
        return found;
    }
    for pid in seen.others().iter().filter(|pid| !monitors.contains(pid)) {
        let Some(group) = Cgroup::of(*pid) else { continue };
        if let Some(own) = group.path().ancestors().find_map(|path| by_group.get(path)) {
            found.entry(own.name()).or_default().push(*pid);
        }
    }
    found
}

/// Returns the container of a process, among containers on one clock. The nearest ancestor that one of the containers knows
/// decides; without one, the control group. If that does not decide either, it is the container for which the clock was made.
fn owner<'a>(sharing: &[&'a Container], lineage: &[&Process]) -> Option<&'a Container> {
    let by_ancestor = lineage.iter().find_map(|process| {
        sharing.iter().find(|container| container.is_monitor_or_program(process))
    });
    let by_cgroup = || {
        let group = Cgroup::of(lineage.first()?.pid)?;
        sharing.iter().find(|container| container.has_in_its_group(&group))
    };
    let by_making = || sharing.iter().find(|container| container.record().clock_of.is_none());
    by_ancestor.or_else(by_cgroup).or_else(by_making).or_else(|| sharing.first()).copied()
}

/// Walks over /proc for the processes of all clocks.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn scan_processes() -> Result<OnClocks, StateError> {
    OnClocks::scan().map_err(not_listed)
}

fn all_processes() -> Result<Vec<Process>, StateError> {
    processes::all().map_err(not_listed)
}

fn not_listed(error: io::Error) -> StateError {
    file_error(Path::new("/proc"), error)
}
