//! Errors, one line each: the flag or name, its value, and the accepted values.
//!
//! Interfaces distinguish two kinds: wrong input, which is refused before anything is started (the command line exits 2), and
//! failures on the way.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why a container could not be found, made or changed.
#[derive(Debug, Error)]
pub enum StateError {
    /// No container can have this name.
    #[error(
        "{flag} {name:?}: not a container's name; expected up to 128 letters, digits, '.', '_' and '-', \
         the first a letter or digit"
    )]
    WrongName {
        /// The flag that gave the name.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// The name belongs to a container that still runs.
    #[error("--name {0}: in use by a running container; expected a name that 'lorentz ps' does not show")]
    NameInUse(String),
    /// There is no container of that name.
    #[error("{0}: no such container; expected a NAME or PID that 'lorentz ps' shows")]
    Unknown(String),
    /// There is no container of that name, but one of a name that is almost the same.
    #[error("{name}: no such container; did you mean {near}? 'lorentz ps' shows all")]
    Misspelt {
        /// The name that was given.
        name: String,
        /// The name of a container.
        near: String,
    },
    /// No agent of this host keeps the cluster clock.
    #[error(
        "--clock cluster/{0}: no agent on this host keeps this clock; 'lorentz cluster serve' starts one, and \
         'lorentz cluster ls' shows the clocks"
    )]
    NoAgent(String),
    /// There is no process with this number.
    #[error("{0}: no such process; expected a NAME or PID that 'lorentz ps' shows")]
    NoProcess(u32),
    /// The process is in no container of this user.
    #[error(
        "{0}: this process is not in virtual time; expected a NAME or PID that 'lorentz ps' shows"
    )]
    NotInside(u32),
    /// The container has ended, and nothing can be started on its clock.
    #[error("{0}: has ended; 'lorentz rm {0}' clears what is left of it")]
    Ended(String),
    /// The container has ended, or was removed, while the command was at work.
    #[error("{0}: has ended meanwhile")]
    EndedMeanwhile(String),
    /// The container still runs.
    #[error(
        "{name}: still running under its monitor, process {monitor}; end it first or use --force"
    )]
    StillRunning {
        /// Its name.
        name: String,
        /// Its monitor.
        monitor: u32,
    },
    /// Its clock is a time namespace of the kernel, whose offsets cannot be changed.
    #[error(
        "{0}: runs in a time namespace, because only --monotonic and --boottime were given; its clocks cannot be \
         changed. Start it with --rate too"
    )]
    OffsetsOnly(String),
    /// The command runs on the clock that it would stop.
    #[error("{0}: this command runs on that clock and would stop itself; freeze it from outside")]
    FreezesItself(String),
    /// Its clock is a time namespace of the kernel, in which programs start others without a monitor.
    #[error("{0}: runs in a time namespace; its programs need no monitor")]
    NeedsNoMonitor(String),
    /// An experiment moves its clock.
    #[error("{name}: part of the experiment {experiment}, which moves its clock; 'lorentz experiment remove {experiment} {name}' takes it out")]
    InExperiment {
        /// Its name.
        name: String,
        /// The name of the experiment.
        experiment: String,
    },
    /// Its clock is also the clock of another container.
    #[error("{0}: shares its clock with another container; only one with a clock of its own can be in an experiment")]
    SharedClock(String),
    /// Its clock skips idle time by itself.
    #[error("{0}: skips idle time, or has done so; give --as-fast-as-possible to the experiment instead")]
    Skips(String),
    /// /proc shows no processes, or those of another process id namespace.
    #[error(
        "/proc: does not show this process; expected the proc file system of its process id namespace, which \
         'mount -t proc proc /proc' mounts"
    )]
    NoProc,
    /// The container runs, and its state directory is not the one of this command.
    #[error(
        "{name}: its clock is in {dir}, which is not the state directory of this command; run the command where process {pid} \
         was started: the same root directory and mounts, the same user, the same LORENTZ_STATE_DIR"
    )]
    Elsewhere {
        /// Its name, or the number that was given.
        name: String,
        /// The directory of its clock, as the kernel shows it to the caller.
        dir: PathBuf,
        /// One of its programs.
        pid: u32,
    },
    /// The container's directory was deleted, and no monitor has made it anew.
    #[error(
        "{name}: its directory was deleted, and no monitor is left to make it anew; 'kill {pids}' ends its programs"
    )]
    Deleted {
        /// Its name, or the number that was given.
        name: String,
        /// Its programs, separated by spaces.
        pids: String,
    },
    /// An OCI runtime made the container, and the runtime's own directory of it is not there.
    #[error(
        "{name}: {dir}, where lorentz-runtime keeps this container, is not there; run the command where the container was \
         started: the same root directory and mounts"
    )]
    RuntimeElsewhere {
        /// Its name.
        name: String,
        /// The runtime's directory of the container.
        dir: PathBuf,
    },
    /// The state directory cannot be trusted.
    #[error("state directory {path}: {reason}; expected a directory of your own (LORENTZ_STATE_DIR names another)")]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file in the state directory could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        error: io::Error,
    },
}

