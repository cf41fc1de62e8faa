//! Starting a program under the filter.
//!
//! The child installs the filter on itself, tells its parent the listener's number, waits until the parent lets it go, and
//! execs. That exec is the first one of which the monitor is notified. The monitor treats it as any other.

use crate::{filter, limits, Error, Result};
use lorentz_clock::Policy;
use lorentz_shim::filter::EXEC_MAGIC;
use lorentz_syscalls::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::{fork, ForkResult, Pid};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The end of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// The program exited with this status.
    Exited(i32),
    /// This signal ended the program.
    Killed(i32),
}

impl ProgramEnd {
    /// Returns the code that a shell reports: the status, or 128 plus the number of the signal.
    pub fn code(self) -> i32 {
        match self {
            ProgramEnd::Exited(status) => status,
            ProgramEnd::Killed(signal) => 128 + signal,
        }
    }
}

/// A child that was just forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forked {
    /// Its process id.
    pub pid: Pid,
    /// Whether it began in the control group. If not, the caller moves it there.
    pub in_group: bool,
}

/// A child that waits until its parent lets it go.
pub struct Child {
    pub forked: Forked,
    is_filtered: bool,
    socket: UnixStream,
}

/// Finds a command as execvp would: along PATH, unless the name has a slash.
///
/// # Errors
///
/// [`Error::NotFound`].
pub fn find(command: &CStr) -> Result<CString> {
    let name = OsStr::from_bytes(command.to_bytes());
    if command.to_bytes().contains(&b'/') {
        return if Path::new(name).exists() {
            Ok(command.to_owned())
        } else {
            Err(Error::NotFound(command.to_owned()))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let executable = |candidate: &PathBuf| {
        let candidate = CString::new(candidate.as_os_str().as_bytes()).ok();
        // SAFETY: the string is null-terminated and outlives the call.
        candidate.is_some_and(|c| unsafe { libc::access(c.as_ptr(), libc::X_OK) } == 0)
    };
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file() && executable(candidate))
        .and_then(|found| CString::new(found.as_os_str().as_bytes()).ok())
        .ok_or_else(|| Error::NotFound(command.to_owned()))
}

/// Forks a child that will exec `command`, under the filter of `policy` if there is one. The child begins with the signals of
/// `mask` blocked, and in the control group `group` if the kernel puts it there. The caller must be the only thread of its process.
pub fn fork_child(
    command: &[CString],
    policy: Option<Policy>,
    mask: &SigSet,
    group: Option<BorrowedFd<'_>>,
) -> Result<Child> {
    let program = match command.first() {
        Some(name) => find(name)?,
        None => return Err(Error::Refused("no command given".into())),
    };
    let (ours, theirs) = UnixStream::pair().map_err(|e| Error::System("socketpair", e))?;
    // SAFETY: this process has one thread. The child makes only the calls of `run_child`.
    let (forked, in_group) = unsafe { fork_in(group) }.map_err(|e| Error::System("fork", e))?;
    match forked {
        ForkResult::Child => {
            drop(ours);
            run_child(&program, command, policy, mask, theirs)
        }
        ForkResult::Parent { child: pid } => {
            drop(theirs);
            let forked = Forked { pid, in_group };
            Ok(Child { forked, is_filtered: policy.is_some(), socket: ours })
        }
    }
}

/// Forks a child, in the control group `group` if there is one and the kernel puts it there. Returns whether it did.
///
/// # Safety
///
/// The process has one thread. The child does not use what libc's fork would renew: the handlers of `pthread_atfork`, and the
/// thread id that libc remembers.
pub unsafe fn fork_in(group: Option<BorrowedFd<'_>>) -> io::Result<(ForkResult, bool)> {
    // SAFETY: by the caller.
    match group.and_then(|group| unsafe { fork_into(group) }) {
        Some(forked) => Ok((forked, true)),
        // SAFETY: as above.
        None => Ok((unsafe { fork() }?, false)),
    }
}

/// Forks a child that begins in the control group `group`, a directory. Moving a process there later waits for a grace period of
/// RCU, up to 20 ms. `None` if the kernel refuses: it is older than Linux 5.7, the group is not of version 2, or a filter is in
/// force.
///
/// # Safety
///
/// As for [`fork_in`].
unsafe fn fork_into(group: BorrowedFd<'_>) -> Option<ForkResult> {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    // SAFETY: zero stands for "not given" in each field.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = group.as_raw_fd() as u64;
    // SAFETY: the kernel reads the arguments. Without CLONE_VM the child has a copy of the memory, as after fork(2).
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<libc::clone_args>()) } {
        0 => Some(ForkResult::Child),
        pid if pid > 0 => Some(ForkResult::Parent { child: Pid::from_raw(pid as i32) }),
        _ => None,
    }
}

impl Child {
    /// Waits until the child has installed its filter, and returns the filter's listener; `None` if it has no filter.
    pub fn listener(&self) -> Result<Option<OwnedFd>> {
        receive_listener(self.forked.pid, &self.socket, self.is_filtered)
    }

    /// Lets the child exec.
    pub fn start(&mut self) -> Result<()> {
        self.socket.write_all(&[1]).map_err(|e| Error::System("starting the program", e))
    }

