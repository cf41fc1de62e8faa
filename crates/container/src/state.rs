//! State directories: one for each container, named after the container, with its clock and a record of its monitors.
//!
//! ```text
//! /run/lorentz/            or $XDG_RUNTIME_DIR/lorentz, /tmp/lorentz-UID, $LORENTZ_STATE_DIR
//!     quiet-lynx-4f2a/
//!         clock            the clock page and the registry of waiters
//!         changes          a pipe: wakes the monitors when a controller is done ([`lorentz_control::change_pipe`])
//!         container.json   see `ContainerRecord`
//! ```
//!
//! There is no daemon. The process that starts a container makes its directory, and the last monitor to leave removes it. A process
//! locks (flock) the directory above while it makes, changes or removes anything in it. A container on the clock of another
//! container has a hard link to that clock's file, so a clock lives until its last user ends.

mod elsewhere;
mod members;
mod name;
mod record;
mod restore;
mod root;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use lorentz_clock::file;
use lorentz_control::{change_pipe, processes, Cgroup, Clock, ClockSettings};
use lorentz_inject::limits;
use nix::fcntl::{Flock, FlockArg};

pub use members::{scan_processes, Liveness};
pub use name::is_name;
pub use record::{Bundle, ContainerRecord, Mechanism, Monitor, MonitorKind};
pub(crate) use root::effective_user;
use root::Root;
pub use root::STATE_DIR_VARIABLE;

use crate::StateError;

/// The name of a directory under construction, until it is complete and gets its own name.
const UNFINISHED: &str = ".new";
/// The name of a directory that is being removed.
const DOOMED: &str = ".old";

/// The containers of one user.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: Root,
}

/// The name and the first monitor of a new container.
#[derive(Clone, Copy, Debug)]
pub struct NewContainer<'a> {
    /// Its name. `None` makes up a name.
    pub name: Option<&'a str>,
    /// The command that will run in it, for people to read.
    pub command: &'a [OsString],
    /// The kind of the calling process, which is its first monitor.
    pub kind: MonitorKind,
    /// Whether the calling process starts programs in it, which then get a control group of their own.
    pub has_programs: bool,
}

/// A container: its directory, and its record as of the last look.
#[derive(Clone, Debug)]
pub struct Container {
    state: StateDir,
    record: ContainerRecord,
}

impl StateDir {
    /// Opens the state directory of the calling user. The directory is made with the first container, and removed with the last.
    ///
    /// # Errors
    ///
    /// If the directory belongs to another user or other users may write to it; if the file system refuses; if /proc is missing.
    pub fn open() -> Result<StateDir, StateError> {
        check_proc()?;
        Ok(StateDir { root: Root::find()? })
    }

    /// Opens the state directory at `path`. The directory is made with the first container, and stays.
    ///
    /// # Errors
    ///
    /// As [`StateDir::open`].
    pub fn at(path: &Path) -> Result<StateDir, StateError> {
        check_proc()?;
        Ok(StateDir { root: Root::chosen(path)? })
    }

    /// The path of the directory, which may not exist yet.
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// Makes a container with a clock of its own. The calling process is its monitor from now on, and calls [`Container::leave`]
    /// when all programs that it supervises have ended.
    ///
    /// # Errors
    ///
    /// If no container can have this name, or another container has it; if the file system refuses.
    pub fn create(
        &self,
        new: &NewContainer,
        settings: &ClockSettings,
    ) -> Result<Container, StateError> {
        let _lock = self.lock()?;
        let mechanism = match settings.offsets_only && new.kind != MonitorKind::Attach {
            true => Mechanism::TimeNamespace,
            false => Mechanism::Shim,
        };
        self.build(new, None, mechanism, |clock| {
            limits::check_file_size(file::LEN as u64)?;
            change_pipe::make(clock)?;
            Clock::create(clock, settings).map(drop)
        })
    }

    /// Makes the calling process a monitor on the clock of `owner`: in a new container if a name is given, else in `owner` itself.
    ///
    /// # Errors
    ///
    /// As [`StateDir::create`]. Also if there is no container `owner`, if it has ended, or if it is in an experiment and a new
    /// container is asked for.
    pub fn join(&self, new: &NewContainer, owner: &str) -> Result<Container, StateError> {
        let _lock = self.lock()?;
        let owner = self.open_by("--clock", owner)?;
        if owner.liveness()? == Liveness::Ended {
            return Err(StateError::Ended(owner.name().to_string()));
        }
        match (new.name, &owner.record.experiment) {
            (None, _) => owner.enter_locked(new.kind),
            // The tasks of the new container would run while the experiment stops the clock.
            (Some(_), Some(experiment)) => Err(StateError::InExperiment {
                name: owner.name().to_string(),
                experiment: experiment.clone(),
            }),
            (Some(_), None) => self.build(new, Some(owner.name()), Mechanism::Shim, |clock| {
                change_pipe::share(&owner.clock_path(), clock)?;
                fs::hard_link(owner.clock_path(), clock)
            }),
        }
    }

