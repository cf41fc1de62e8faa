//! A process id namespace for restored programs whose process ids are taken here, and its first process.
//!
//! ```text
//! restore                           init
//!   new namespaces ---------------> mounts its /proc, has CRIU restore the programs
//!   <------------------------------ the result
//!   adopts the programs
//!   release ----------------------> waits for programs without parents, until there is none
//! ```
//!
//! Until it is released, init ends with `restore`. The kernel ends every process of the namespace with init.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use lorentz_container::{close_standard_streams, keep_only, own_mounts};
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::wait;
use nix::unistd::setsid;

/// The first process of a namespace.
pub struct Init {
    /// Its process id here.
    pub pid: u32,
    socket: UnixStream,
}

const GO: &[u8] = b"g";

impl Init {
    /// Starts init, which does `work` in new namespaces for process ids and mounts. Returns when the work is done. The caller must
    /// have one thread only.
    ///
    /// # Errors
    ///
    /// The error of `work`.
    pub fn start(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Init> {
        let (mut socket, theirs) = UnixStream::pair()?;
        let Some(pid) = fork_into_new_namespaces()? else {
            drop(socket);
            let _ = be_init(theirs, work);
            // SAFETY: ends this process. Nothing of the parent's may run again here.
            unsafe { libc::_exit(0) }
        };
        drop(theirs);
        // It has asked to end with this process, or ends when it finds the socket closed.
        socket.write_all(GO)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        match answer.strip_prefix(DONE) {
            Some("") => Ok(Init { pid, socket }),
            _ if answer.is_empty() => {
                anyhow::bail!("the first process of the namespace was killed")
            }
            _ => anyhow::bail!(answer),
        }
    }

    /// Lets init and its programs outlive this process.
    pub fn release(mut self) -> anyhow::Result<()> {
        Ok(self.socket.write_all(GO)?)
    }
}

const DONE: &str = "done";

/// Returns the child's process id; `None` in the child.
fn fork_into_new_namespaces() -> anyhow::Result<Option<u32>> {
    // SAFETY: the structure consists of plain numbers.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: one thread, and a copy of its memory, as for fork(2).
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<libc::clone_args>()) } {
        -1 => Err(Errno::last().into()),
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

fn be_init(
    mut socket: UnixStream,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    await_go(&socket)?;
    let _ = setsid();
    let done = own_mounts().and_then(|()| mount_proc()).and_then(|()| work());
    let answer = done.as_ref().map_or_else(|error| format!("{error:#}"), |()| DONE.to_string());
    socket.write_all(answer.as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    done?;
    keep_only(&[socket.as_fd()]);
    await_go(&socket)?;
    set_pdeathsig(None)?;
    close_standard_streams()?;
    std::env::set_current_dir("/")?;
    drop(socket);
    while wait() != Err(Errno::ECHILD) {}
    Ok(())
}

fn await_go(mut socket: &UnixStream) -> anyhow::Result<()> {
    Ok(socket.read_exact(&mut [0])?)
}

fn mount_proc() -> anyhow::Result<()> {
    let none: Option<&str> = None;
    Ok(mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?)
}
