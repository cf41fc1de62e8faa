//! Containers: their records, clocks, processes and CPU time.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use lorentz_container::{self as container, Liveness, StateDir};

use super::clocks::WatchedClock;
use crate::types::{Clock, Container, LeapCount, Life, Nanos, Network};

/// The state directory is read when it has changed, and so often: two changes may have one time.
const LIST_INTERVAL: Duration = Duration::from_secs(3);
/// Each container's processes are counted so often.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Most containers that are counted at one look. With more of them, each is counted less often.
const COUNTED_AT_ONCE: usize = 4;

/// All containers.
#[derive(Default)]
pub struct Containers {
    all: BTreeMap<String, Watched>,
    /// When the names were read, and the directory's time then.
    listed: Option<(Instant, Option<SystemTime>)>,
    /// When /proc is walked next, for the containers without a control group.
    walk_due: Option<Instant>,
}

/// When a record was written: seconds, nanoseconds, inode.
type Version = (i64, i64, u64);

struct Watched {
    container: container::Container,
    version: Version,
    clock: Option<WatchedClock>,
    counted: Option<Instant>,
    shown: Container,
}

impl Containers {
    /// Looks at the containers in `state`.
    pub fn look(&mut self, state: &StateDir, thorough: bool) {
        let changed = std::fs::metadata(state.path()).and_then(|dir| dir.modified()).ok();
        let is_known = |(then, known): (Instant, _)| {
            then.elapsed() < LIST_INTERVAL && known == changed && changed.is_some()
        };
        if thorough || !self.listed.is_some_and(is_known) {
            self.listed = Some((Instant::now(), changed));
            self.list(state);
        }
        self.count_by_walk(state);
        let mut counted = 0;
        for watched in self.all.values_mut() {
            let is_due = watched.counted.is_none_or(|then| then.elapsed() >= COUNT_INTERVAL);
            if is_due && (counted < COUNTED_AT_ONCE || watched.counted.is_none()) {
                counted += 1;
                watched.renew(state);
                watched.count();
            }
            watched.look();
        }
    }

    /// Counts the processes of the containers without a control group. The walk takes at most a hundredth of the time.
    fn count_by_walk(&mut self, state: &StateDir) {
        const SHARE: u32 = 100;
        const LONGEST: Duration = Duration::from_secs(15);
        let begin = Instant::now();
        if self.walk_due.is_some_and(|due| due > begin) {
            return;
        }
        let mut without: Vec<&mut Watched> =
            self.all.values_mut().filter(|one| one.container.cgroup().is_none()).collect();
        if without.is_empty() {
            return;
        }
        let containers: Vec<&container::Container> =
            without.iter().map(|one| &one.container).collect();
        let found = container::scan_processes()
            .and_then(|seen| state.processes_of(&containers, &seen))
            .unwrap_or_default();
        for (watched, found) in without.iter_mut().zip(found) {
            watched.shown.tasks = found.len() as u32;
        }
        self.walk_due = Some(begin + (begin.elapsed() * SHARE).clamp(COUNT_INTERVAL, LONGEST));
    }

    fn list(&mut self, state: &StateDir) {
        let names = names(state);
        self.all.retain(|name, _| names.contains_key(name));
        for (name, version) in names {
            if self.all.get(&name).is_some_and(|known| known.version == version) {
                continue;
            }
            // A container that ends in between is left out.
            let Ok(container) = state.container(&name) else {
                self.all.remove(&name);
                continue;
            };
            match self.all.get_mut(&name).filter(|known| known.container.is_same(&container)) {
                Some(known) => known.update(container, version),
                None => drop(self.all.insert(name, Watched::new(container, version))),
            }
        }
    }

    /// The clock of the container called `name`.
    pub fn clock(&self, name: &str) -> Option<&Clock> {
        self.all.get(name)?.shown.clock.as_ref()
    }