    /// Returns the container of this name.
    ///
    /// # Errors
    ///
    /// If there is no such container, or its record cannot be read.
    pub fn container(&self, name: &str) -> Result<Container, StateError> {
        self.open_by("", name)
    }

    /// Returns all containers, sorted by name, also those that have ended and left a directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Container>, StateError> {
        // A container that ends in between is left out. One that cannot be read must not hide the others.
        Ok(self.names()?.iter().filter_map(|name| self.container(name).ok()).collect())
    }

    /// Returns the names of all containers, sorted.
    fn names(&self) -> Result<Vec<String>, StateError> {
        let entries = match fs::read_dir(&self.root.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| file_error(&self.root.path, e))?,
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name::check("", name).is_ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Returns the container of this name, for removal.
    ///
    /// # Errors
    ///
    /// As [`StateDir::container`]. The error says why a container that still runs is not found.
    pub fn container_to_remove(&self, name: &str) -> Result<Container, StateError> {
        self.container(name).map_err(|error| elsewhere::explain_missing(name, error))
    }

    /// Returns the container of this name. `flag` is the option that gave the name, for the error.
    fn open_by(&self, flag: &'static str, name: &str) -> Result<Container, StateError> {
        let what = if flag.is_empty() { name.to_string() } else { format!("{flag} {name}") };
        // No container has a name that is not valid.
        if name::check(flag, name).is_err() {
            return Err(StateError::Unknown(what));
        }
        let path = self.record_path(name);
        match ContainerRecord::load(&path) {
            Ok(record) => Ok(Container { state: self.clone(), record }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StateError::Unknown(what)),
            Err(error) => Err(file_error(&path, error)),
        }
    }

    /// Makes a container. `make_clock` makes its clock. The container appears under its name complete, or not at all.
    fn build(
        &self,
        new: &NewContainer,
        clock_of: Option<&str>,
        mechanism: Mechanism,
        make_clock: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<Container, StateError> {
        let name = match new.name {
            Some(name) => self.claim(name)?,
            None => self.unused_name(),
        };
        let command = new.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let dir = self.root.path.join(UNFINISHED);
        let build = || -> io::Result<ContainerRecord> {
            clear(&dir)?;
            DirBuilder::new().mode(0o700).create(&dir)?;
            make_clock(&dir.join("clock"))?;
            let mut record = ContainerRecord::new(&name, command, new.kind)?;
            record.clock_of = clock_of.map(str::to_string);
            record.mechanism = mechanism;
            let group = if new.has_programs { Cgroup::create(&name) } else { None };
            record.cgroup = group.as_ref().map(|group| group.path().to_path_buf());
            let named = record
                .write(&dir.join("container.json"))
                .and_then(|()| fs::rename(&dir, self.root.path.join(&name)));
            if let (Err(_), Some(group)) = (&named, group) {
                group.remove();
            }
            named.map(|()| record)
        };
        match build() {
            Ok(record) => Ok(Container { state: self.clone(), record }),
            Err(error) => {
                // Nothing is there under its name. The next container clears the directory under construction.
                let _ = clear(&dir);
                Err(file_error(&self.root.path.join(&name), error))
            }
        }
    }

    /// Makes sure that no directory `name` exists, and clears the one that a dead container left.
    fn claim(&self, name: &str) -> Result<String, StateError> {
        name::check("--name", name)?;
        let dir = self.root.path.join(name);
        if !dir.exists() {
            return Ok(name.to_string());
        }
        match self.container(name) {
            Ok(container) if container.liveness()? != Liveness::Ended => {
                return Err(StateError::NameInUse(name.to_string()));
            }
            Ok(container) => container.remove_locked()?,
            // Without a record nobody can know what the directory was.
            Err(_) => clear(&dir).map_err(|e| file_error(&dir, e))?,
        }
        Ok(name.to_string())
    }

    /// Checks that a new container could have this name.
    ///
    /// # Errors
    ///
    /// If the name is not valid, or belongs to a container that still runs.
    pub fn check_new_name(&self, name: &str) -> Result<(), StateError> {
        name::check("--name", name)?;
        match self.container(name) {
            Ok(container) if container.liveness()? != Liveness::Ended => {
                Err(StateError::NameInUse(name.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Makes up a name that no container has.
    pub fn unused_name(&self) -> String {
        loop {
            let name = name::invent();
            if !self.root.path.join(&name).exists() {
                return name;
            }
        }
    }

    fn clock_path(&self, name: &str) -> PathBuf {
        self.root.path.join(name).join("clock")
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.root.path.join(name).join("container.json")
    }

    /// Locks the directory against other commands until the result is dropped. Makes the directory if it does not exist.
    fn lock(&self) -> Result<Lock<'_>, StateError> {
        let error = |error| file_error(&self.root.path, error);
        loop {
            self.root.make()?;
            let dir = match File::open(&self.root.path) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                dir => dir.map_err(error)?,
            };
            let held =
                Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| error(e.into()))?;
            // The last holder of the lock may have removed the directory.
            if held.metadata().map_err(error)?.nlink() > 0 {
                return Ok(Lock { root: &self.root, _held: held });
            }
        }
    }
}

/// The right to change the contents of a state directory.
struct Lock<'a> {
    root: &'a Root,
    _held: Flock<File>,
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if !self.root.chosen {
            // Fails while containers are in it.
            let _ = fs::remove_dir(&self.root.path);
        }
    }
}

impl Container {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> &StateDir {
        &self.state
    }

    /// Its record, as of the last look.
    pub fn record(&self) -> &ContainerRecord {
        &self.record
    }

    /// Reads the record again. `None` if the container is gone.
    pub(crate) fn reload(&self) -> Option<Container> {
        self.state.container(self.name()).ok()
    }

    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        self.state.root.path.join(&self.record.name)
    }

    /// The file of its clock.
    pub fn clock_path(&self) -> PathBuf {
        self.state.clock_path(self.name())
    }

    /// Opens its clock, to read and to change it.
    ///
    /// # Errors
    ///
    /// If the file is gone or is no clock.
    pub fn clock(&self) -> Result<Clock, StateError> {
        let path = self.clock_path();
        let clock = Clock::open(&path).map_err(|e| file_error(&path, e))?;
        Ok(clock.with_likely_group(self.cgroup()))
    }

    /// Opens its clock, to change it.
    ///
    /// # Errors
    ///
    /// As [`Container::clock`]. Also if an experiment moves the clock. Also if a container on this clock runs in a time namespace
    /// alone: the kernel's offsets cannot be changed later.
    pub fn clock_to_change(&self) -> Result<Clock, StateError> {
        let experiment = self.state.container(self.name())?.record.experiment;
        if let Some(experiment) = experiment {
            return Err(StateError::InExperiment { name: self.name().to_string(), experiment });
        }
        let fixed = |one: &&Container| one.record.mechanism == Mechanism::TimeNamespace;
        match self.sharing_its_clock()?.iter().find(fixed) {
            Some(one) => Err(StateError::OffsetsOnly(one.name().to_string())),
            None => self.clock(),
        }
    }

    /// Opens its clock, for an experiment to hold.
    ///
    /// # Errors
    ///
    /// If another container is on it too, or the clock is in an experiment. If the clock is that of a time namespace alone, or
    /// skips idle time by itself.
    pub fn clock_to_hold(&self) -> Result<Clock, StateError> {
        let name = || self.name().to_string();
        let links =
            fs::metadata(self.clock_path()).map_err(|e| file_error(&self.clock_path(), e))?;
        let clock = self.clock()?;
        match &self.record {
            ContainerRecord { experiment: Some(experiment), .. } => {
                Err(StateError::InExperiment { name: name(), experiment: experiment.clone() })
            }
            ContainerRecord { mechanism: Mechanism::TimeNamespace, .. } => {
                Err(StateError::OffsetsOnly(name()))
            }
            _ if links.nlink() > 1 => Err(StateError::SharedClock(name())),
            _ if clock.skipping().leaps_enabled => Err(StateError::Skips(name())),
            _ => Ok(clock),
        }
    }

    /// Records the experiment that moves its clock.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_experiment(&mut self, experiment: Option<&str>) -> Result<(), StateError> {
        self.update(|record| record.experiment = experiment.map(str::to_string))
    }

    /// Its control group, if it has one.
    pub fn cgroup(&self) -> Option<Cgroup> {
        self.record.cgroup.clone().map(Cgroup::at)
    }

    /// Makes the calling process one of its monitors.
    ///
    /// # Errors
    ///
    /// If the container is gone, or has ended.
    pub fn enter(&self, kind: MonitorKind) -> Result<Container, StateError> {
        let _lock = self.state.lock()?;
        if self.liveness()? == Liveness::Ended {
            return Err(StateError::Ended(self.name().to_string()));
        }
        self.enter_locked(kind)
    }

    /// Records the first program that the calling process supervises.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_program(&mut self, pid: u32) -> Result<(), StateError> {
        self.update(|record| {
            let me = std::process::id();
            let mine = record.monitors.iter_mut().filter(|monitor| monitor.pid == me);
            mine.for_each(|monitor| monitor.program = Some(pid));
        })
    }

    /// Records the first program of a container that the monitor in the background supervises, and not the calling process.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_program_of_others(&mut self, pid: u32) -> Result<(), StateError> {
        self.update(|record| {
            let me = std::process::id();
            let others = record.monitors.iter_mut().filter(|monitor| monitor.pid != me);
            others.for_each(|monitor| monitor.program = Some(pid));
        })
    }

    /// Records the OCI bundle by which an OCI runtime knows the container.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_bundle(&mut self, bundle: Bundle) -> Result<(), StateError> {
        self.update(|record| record.bundle = Some(bundle))
    }

    /// Records its control group.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_cgroup(&mut self, cgroup: Option<&Cgroup>) -> Result<(), StateError> {
        let path = cgroup.map(|cgroup| cgroup.path().to_path_buf());
        self.update(|record| record.cgroup = path)
    }

    /// Records how its programs are brought into virtual time.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn set_mechanism(&mut self, mechanism: Mechanism) -> Result<(), StateError> {
        self.update(|record| record.mechanism = mechanism)
    }

    /// Ends the supervision by the calling process, all of whose programs have ended. The last monitor to leave removes the
    /// container. A second call does no harm.
    ///
    /// # Errors
    ///
    /// If the file system refuses.
    pub fn leave(&self) -> Result<(), StateError> {
        // The lock would make the state directory anew, if this was its last container.
        if !self.dir().exists() {
            return Ok(());
        }
        let _lock = self.state.lock()?;
        let mut container = match self.state.container(self.name()) {
            // The container was removed, or another container has got its name since.
            Err(StateError::Unknown(_)) => return Ok(()),
            Ok(other) if !other.is_same(self) => return Ok(()),
            other => other?,
        };
        let me = std::process::id();
        container.record.monitors.retain(|monitor| monitor.pid != me);
        let nobody =
            container.record.monitors.is_empty() || container.liveness()? == Liveness::Ended;
        container.leave_clock_to_others();
        if nobody {
            container.remove_locked()
        } else {
            container.store()
        }
    }

    /// Removes its directory and its control group. Programs that run keep their clock.
    ///
    /// # Errors
    ///
    /// If the file system refuses.
    pub fn remove(&self) -> Result<(), StateError> {
        let _lock = self.state.lock()?;
        match self.state.container(self.name()) {
            Ok(other) if !other.is_same(self) => Ok(()),
            _ => self.remove_locked(),
        }
    }

    /// Whether both are the same container, and not only of the same name.
    pub fn is_same(&self, other: &Container) -> bool {
        self.record.name == other.record.name
            && self.record.created_boot_ns == other.record.created_boot_ns
    }

    fn enter_locked(&self, kind: MonitorKind) -> Result<Container, StateError> {
        let mut container = self.state.container(self.name())?;
        let me = Monitor::current(kind).map_err(|e| file_error(Path::new("/proc/self/stat"), e))?;
        container.record.monitors.retain(|monitor| monitor.pid != me.pid);
        container.record.monitors.push(me);
        container.store()?;
        Ok(container)
    }

    fn update(&mut self, change: impl FnOnce(&mut ContainerRecord)) -> Result<(), StateError> {
        let _lock = self.state.lock()?;
        let mut container = self.state.container(self.name())?;
        change(&mut container.record);
        container.store()?;
        self.record = container.record;
        Ok(())
    }

    fn store(&self) -> Result<(), StateError> {
        let path = self.state.record_path(self.name());
        self.record.store(&path).map_err(|e| file_error(&path, e))
    }

    fn remove_locked(&self) -> Result<(), StateError> {
        lorentz_idle::end_unused(&self.clock_path());
        if let Some(cgroup) = self.cgroup() {
            // A frozen group can never become empty. A group that cannot be removed now has programs in it.
            cgroup.thaw();
            cgroup.remove();
        }
        let doomed = self.state.root.path.join(DOOMED);
        let remove = || -> io::Result<()> {
            clear(&doomed)?;
            match fs::rename(self.dir(), &doomed) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                renamed => renamed.and_then(|()| clear(&doomed)),
            }
        };
        remove().map_err(|e| file_error(&self.dir(), e))
    }

    /// Whether its clock is the file `id`.
    pub(crate) fn is_on(&self, id: &processes::FileId) -> bool {
        processes::FileId::of(&self.clock_path()).is_ok_and(|own| own.is_same(id))
    }
}

/// Removes the directory `dir` and its contents, if it exists.
fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn file_error(path: &Path, error: io::Error) -> StateError {
    StateError::File { path: path.to_path_buf(), error }
}

#[cfg(test)]
mod tests;

/// Checks that /proc shows this very process.
fn check_proc() -> Result<(), StateError> {
    match processes::is_proc_ours() {
        true => Ok(()),
        false => Err(StateError::NoProc),
    }
}
