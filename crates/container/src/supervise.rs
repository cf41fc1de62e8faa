//! Supervision of containers that another program starts: an OCI runtime makes the processes, and a monitor in the background
//! supervises them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use anyhow::Context;
use lorentz_inject::{register_process, ExecMonitor, RegistrationSocket, SelfRegistration};
use nix::unistd::Pid;

use crate::background::{self, close_inherited, close_standard_streams, keep_only};
use crate::lifecycle::{complete, enter_as, keep_watch, monitor_of};
use crate::{Container, MonitorKind};

/// The name of the registration socket, in the container's directory: the monitor supervises the processes that register there.
const REGISTRATION_SOCKET: &str = "door";

/// A connection to a container's registration socket, for processes that are about to execute their programs. While it is open, the
/// container's monitor does not leave.
pub struct MonitorConnection {
    socket: UnixStream,
    container: Container,
}

/// Starts a monitor for `container` in the background. It supervises every process that registers, and leaves with the last one,
/// after a call of `at_end`. The caller must have one thread only.
///
/// # Errors
///
/// If no process or socket can be made.
pub fn start_monitor(
    container: &Container,
    at_end: impl FnOnce(),
) -> anyhow::Result<MonitorConnection> {
    let (ours, theirs) = UnixStream::pair()?;
    let socket = bind_anew(container).context("making the monitor's door")?;
    background::start(|ready| {
        let socket = OwnedFd::from(socket);
        let theirs = OwnedFd::from(theirs);
        keep_only(&[ready.as_fd(), socket.as_fd(), theirs.as_fd()]);
        let container = container.enter(MonitorKind::Runtime)?;
        let mut monitor = monitor_of(&container)?;
        monitor.accept_registrations(RegistrationSocket::new(socket.into(), theirs.into())?);
        close_standard_streams()?;
        std::env::set_current_dir("/")?;
        drop(ready);
        monitor.serve_rest()?;
        at_end();
        container.leave()?;
        Ok(())
    })?;
    Ok(MonitorConnection { socket: ours, container: container.clone() })
}

/// Makes a process in the background go on as `monitor`, which has programs already, as that of [`start_monitor`] does. `first` is
/// the process id of the container's first program. The caller must have one thread only.
///
/// # Errors
///
/// If no process or socket can be made.
pub fn hand_over_to_background(
    monitor: &mut ExecMonitor,
    container: &Container,
    first: u32,
) -> anyhow::Result<()> {
    complete(monitor, container)?;
    let socket = bind_anew(container).context("making the monitor's door")?;
    background::start(|ready| {
        // An engine waits for the end of pipes that it has given to its runtime.
        close_inherited()?;
        let container = enter_as(monitor, container, MonitorKind::Runtime)?;
        // The clock watch of the parent belongs to the parent.
        keep_watch(monitor, &container, container.clock()?);
        monitor.program_begins(Pid::from_raw(first as i32));
        monitor.accept_registrations(RegistrationSocket::listening(socket)?);
        close_standard_streams()?;
        std::env::set_current_dir("/")?;
        drop(ready);
        monitor.serve_rest()?;
        container.leave()?;
        Ok(())
    })
}

/// Connects to the registration socket of a container whose monitor runs.
///
/// # Errors
///
/// If there is no monitor: then nothing can be started on its clock.
pub fn connect_to_monitor(container: &Container) -> anyhow::Result<MonitorConnection> {
    let address = address(container)?;
    let socket = UnixStream::connect(address.path()).with_context(|| {
        format!("{}: nobody looks after this container any more", container.name())
    })?;
    Ok(MonitorConnection { socket, container: container.clone() })
}

impl MonitorConnection {
    /// The entrance for a process that gets the seccomp filter and the shim.
    ///
    /// # Errors
    ///
    /// If the container's clock cannot be read.
    pub fn entrance(&self) -> anyhow::Result<SelfRegistration> {
        let policy = self.container.clock()?.policy();
        Ok(SelfRegistration::new(self.socket.try_clone()?, policy))
    }

    /// Registers process `pid`, whose clocks are the kernel's. The monitor only waits for its end.
    ///
    /// # Errors
    ///
    /// If the process has ended, or the monitor is gone.
    pub fn register_process(&self, pid: u32) -> anyhow::Result<()> {
        Ok(register_process(&self.socket, open_process(pid)?.as_fd())?)
    }
}

/// Opens a pidfd of process `pid`.
pub(crate) fn open_process(pid: u32) -> anyhow::Result<OwnedFd> {
    // SAFETY: plain numbers in, a new descriptor or -1 out.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error()).context("pidfd_open");
    }
    // SAFETY: the descriptor was just opened, and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) })
}

/// A socket's address by the descriptor of its directory: the directory's path may be longer than an address can be.
struct Address {
    directory: File,
}

impl Address {
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{REGISTRATION_SOCKET}", self.directory.as_raw_fd()))
    }
}

fn address(container: &Container) -> io::Result<Address> {
    Ok(Address { directory: File::open(container.dir())? })
}

/// Makes the registration socket of a container. The socket of a monitor that has died may still be there.
pub(crate) fn bind_anew(container: &Container) -> io::Result<UnixListener> {
    let address = address(container)?;
    match fs::remove_file(address.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(address.path()),
    }
}