    /// Returns the error with which the child's exec failed, if it did. The child sends it as four bytes.
    pub fn exec_error(&mut self) -> Option<io::Error> {
        let mut errno = [0; 4];
        self.socket.set_nonblocking(true).ok()?;
        self.socket.read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

/// Runs in the child. From the filter on it makes no system call that is trapped, because there is no handler yet.
fn run_child(
    program: &CStr,
    command: &[CString],
    policy: Option<Policy>,
    mask: &SigSet,
    mut socket: UnixStream,
) -> ! {
    let arguments = pointers(command);
    // Set the mask before the filter is installed: afterwards a change of the mask would be trapped.
    let _ = mask.thread_set_mask();
    let listener = match policy.map(filter::install).transpose() {
        Ok(listener) => listener,
        Err(error) => {
            let message = error.to_string();
            let _ = socket.write_all(&[0]).and_then(|()| socket.write_all(message.as_bytes()));
            exit(126)
        }
    };
    // Send only the listener's number: the parent takes the listener itself by pidfd_getfd.
    let number = listener.as_ref().map_or(-1, AsRawFd::as_raw_fd).to_ne_bytes();
    let mut go = [0];
    if write_under_filter(&socket, &[1])
        .and_then(|()| write_under_filter(&socket, &number))
        .is_err()
        || socket.read_exact(&mut go).is_err()
    {
        exit(126)
    }
    drop(listener);
    free_low_descriptors(&socket);
    limits::restore();
    // SAFETY: null-terminated arrays of strings that outlive the call.
    unsafe { first_exec(program, arguments.as_ptr(), environ) };
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let _ = write_under_filter(&socket, &errno.to_ne_bytes());
    exit(126)
}

/// Closes the descriptors that exec would close, except `kept`. Otherwise the monitor's descriptors would occupy the low
/// numbers. A program that may have few descriptors would then have none free for the image and the clock.
fn free_low_descriptors(kept: &UnixStream) {
    for fd in 3..limits::descriptors_before().unwrap_or(0) {
        // SAFETY: the calls take plain numbers. They close nothing that this process uses again.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC != 0 && fd != kept.as_raw_fd() {
                libc::close(fd);
            }
        }
    }
}

/// Writes a few bytes from under the filter, which may trap write(2).
fn write_under_filter(socket: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    const CURRENT_POSITION: i64 = -1;
    let part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    // SAFETY: the kernel reads `bytes`.
    let written = unsafe { libc::pwritev2(socket.as_raw_fd(), &part, 1, CURRENT_POSITION, 0) };
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Executes `program`, from under the filter. Returns only on failure.
pub(crate) fn execute(program: &CStr, words: &[CString], variables: &[CString]) {
    limits::restore();
    let (words, variables) = (pointers(words), pointers(variables));
    // SAFETY: null-terminated arrays of strings that outlive the call.
    unsafe { first_exec(program, words.as_ptr(), variables.as_ptr()) };
}

/// Makes the first exec under the filter. There is no handler yet; a word in the last argument sends the call to the monitor.
///
/// # Safety
///
/// The requirements of execve hold.
unsafe fn first_exec(
    program: &CStr,
    words: *const *const libc::c_char,
    variables: *const *const libc::c_char,
) {
    const AGAIN: Option<i32> = Some(-Errno::EXEC_AGAIN.in_register() as i32);
    let program = program.as_ptr();
    let exec = || {
        // SAFETY: the caller guarantees it.
        unsafe {
            libc::syscall(libc::SYS_execve, program, words, variables, 0, 0, EXEC_MAGIC as u64)
        };
        io::Error::last_os_error().raw_os_error()
    };
    while exec() == AGAIN {}
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect()
}

extern "C" {
    static environ: *const *const libc::c_char;
}

fn exit(status: i32) -> ! {
    // SAFETY: the call ends the process without running the parent's exit handlers.
    unsafe { libc::_exit(status) }
}

fn receive_listener(pid: Pid, mut socket: &UnixStream, filtered: bool) -> Result<Option<OwnedFd>> {
    let gone = |e| Error::System("starting the program", e);
    let mut good = [0];
    socket.read_exact(&mut good).map_err(gone)?;
    if good[0] == 0 {
        let mut message = String::new();
        let _ = socket.read_to_string(&mut message);
        return Err(Error::Refused(message));
    }
    let mut number = [0; 4];
    socket.read_exact(&mut number).map_err(gone)?;
    filtered.then(|| duplicate_fd(pid, i32::from_ne_bytes(number))).transpose()
}

/// Duplicates descriptor `number` of process `pid`.
pub fn duplicate_fd(pid: Pid, number: i32) -> Result<OwnedFd> {
    // SAFETY: the calls take plain numbers and return new descriptors.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        if pidfd < 0 {
            return Err(Error::last("pidfd_open"));
        }
        let pidfd = File::from_raw_fd(pidfd as i32);
        match libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) {
            fd if fd < 0 => {
                Err(Error::last("pidfd_getfd (needs Linux 5.6 and the rights of ptrace)"))
            }
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}
