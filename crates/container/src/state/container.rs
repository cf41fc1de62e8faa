//! A container as commands use it: its record, its monitors, its control group, its end.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lorentz_control::{processes, Cgroup, CgroupPlace, Clock};
use lorentz_inject::limits;

use super::record::{Bundle, Mechanism, Monitor, MonitorKind};
use super::{clear, file_error, Container, ContainerRecord, Liveness, StateDir, DOOMED};
use crate::StateError;

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

    /// Names the reason of `error`, if that is that the container has ended since the look at it: its files are gone.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let is_told = error.downcast_ref().is_some_and(StateError::is_wrong_input);
        match is_told || self.dir().exists() {
            true => error,
            false => StateError::EndedMeanwhile(self.name().to_string()).into(),
        }
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
        if let Some(experiment) = self.experiment()? {
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

    /// Returns the name of the experiment that moves its clock now.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn experiment(&self) -> Result<Option<String>, StateError> {
        Ok(self.state.container(self.name())?.record.experiment)
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

    /// Removes the monitors that have died from its record. The calling process, which is one of its monitors, supervises their
    /// programs.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub(crate) fn replace_dead_monitors(&mut self) -> Result<(), StateError> {
        let first = self.programs_without_monitor().first().copied();
        self.update(|record| {
            record.monitors.retain(Monitor::is_alive);
            let me = std::process::id();
            let mine = record.monitors.iter_mut().filter(|monitor| monitor.pid == me);
            mine.for_each(|monitor| monitor.program = first);
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

    /// Makes a control group for it. `None` if this is not possible. The record names the group before it is made: if this process
    /// is killed then, the group goes with the container.
    ///
    /// # Errors
    ///
    /// If the container is gone.
    pub fn make_cgroup(&mut self, place: CgroupPlace) -> Result<Option<Cgroup>, StateError> {
        let name = self.name().to_string();
        let mut note = |group: &Cgroup| self.set_cgroup(Some(group)).map_err(io::Error::other);
        let made = Cgroup::create(place, &name, &mut note);
        if made.is_none() && self.record.cgroup.is_some() {
            self.set_cgroup(None)?;
        }
        Ok(made)
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

    pub(super) fn enter_locked(&self, kind: MonitorKind) -> Result<Container, StateError> {
        limits::check_address_space()
            .map_err(|error| file_error(&self.state.record_path(self.name()), error))?;
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

    pub(super) fn store(&self) -> Result<(), StateError> {
        let path = self.state.record_path(self.name());
        self.record.store(&path).map_err(|e| file_error(&path, e))
    }

    pub(super) fn remove_locked(&self) -> Result<(), StateError> {
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