    /// Whether the container called `name` still runs.
    pub fn runs(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|watched| watched.shown.state != Life::Crashed)
    }

    /// Notes which containers are nodes of `networks`.
    pub fn name_nodes(&mut self, networks: &[Network]) {
        for network in networks {
            for node in &network.nodes {
                if let Some(watched) = self.all.get_mut(&node.container) {
                    watched.shown.network = Some(network.name.clone());
                    watched.shown.node = Some(node.name.clone());
                }
            }
            if let Some(own) = self.all.get_mut(&network.name) {
                own.shown.network = Some(network.name.clone());
            }
        }
    }

    /// Returns all containers as they were at the last look.
    pub fn shown(&self) -> Vec<Container> {
        self.all.values().map(|watched| watched.shown.clone()).collect()
    }
}

/// Returns the names of the containers in `state`, each with the version of its record.
fn names(state: &StateDir) -> BTreeMap<String, Version> {
    let Ok(entries) = std::fs::read_dir(state.path()) else { return BTreeMap::new() };
    let entries = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok().filter(|name| container::is_name(name))?;
        Some((name, version_of(&entry.path())?))
    });
    entries.collect()
}

/// Returns the version of the record in a container's directory.
fn version_of(dir: &Path) -> Option<Version> {
    let record = std::fs::metadata(dir.join("container.json")).ok()?;
    Some((record.mtime(), record.mtime_nsec(), record.ino()))
}

impl Watched {
    fn new(container: container::Container, version: Version) -> Watched {
        let record = container.record();
        let shown = Container {
            name: record.name.clone(),
            pid: None,
            command: record.command.clone(),
            state: Life::Runs,
            clock: None,
            network: None,
            node: None,
            experiment: None,
            tasks: 0,
            cpu_ns: 0,
            leaps: None,
        };
        let clock = container.clock().ok().map(WatchedClock::new);
        let mut watched =
            Watched { container: container.clone(), version, clock, counted: None, shown };
        watched.update(container, version);
        watched
    }

    fn update(&mut self, container: container::Container, version: Version) {
        let record = container.record();
        self.shown.command = record.command.clone();
        self.shown.experiment = record.experiment.clone();
        let program = |monitor: &container::Monitor| monitor.program;
        self.shown.pid = record.monitors.iter().find_map(program);
        self.container = container;
        self.version = version;
        // The new record may have another monitor or group.
        self.counted = None;
    }

    /// Reads its record if it has changed. A container that has ended goes with the next list of names.
    fn renew(&mut self, state: &StateDir) {
        let version = version_of(&self.container.dir());
        if version.is_none_or(|version| version == self.version) {
            return;
        }
        if let (Some(version), Ok(container)) = (version, state.container(&self.shown.name)) {
            if container.is_same(&self.container) {
                self.update(container, version);
            }
        }
    }

    /// Counts processes and CPU time, and looks whether the monitor lives.
    fn count(&mut self) {
        self.counted = Some(Instant::now());
        let (tasks, cpu) = match self.container.cgroup() {
            Some(group) => {
                (group.pids_below().len(), group.cpu_time().unwrap_or_default().as_nanos())
            }
            // All of these are counted by one walk over /proc.
            None => (self.shown.tasks as usize, 0),
        };
        self.shown.tasks = tasks as u32;
        self.shown.cpu_ns = cpu as u64;
        let is_alive = matches!(self.container.liveness(), Ok(Liveness::Alive));
        self.shown.state = if is_alive { Life::Runs } else { Life::Crashed };
    }

    fn look(&mut self) {
        let in_experiment = self.shown.experiment.is_some();
        self.shown.clock = self.clock.as_mut().map(|clock| clock.look(in_experiment));
        if let Some((count, by)) = self.clock.as_ref().map(WatchedClock::leaps) {
            let leaps = LeapCount { count: count.max(0) as u64, by_ns: Nanos(by.0) };
            self.shown.leaps = (count > 0).then_some(leaps);
        }
        // An experiment freezes nothing: its clocks only stand between slices.
        let is_frozen = self.shown.clock.as_ref().is_some_and(|clock| clock.frozen);
        self.shown.state = match self.shown.state {
            Life::Crashed => Life::Crashed,
            _ if is_frozen => Life::Frozen,
            _ => Life::Runs,
        };
    }
}
