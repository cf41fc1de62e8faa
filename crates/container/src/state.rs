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

mod container;
mod elsewhere;
mod members;
mod name;
mod record;
mod restore;
mod root;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lorentz_clock::file;
use lorentz_control::{
    change_pipe, cluster_clock, processes, Cgroup, CgroupPlace, Clock, ClockSettings,
};
use lorentz_inject::limits;
use nix::fcntl::{Flock, FlockArg};

pub use members::{scan_processes, Liveness};
pub use name::is_name;
pub use record::{
    replace_file, Bundle, ContainerRecord, Mechanism, Monitor, MonitorKind, Newcomers,
};
pub(crate) use root::effective_user;
use root::Root;
pub use root::STATE_DIR_VARIABLE;

use crate::StateError;

/// The name of a directory under construction, until it is complete and gets its own name.
const UNFINISHED: &str = ".new";
/// The file with the record of a container in its directory.
const RECORD: &str = "container.json";
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
    /// The OCI bundle by which an OCI runtime knows it.
    pub bundle: Option<&'a Bundle>,
    /// How it receives programs that enter from outside.
    pub newcomers: Option<Newcomers>,
}

impl NewContainer<'_> {
    /// A container with a made-up name and no command, whose first monitor is of this kind.
    pub fn monitored_by(kind: MonitorKind) -> Self {
        NewContainer {
            name: None,
            command: &[],
            kind,
            has_programs: false,
            bundle: None,
            newcomers: None,
        }
    }
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

    /// Makes a container whose clock's file has the contents `clock`: that of a checkpoint. Zeros at its end may be missing.
    ///
    /// # Errors
    ///
    /// As [`StateDir::create`].
    pub fn create_from(&self, new: &NewContainer, clock: &[u8]) -> Result<Container, StateError> {
        let _lock = self.lock()?;
        self.build(new, None, Mechanism::Shim, |path| {
            limits::check_file_size(file::LEN as u64)?;
            change_pipe::make(path)?;
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(clock)?;
            file.set_len(file::LEN as u64)
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
        let owner = self.open_by("--clock", owner).map_err(|error| match cluster_clock(owner) {
            Some(clock) if matches!(error, StateError::Unknown(_)) => {
                StateError::NoAgent(clock.to_string())
            }
            _ => error,
        })?;
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
            limits::check_address_space()?;
            self.clear_unfinished_locked()?;
            DirBuilder::new().mode(0o700).create(&dir)?;
            make_clock(&dir.join("clock"))?;
            let mut record = ContainerRecord::new(&name, command, new.kind)?;
            record.clock_of = clock_of.map(str::to_string);
            record.mechanism = mechanism;
            record.bundle = new.bundle.cloned();
            record.newcomers = new.newcomers;
            let path = dir.join(RECORD);
            let mut note = |group: &Cgroup| {
                record.cgroup = Some(group.path().to_path_buf());
                record.write(&path)
            };
            let is_made =
                new.has_programs && Cgroup::create(CgroupPlace::Own, &name, &mut note).is_some();
            if !is_made {
                record.cgroup = None;
                record.write(&path)?;
            }
            fs::rename(&dir, self.root.path.join(&name))?;
            Ok(record)
        };
        match build() {
            Ok(record) => Ok(Container { state: self.clone(), record }),
            Err(error) => {
                // Nothing is there under its name. If this fails, the next container clears the directory under construction.
                let _ = self.clear_unfinished_locked();
                Err(file_error(&self.root.path.join(&name), error))
            }
        }
    }

    /// Removes what a process has left that was killed while it made a container.
    ///
    /// # Errors
    ///
    /// If the file system refuses.
    pub fn clear_unfinished(&self) -> Result<(), StateError> {
        let _lock = self.lock()?;
        self.clear_unfinished_locked().map_err(|e| file_error(&self.root.path.join(UNFINISHED), e))
    }

    fn clear_unfinished_locked(&self) -> io::Result<()> {
        let dir = self.root.path.join(UNFINISHED);
        let record = ContainerRecord::load(&dir.join(RECORD)).ok();
        if let Some(group) = record.and_then(|record| record.cgroup) {
            Cgroup::at(group).remove();
        }
        clear(&dir)
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
        self.root.path.join(name).join(RECORD)
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
