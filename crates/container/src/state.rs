//! State directories: one per container, named after it, with its clock and a record of who looks after it.
//!
//! ```text
//! /run/lorentz/            or $XDG_RUNTIME_DIR/lorentz, /tmp/lorentz-UID, $LORENTZ_STATE_DIR
//!     quiet-lynx-4f2a/
//!         clock            the clock page and the registry of waiters
//!         changes          a pipe: wakes the monitors when a controller is done ([`crate::watchkeeping`])
//!         container.json   see `Record`
//! ```
//!
//! There is no daemon. Whoever starts a container makes its directory, and the last monitor to leave removes
//! it. The directory above is locked (flock) while anything in it is made, changed or removed. A container on another's clock has a hard link to its file, so a clock lives until its last user ends.

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

use nix::fcntl::{Flock, FlockArg};

pub use members::{look, Life};
pub use name::is_name;
pub use record::{Bundle, Mechanism, Monitor, MonitorKind, Record};
pub(crate) use root::effective_user;
use root::Root;
pub use root::STATE_DIR_VARIABLE;

use crate::cgroup::Cgroup;
use crate::processes;
use crate::watchkeeping;
use crate::{Clock, ClockSettings, StateError};

/// What a directory under construction is called, until it is complete and gets its name.
const UNFINISHED: &str = ".new";
/// What a directory is called while it is being removed.
const DOOMED: &str = ".old";

/// The containers of one user.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: Root,
}

/// What a new container is to be called and who looks after it.
#[derive(Clone, Copy, Debug)]
pub struct NewContainer<'a> {
    /// Its name; one is made up where there is none.
    pub name: Option<&'a str>,
    /// What will run in it, for people to read.
    pub command: &'a [OsString],
    /// Which command the calling process is, its first monitor.
    pub kind: MonitorKind,
}

/// A container: its directory and what was written in it when it was last looked at.
#[derive(Clone, Debug)]
pub struct Container {
    state: StateDir,
    record: Record,
}

impl StateDir {
    /// The caller's. It is made when the first container is, and goes with the last.
    ///
    /// # Errors
    ///
    /// One that belongs to somebody else or that others may write to; a file system that refuses; a missing /proc.
    pub fn open() -> Result<StateDir, StateError> {
        processes::check_proc()?;
        Ok(StateDir { root: Root::find()? })
    }

    /// The one at `path`. It is made when the first container is, and stays.
    ///
    /// # Errors
    ///
    /// As [`StateDir::open`].
    pub fn at(path: &Path) -> Result<StateDir, StateError> {
        processes::check_proc()?;
        Ok(StateDir { root: Root::chosen(path)? })
    }

    /// Where it is. It need not be there yet.
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// Makes a container with a clock of its own. The calling process is its monitor from now on, and calls
    /// [`Container::leave`] when all it looks after has ended.
    ///
    /// # Errors
    ///
    /// A name no container can have or that is in use; a file system that refuses.
    pub fn create(
        &self,
        new: &NewContainer,
        settings: &ClockSettings,
    ) -> Result<Container, StateError> {
        let _lock = self.lock()?;
        let mut made = self.build(new, None, |clock| {
            watchkeeping::make(clock)?;
            Clock::create(clock, settings).map(drop)
        })?;
        if settings.offsets_only && new.kind != MonitorKind::Attach {
            made.record.mechanism = Mechanism::TimeNamespace;
            made.store()?;
        }
        Ok(made)
    }

    /// Makes the calling process a monitor on the clock of `owner`: in a container of its own where a name is
    /// asked for, else in `owner` itself.
    ///
    /// # Errors
    ///
    /// As [`StateDir::create`]; where there is no container `owner`, or it has ended; a container of its own on the clock of
    /// one that is in an experiment.
    pub fn join(&self, new: &NewContainer, owner: &str) -> Result<Container, StateError> {
        let _lock = self.lock()?;
        let owner = self.open_by("--clock", owner)?;
        if owner.life()? == Life::Ended {
            return Err(StateError::Ended(owner.name().to_string()));
        }
        match (new.name, &owner.record.experiment) {
            (None, _) => owner.enter_locked(new.kind),
            // Its tasks would run while the experiment has the clock stand.
            (Some(_), Some(experiment)) => Err(StateError::InExperiment {
                name: owner.name().to_string(),
                experiment: experiment.clone(),
            }),
            (Some(_), None) => self.build(new, Some(owner.name()), |clock| {
                watchkeeping::share(&owner.clock_path(), clock)?;
                fs::hard_link(owner.clock_path(), clock)
            }),
        }
    }

    /// The container of this name.
    ///
    /// # Errors
    ///
    /// Where there is none, or it cannot be read.
    pub fn container(&self, name: &str) -> Result<Container, StateError> {
        self.open_by("", name)
    }

