//! Making a container's directory anew after somebody has deleted it while its programs run.
//!
//! A deleted file cannot get a name again. In the new directory `clock` is a symbolic link to the monitor's open file, in
//! `/proc/PID/fd`. It leads to the very file that the programs have mapped.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{symlink, DirBuilderExt};
use std::path::{Path, PathBuf};

use lorentz_control::change_pipe;
use lorentz_control::processes::FileId;

use super::{clear, file_error, Container, Monitor, MonitorKind, RECORD, UNFINISHED};
use crate::StateError;

impl Container {
    /// Makes the container's directory anew, or its missing files. The calling process is one of its monitors and has its clock
    /// open as `clock`.
    ///
    /// # Errors
    ///
    /// If another container has the name by now, the file system refuses, or the directory above the state directory is gone.
    pub(crate) fn restore(&self, clock: BorrowedFd) -> Result<Container, StateError> {
        let above = self.state.path().parent().unwrap_or(Path::new("/"));
        fs::metadata(above).map_err(|e| file_error(above, e))?;
        let _lock = self.state.lock()?;
        match self.state.container(self.name()) {
            Ok(other) if !other.is_same(self) => {
                Err(StateError::NameInUse(self.name().to_string()))
            }
            Ok(mut there) => {
                let repaired = there.repair(clock);
                repaired.map_err(|e| file_error(&there.dir(), e))?;
                Ok(there)
            }
            Err(_) => {
                let mut made = self.clone();
                made.record.monitors.retain(Monitor::is_alive);
                made.rebuild(clock).map_err(|e| file_error(&made.dir(), e))?;
                Ok(made)
            }
        }
    }

    /// Whether all files are in its directory.
    pub(crate) fn is_complete(&self) -> bool {
        let clock = self.clock_path();
        clock.exists()
            && change_pipe::exists(&clock)
            && self.state.record_path(self.name()).exists()
    }

    /// Makes the missing files of a directory that still has its record.
    fn repair(&mut self, clock: BorrowedFd) -> io::Result<()> {
        if FileId::of(&self.clock_path()).is_err() {
            let _ = fs::remove_file(self.clock_path());
            link_clock(clock, &self.clock_path())?;
        }
        match change_pipe::make(&self.clock_path()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.list_this_monitor()?;
        self.record.store(&self.state.record_path(self.name()))
    }

    /// Makes the directory, which appears under its name complete or not at all.
    fn rebuild(&mut self, clock: BorrowedFd) -> io::Result<()> {
        let dir = self.state.path().join(UNFINISHED);
        self.state.clear_unfinished_locked()?;
        clear(&self.dir())?;
        DirBuilder::new().mode(0o700).create(&dir)?;
        link_clock(clock, &dir.join("clock"))?;
        change_pipe::make(&dir.join("clock"))?;
        self.list_this_monitor()?;
        self.record.store(&dir.join(RECORD))?;
        fs::rename(&dir, self.dir())
    }

    fn list_this_monitor(&mut self) -> io::Result<()> {
        let me = Monitor::current(MonitorKind::Run)?;
        let known = |one: &Monitor| (one.pid, one.start_ticks) == (me.pid, me.start_ticks);
        if !self.record.monitors.iter().any(known) {
            self.record.monitors.push(me);
        }
        Ok(())
    }

    /// If `clock` is a link to another monitor's open file, makes it lead to this monitor's: the other monitor may end.
    pub(crate) fn take_clock_over(&self, clock: BorrowedFd) -> io::Result<()> {
        if self.clock_link().is_none() {
            return Ok(());
        }
        let new = self.dir().join("clock.new");
        let _ = fs::remove_file(&new);
        link_clock(clock, &new)?;
        fs::rename(new, self.clock_path())
    }

    /// Whether `clock` is no such link, or leads to a living monitor of this container.
    pub(crate) fn is_clock_held(&self) -> bool {
        let Some(link) = self.clock_link() else { return true };
        let of =
            |one: &Monitor| one.is_alive() && link.starts_with(format!("/proc/{}/fd", one.pid));
        self.record.monitors.iter().any(of)
    }

    /// If `clock` leads to this process, which is about to end, removes the link. Other monitors notice this, and make links to
    /// their own files.
    pub(super) fn leave_clock_to_others(&self) {
        let own = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
        if self.clock_link().is_some_and(|link| link.starts_with(own)) {
            let _ = fs::remove_file(self.clock_path());
        }
    }

    fn clock_link(&self) -> Option<PathBuf> {
        fs::read_link(self.clock_path()).ok()
    }
}

fn link_clock(clock: BorrowedFd, at: &Path) -> io::Result<()> {
    symlink(format!("/proc/{}/fd/{}", std::process::id(), clock.as_raw_fd()), at)
}
