//! `clone_time`: a copy of the calling process, in virtual time from the start.
//!
//! The copy is made by fork: the C library would not work in one made without its knowledge. The child enters the namespaces that
//! the caller asked for, and waits until its parent has attached it to a clock. A process id namespace is for children alone: the parent
//! makes it before the fork, and leaves it again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_embed::{AttachOptions, Container, Error, Rate, Result};

use crate::keeper::rate_of;

/// The namespaces that a process can enter by itself.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u64;
/// The namespace that only children of the process enter that makes it.
const PID_NAMESPACE: u64 = libc::CLONE_NEWPID as u64;
/// Mask, in the flags, of the signal that the parent receives when the child ends.
const SIGNAL: u64 = 0xff;

/// Makes the child. Returns 0 in the child, and the child's pid in the parent.
///
/// With `held`, SIGSTOP stops the child until its container is unfrozen or its experiment is synchronized and started.
///
/// # Errors
///
/// Flags that are not supported, a wrong TDF, or a process that cannot be made or attached.
pub fn clone_time(flags: u64, dilation: f64, held: bool) -> Result<libc::pid_t> {
    let rate = rate_of(dilation)?;
    let signal = flags & SIGNAL;
    if flags & !(NAMESPACES | PID_NAMESPACE | SIGNAL) != 0
        || ![0, libc::SIGCHLD as u64].contains(&signal)
    {
        return Err(Error::wrong_input(format!(
            "flags {flags:#x}: expected SIGCHLD or 0, with any of CLONE_NEWNS, NEWUTS, NEWIPC, NEWPID, NEWUSER, NEWNET, NEWCGROUP"
        )));
    }
    let (mut mine, its) = UnixStream::pair()?;
    let children = match flags & PID_NAMESPACE {
        0 => None,
        _ => Some(ChildrenElsewhere::begin()?),
    };
    // SAFETY: until this function returns, the child calls only functions that are permitted after a fork of a process with
    // threads.
    let forked = unsafe { libc::fork() };
    let failed = io::Error::last_os_error();
    drop(children);
    match forked {
        -1 => Err(failed.into()),
        0 => {
            drop(mine);
            wait_for_parent(flags & NAMESPACES, its);
            Ok(0)
        }
        pid => {
            drop(its);
            match bring_in(pid, rate, held, &mut mine) {
                Ok(()) => Ok(pid),
                Err(error) => {
                    discard(pid);
                    Err(error)
                }
            }
        }
    }
}

/// While it lives, children of this thread begin in a new process id namespace.
struct ChildrenElsewhere {
    /// The namespace of the children before.
    before: File,
}

impl ChildrenElsewhere {
    fn begin() -> Result<ChildrenElsewhere> {
        let before = File::open("/proc/thread-self/ns/pid_for_children")?;
        // SAFETY: a number.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            let error = io::Error::last_os_error();
            return Err(Error::failed(format!("making a process id namespace: {error}")));
        }
        Ok(ChildrenElsewhere { before })
    }
}

impl Drop for ChildrenElsewhere {
    fn drop(&mut self) {
        // The child cannot go back, and need not: the kernel refuses it.
        // SAFETY: numbers.
        unsafe { libc::setns(self.before.as_raw_fd(), libc::CLONE_NEWPID) };
    }
}

/// Runs in the child: enters its namespaces, then waits until the parent lets it go. If the parent ends, so does the child.
fn wait_for_parent(namespaces: u64, line: UnixStream) {
    let mut answer: libc::c_int = 0;
    // SAFETY: the arguments are numbers and valid buffers. All the functions are permitted after a fork.
    unsafe {
        if namespaces != 0 && libc::unshare(namespaces as libc::c_int) != 0 {
            answer = *libc::__errno_location();
        }
        let size = size_of_val(&answer);
        libc::write(line.as_raw_fd(), (&raw const answer).cast(), size);
        let mut go = 0_u8;
        loop {
            match libc::read(line.as_raw_fd(), (&raw mut go).cast(), 1) {
                1 => return,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(1),
            }
        }
    }
}

fn bring_in(pid: libc::pid_t, rate: Rate, held: bool, line: &mut UnixStream) -> Result<()> {
    let mut answer = [0; size_of::<libc::c_int>()];
    line.read_exact(&mut answer)?;
    match libc::c_int::from_ne_bytes(answer) {
        0 => {}
        errno => {
            let error = io::Error::from_raw_os_error(errno);
            return Err(Error::failed(format!("entering the namespaces: {error}")));
        }
    }
    let how = AttachOptions { rate, for_experiment: true, ..AttachOptions::default() };
    Container::attach(pid as u32, &how)?;
    if held {
        hold(pid)?;
    }
    Ok(line.write_all(&[1])?)
}

/// Stops the child while it waits, and returns when it is stopped.
fn hold(pid: libc::pid_t) -> Result<()> {
    const STOP_TIMEOUT: Duration = Duration::from_secs(5);
    // SAFETY: the arguments are numbers. The child has not been waited for, so the pid still is the child's.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    let begun = Instant::now();
    while !is_stopped(pid) {
        if begun.elapsed() > STOP_TIMEOUT {
            return Err(Error::failed(format!("process {pid} does not stop")));
        }
        sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn is_stopped(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Ends a child after an error.
fn discard(pid: libc::pid_t) {
    // SAFETY: the arguments are numbers. The child has not been waited for, so the pid still is the child's.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}