impl StateError {
    /// Whether the caller asked for something impossible. False for a failure on the way.
    pub fn is_wrong_input(&self) -> bool {
        !matches!(
            self,
            StateError::File { .. } | StateError::NoProc | StateError::EndedMeanwhile(_)
        )
    }
}

/// The reason why a command was not started. Nothing runs in real time instead.
pub type LaunchError = lorentz_inject::Error;

/// Returns the exit status by which shells, `env` and `timeout` report why a command was not started. `None` if the command is not
/// the reason.
pub fn launch_status(error: &LaunchError) -> Option<u8> {
    match error {
        LaunchError::NotFound(_) => Some(127),
        LaunchError::NotExecutable(..) | LaunchError::Refused(_) => Some(126),
        LaunchError::System(..) => None,
    }
}

/// The reason why a running process may not be brought into virtual time.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AttachRefused {
    /// The process has ended, or never existed.
    #[error("PID {0}: no such process; expected the number of a running one")]
    Gone(u32),
    /// The process belongs to another user.
    #[error("PID {pid}: belongs to {owner}; expected a process of your own, or run as root")]
    NotYours {
        /// The process.
        pid: u32,
        /// The user to whom it belongs.
        owner: String,
    },
    /// The process is in virtual time already.
    #[error("PID {pid}: already in virtual time, on the clock of {container}; 'lorentz dilate', 'leap' and 'step' change that")]
    AlreadyInside {
        /// The process.
        pid: u32,
        /// The container of its clock, as far as it can be found.
        container: String,
    },
    /// The process is the one that asks.
    #[error("PID {0}: is this very command; expected another process")]
    Ourselves(u32),
    /// The process is a kernel thread.
    #[error("PID {0}: is a thread of the kernel; expected a program")]
    KernelThread(u32),
    /// The process has ended, and its parent has not waited for it.
    #[error("PID {0}: has ended (zombie); expected a running process")]
    Zombie(u32),
    /// The first thread of the process has ended. No system call can be made in its place.
    #[error("PID {0}: its first thread has ended, and others run; 'lorentz run' starts such a program in virtual time")]
    FirstThreadEnded(u32),
    /// The number is that of a thread.
    #[error("PID {thread}: is a thread of process {process}; expected the process")]
    Thread {
        /// The given number.
        thread: u32,
        /// The process of the thread.
        process: u32,
    },
    /// The kernel lets nobody trace the process.
    #[error("PID {pid}: {reason}")]
    NotAllowed {
        /// The process.
        pid: u32,
        /// The obstacle, and how to remove it.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_one_line() {
        let errors = [
            StateError::WrongName { flag: "--name", name: "a\nb".into() }.to_string(),
            StateError::NameInUse("web".into()).to_string(),
            StateError::Unknown("web".into()).to_string(),
            LaunchError::NotFound(c"nosuch".into()).to_string(),
            AttachRefused::Thread { thread: 8, process: 7 }.to_string(),
        ];
        for error in errors {
            assert!(!error.contains('\n'), "{error}");
            assert!(!error.contains("  "), "{error}");
        }
    }

    #[test]
    fn launch_errors_exit_as_a_shell_would() {
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(launch_status(&LaunchError::NotFound(c"x".into())), Some(127));
        assert_eq!(launch_status(&LaunchError::Refused("32-bit".into())), Some(126));
        assert_eq!(launch_status(&LaunchError::NotExecutable(c"x".into(), denied())), Some(126));
        assert_eq!(launch_status(&LaunchError::System("fork", denied())), None);
    }
}