    /// All containers, by name, those that ended and left something behind among them.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Container>, StateError> {
        // One that ends in between is not there; one that cannot be read is no reason to hide the others.
        Ok(self.names()?.iter().filter_map(|name| self.container(name).ok()).collect())
    }

    /// The names of all containers, in their order.
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

    /// The container of this name, to be removed: says why one that runs is not found.
    ///
    /// # Errors
    ///
    /// As [`StateDir::container`].
    pub fn container_to_remove(&self, name: &str) -> Result<Container, StateError> {
        self.container(name).map_err(|error| members::explain(name, error))
    }

    /// The container of this name, given by `flag`.
    fn open_by(&self, flag: &'static str, name: &str) -> Result<Container, StateError> {
        let what = if flag.is_empty() { name.to_string() } else { format!("{flag} {name}") };
        // What cannot be a name is no container's.
        if name::check(flag, name).is_err() {
            return Err(StateError::Unknown(what));
        }
        let path = self.record_path(name);
        match Record::load(&path) {
            Ok(record) => Ok(Container { state: self.clone(), record }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StateError::Unknown(what)),
            Err(error) => Err(file_error(&path, error)),
        }
    }

    /// Makes a container whose clock `make_clock` makes. It appears under its name whole or not at all.
    fn build(
        &self,
        new: &NewContainer,
        clock_of: Option<&str>,
        make_clock: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<Container, StateError> {
        let name = match new.name {
            Some(name) => self.claim(name)?,
            None => self.unused_name(),
        };
        let command = new.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let dir = self.root.path.join(UNFINISHED);
        let build = || -> io::Result<Record> {
            clear(&dir)?;
            DirBuilder::new().mode(0o700).create(&dir)?;
            make_clock(&dir.join("clock"))?;
            let mut record = Record::new(&name, command, new.kind)?;
            record.clock_of = clock_of.map(str::to_string);
            record.store(&dir.join("container.json"))?;
            fs::rename(&dir, self.root.path.join(&name))?;
            Ok(record)
        };
        match build() {
            Ok(record) => Ok(Container { state: self.clone(), record }),
            Err(error) => {
                // Nothing is there under its name; what is under the other the next one clears.
                let _ = clear(&dir);
                Err(file_error(&self.root.path.join(&name), error))
            }
        }
    }

    /// Makes sure that nothing is there under `name`: what a dead container left is cleared.
    fn claim(&self, name: &str) -> Result<String, StateError> {
        name::check("--name", name)?;
        let dir = self.root.path.join(name);
        if !dir.exists() {
            return Ok(name.to_string());
        }
        match self.container(name) {
            Ok(container) if container.life()? != Life::Ended => {
                return Err(StateError::NameInUse(name.to_string()));
            }
            Ok(container) => container.remove_locked()?,
            // Without a record nobody can know what it was.
            Err(_) => clear(&dir).map_err(|e| file_error(&dir, e))?,
        }
        Ok(name.to_string())
    }

    /// Whether a container could be called `name`.
    ///
    /// # Errors
    ///
    /// Not a name; that of a container that still runs.
    pub fn check_new_name(&self, name: &str) -> Result<(), StateError> {
        name::check("--name", name)?;
        match self.container(name) {
            Ok(container) if container.life()? != Life::Ended => {
                Err(StateError::NameInUse(name.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// A name that no container has.
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

    /// Keeps other commands from changing anything until it is dropped. Makes the directory where it is not
    /// there.
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
            // Whoever had the lock before may have removed the directory.
            if held.metadata().map_err(error)?.nlink() > 0 {
                return Ok(Lock { root: &self.root, _held: held });
            }
        }
    }
}

/// The right to change what is in a state directory.
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

    /// The state directory that it is in.
    pub(crate) fn state(&self) -> &StateDir {
        &self.state
    }

    /// What was written down about it, when last looked at.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The container as it is written down by now.
    pub(crate) fn again(&self) -> Option<Container> {
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

    /// Its clock, to look at and to change.
    ///
    /// # Errors
    ///
    /// Where the file is gone or is no clock.
    pub fn clock(&self) -> Result<Clock, StateError> {
        let path = self.clock_path();
        let clock = Clock::open(&path).map_err(|e| file_error(&path, e))?;
        Ok(clock.mostly_in(self.cgroup()))
    }

    /// Its clock, to be changed: refused where the kernel has it and not we.
    ///
    /// # Errors
    ///
    /// As [`Container::clock`]; where an experiment moves it, or a container on this clock runs in a time namespace alone.
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

    /// Its clock, for an experiment to hold.
    ///
    /// # Errors
    ///
    /// Where the clock is another container's too, is the kernel's alone, leaps over idle time by itself, or is in an
    /// experiment.
    pub fn clock_to_hold(&self) -> Result<Clock, StateError> {
        let name = || self.name().to_string();
        let links =
            fs::metadata(self.clock_path()).map_err(|e| file_error(&self.clock_path(), e))?;
        let clock = self.clock()?;
        match &self.record {
            Record { experiment: Some(experiment), .. } => {
                Err(StateError::InExperiment { name: name(), experiment: experiment.clone() })
            }
            Record { mechanism: Mechanism::TimeNamespace, .. } => {
                Err(StateError::OffsetsOnly(name()))
            }
            _ if links.nlink() > 1 => Err(StateError::SharedClock(name())),
            _ if clock.skipping().believed => Err(StateError::Skips(name())),
            _ => Ok(clock),
        }
    }

    /// Writes down which experiment moves its clock.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_experiment(&mut self, experiment: Option<&str>) -> Result<(), StateError> {
        self.update(|record| record.experiment = experiment.map(str::to_string))
    }

    /// Its control group, where it has one.
    pub fn cgroup(&self) -> Option<Cgroup> {
        self.record.cgroup.clone().map(Cgroup::at)
    }

    /// Makes the calling process one of its monitors.
    ///
    /// # Errors
    ///
    /// Where the container is gone, or has ended.
    pub fn enter(&self, kind: MonitorKind) -> Result<Container, StateError> {
        let _lock = self.state.lock()?;
        if self.life()? == Life::Ended {
            return Err(StateError::Ended(self.name().to_string()));
        }
        self.enter_locked(kind)
    }

    /// Writes down the first program that the calling process looks after.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_program(&mut self, pid: u32) -> Result<(), StateError> {
        self.update(|record| {
            let me = std::process::id();
            let mine = record.monitors.iter_mut().filter(|monitor| monitor.pid == me);
            mine.for_each(|monitor| monitor.program = Some(pid));
        })
    }

    /// Writes down the first program of a container that the monitor in the background looks after, and not the calling
    /// process.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_program_of_others(&mut self, pid: u32) -> Result<(), StateError> {
        self.update(|record| {
            let me = std::process::id();
            let others = record.monitors.iter_mut().filter(|monitor| monitor.pid != me);
            others.for_each(|monitor| monitor.program = Some(pid));
        })
    }

    /// Writes down what an OCI runtime knows it by.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_bundle(&mut self, bundle: Bundle) -> Result<(), StateError> {
        self.update(|record| record.bundle = Some(bundle))
    }

    /// Writes down its control group.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_cgroup(&mut self, cgroup: Option<&Cgroup>) -> Result<(), StateError> {
        let path = cgroup.map(|cgroup| cgroup.path().to_path_buf());
        self.update(|record| record.cgroup = path)
    }

    /// Writes down how its programs are brought into virtual time.
    ///
    /// # Errors
    ///
    /// Where the container is gone.
    pub fn set_mechanism(&mut self, mechanism: Mechanism) -> Result<(), StateError> {
        self.update(|record| record.mechanism = mechanism)
    }

    /// The calling process looks after it no longer: all its programs have ended. The last to leave removes
    /// the container. It does no harm to leave twice.
    ///
    /// # Errors
    ///
    /// A file system that refuses.
    pub fn leave(&self) -> Result<(), StateError> {
        let _lock = self.state.lock()?;
        let mut container = match self.state.container(self.name()) {
            // Somebody removed it, or it is another that got the same name since.
            Err(StateError::Unknown(_)) => return Ok(()),
            Ok(other) if !other.is_same(self) => return Ok(()),
            other => other?,
        };
        let me = std::process::id();
        container.record.monitors.retain(|monitor| monitor.pid != me);
        let nobody = container.record.monitors.is_empty() || container.life()? == Life::Ended;
        container.leave_clock_to_others();
        if nobody {
            container.remove_locked()
        } else {
            container.store()
        }
    }

    /// Removes what there is of it: directory and control group. Programs that run keep their clock.
    ///
    /// # Errors
    ///
    /// A file system that refuses.
    pub fn remove(&self) -> Result<(), StateError> {
        let _lock = self.state.lock()?;
        match self.state.container(self.name()) {
            Ok(other) if !other.is_same(self) => Ok(()),
            _ => self.remove_locked(),
        }
    }

    /// Whether both are the same container, not just of the same name.
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

    fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), StateError> {
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
        crate::skip::end_unused(&self.clock_path());
        if let Some(cgroup) = self.cgroup() {
            // A frozen group could never empty. What cannot be removed now has programs in it.
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

/// Removes the directory `dir` and all in it, where it is there.
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
