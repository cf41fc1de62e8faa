//! `clone_time`: a copy of the calling process, in virtual time from its first instruction on.
//!
//! The child is a fork's: a copy made behind the C library's back could not use that. It enters the namespaces that were asked
//! for, and waits until its parent has had it brought into virtual time.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_embed::{Attach, Container, Fault, Rate, Result};

use crate::keeper::rate_of;

/// Namespaces that a process can enter itself.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u64;
/// The signal that tells the parent of the child's end.
const SIGNAL: u64 = 0xff;

/// Makes the child; 0 in it, its number in the parent. `held`: SIGSTOP has stopped it, until its container is unfrozen or its
/// experiment synchronized.
///
/// # Errors
///
/// Flags that cannot be; a wrong TDF; where no process can be made or brought into virtual time.
pub fn clone_time(flags: u64, dilation: f32, held: bool) -> Result<libc::pid_t> {
    let rate = rate_of(dilation)?;
    let signal = flags & SIGNAL;
    if flags & !(NAMESPACES | SIGNAL) != 0 || ![0, libc::SIGCHLD as u64].contains(&signal) {
        return Err(Fault::wrong(format!(
            "flags {flags:#x}: expected SIGCHLD or 0, with any of CLONE_NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWNET, NEWCGROUP"
        )));
    }
    let (mut mine, its) = UnixStream::pair()?;
    // SAFETY: until it returns, the child calls only what may be called after a fork of a process with threads.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            drop(mine);
            wait_for_parent(flags & NAMESPACES, its);
            Ok(0)
        }
        pid => {
            drop(its);
            match bring_in(pid, rate, held, &mut mine) {
                Ok(()) => Ok(pid),
                Err(fault) => {
                    discard(pid);
                    Err(fault)
                }
            }
        }
    }
}

/// In the child: into its namespaces, and then until the parent says so. Without a parent there is nothing to do.
fn wait_for_parent(namespaces: u64, line: UnixStream) {
    let mut answer: libc::c_int = 0;
    // SAFETY: plain numbers, and buffers that are there; all may be called after a fork.
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
            let error = std::io::Error::from_raw_os_error(errno);
            return Err(Fault::failed(format!("entering the namespaces: {error}")));
        }
    }
    let how = Attach { rate, for_experiment: true, ..Attach::default() };
    Container::attach(pid as u32, &how)?;
    if held {
        hold(pid)?;
    }
    Ok(line.write_all(&[1])?)
}

/// Stops the child where it waits.
fn hold(pid: libc::pid_t) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    // SAFETY: plain numbers; the child is not waited for yet, so the number is its.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    let begun = Instant::now();
    while !is_stopped(pid) {
        if begun.elapsed() > PATIENCE {
            return Err(Fault::failed(format!("process {pid} does not stop")));
        }
        sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn is_stopped(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Ends a child that is not to be.
fn discard(pid: libc::pid_t) {
    // SAFETY: plain numbers; the child is not waited for yet, so the number is its.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}
