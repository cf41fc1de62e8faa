//! A terminal for a program in the foreground: the program gets a pseudo terminal of its own, and this process serves its master.
//!
//! `libcontainer` makes the pseudo terminal inside the container. It sends the master over a socket, the *console socket*, which
//! engines offer with `--console-socket`. If the program needs a terminal and the command line has no such socket, [`Console`] is
//! that socket. [`Terminal`] then does with the master what an engine would do. This process's own terminal becomes raw, so that
//! every key reaches the program's terminal. That one does the line editing, sends the signals, and follows in size.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context};
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{sigprocmask, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{recvmsg, ControlMessageOwned, MsgFlags, UnixAddr};
use nix::sys::termios::{cfmakeraw, tcgetattr, tcsetattr, SetArg, Termios};

use crate::lifecycle;
use crate::runtime_dir::{RuntimeDir, CONSOLE_DRAFT};

/// The console socket, over which a container sends the master of its terminal. Dropping this value removes the socket.
pub struct Console {
    dir: PathBuf,
    listener: UnixListener,
}

impl Console {
    /// Makes a console socket for container `id`.
    ///
    /// # Errors
    ///
    /// An error if the directory or the socket cannot be made.
    pub fn offer(runtime_dir: &RuntimeDir, id: &str) -> anyhow::Result<Console> {
        let make = || -> io::Result<Console> {
            let dir = runtime_dir.draft(id, CONSOLE_DRAFT);
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            // The path may be too long for a socket's address; that by way of the descriptor is short.
            let opened = File::open(&dir)?;
            let address = format!("/proc/self/fd/{}/socket", opened.as_raw_fd());
            let listener = UnixListener::bind(address).inspect_err(|_| {
                let _ = fs::remove_dir_all(&dir);
            })?;
            listener.set_nonblocking(true)?;
            Ok(Console { dir, listener })
        };
        make().context("offering a terminal")
    }

    /// Returns the socket's path.
    pub fn path(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Receives the terminal.
    ///
    /// # Errors
    ///
    /// An error if the container sent none.
    pub fn accept(self) -> anyhow::Result<Terminal> {
        /// Time limit for receiving; the container sent the terminal before it was ready.
        const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);
        let (stream, _) = self.listener.accept().context("the container opened no terminal")?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        let mut room = [0; 64];
        let mut ancillary = nix::cmsg_space!([i32; 1]);
        let mut parts = [IoSliceMut::new(&mut room)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message =
            recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut ancillary), flags)
                .context("the container's terminal")?;
        let master = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmRights(descriptors) => descriptors.first().copied(),
            _ => None,
        });
        let Some(master) = master else { bail!("the container handed in no terminal") };
        // SAFETY: the descriptor has just arrived; nothing else owns it.
        let master = unsafe { OwnedFd::from_raw_fd(master) };
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let terminal = Terminal { master: master.into(), typed: Vec::new(), reads: true };
        terminal.follow_size();
        Ok(terminal)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The master of a program's terminal.
pub struct Terminal {
    master: File,
    /// Input that the master had no room for yet.
    typed: Vec<u8>,
    /// Whether standard input may have more.
    reads: bool,
}

/// Result of copying the program's output.
#[derive(PartialEq, Eq)]
enum Shown {
    /// There may be more output.
    Some,
    /// There was no output.
    Nothing,
    /// All descriptors of the other side are closed.
    End,
}

/// The EOF character (^D), for a terminal in canonical mode.
const END_OF_INPUT: u8 = 4;

impl Terminal {
    /// Copies input, output and signals until process `pid`, a child of this process, has ended. Returns its status as a shell
    /// would.
    ///
    /// # Errors
    ///
    /// An error if `pid` is no child, or the terminal fails.
    pub fn serve(mut self, pid: i32) -> anyhow::Result<i32> {
        // SIGTTOU stays open: shells expect that it stops a background process that uses the terminal.
        let mut all = SigSet::all();
        all.remove(Signal::SIGTTOU);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None)?;
        let outer = Raw::set()?;
        all.add(Signal::SIGTTOU);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None)?;
        let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut open = true;
        let status = loop {
            if let Some(status) = lifecycle::ended(pid)? {
                break status;
            }
            self.wait(signals.as_fd(), open)?;
            while let Some(signal) = signals.read_signal()? {
                self.take(signal.ssi_signo as i32, pid, outer.as_ref())?;
            }
            open = open && self.show()? != Shown::End;
            self.hear()?;
        };
        while open && self.show()? == Shown::Some {}
        drop(outer);
        Ok(status)
    }

    /// Waits for an event.
    fn wait(&self, signals: BorrowedFd, open: bool) -> nix::Result<()> {
        let stdin = io::stdin();
        let mut from = vec![PollFd::new(signals, PollFlags::POLLIN)];
        let mut wanted = PollFlags::POLLIN;
        wanted.set(PollFlags::POLLOUT, !self.typed.is_empty());
        if open {
            from.push(PollFd::new(self.master.as_fd(), wanted));
        }
        if self.reads && self.typed.is_empty() {
            from.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut from, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take(&self, signal: i32, pid: i32, outer: Option<&Raw>) -> nix::Result<()> {
        match signal {
            libc::SIGWINCH => self.follow_size(),
            libc::SIGCHLD | libc::SIGURG => {}
            _ => {
                if let (libc::SIGCONT, Some(outer)) = (signal, outer) {
                    outer.again()?;
                    self.follow_size();
                }
                lifecycle::pass_on(signal, pid);
            }
        }
        Ok(())
    }

    /// Copies the program's output to standard output.
    fn show(&mut self) -> io::Result<Shown> {
        let mut room = [0; 4096];
        match self.master.read(&mut room) {
            Ok(0) => Ok(Shown::End),
            Ok(len) => {
                let mut out = io::stdout().lock();
                // An error is ignored: the reader of standard output may be gone.
                let _ = out.write_all(&room[..len]).and_then(|()| out.flush());
                Ok(Shown::Some)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Shown::Nothing),
            // EIO: all descriptors of the other side are closed.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Shown::End),
            Err(error) => Err(error),
        }
    }

    /// Copies standard input to the program's terminal.
    fn hear(&mut self) -> io::Result<()> {
        if self.typed.is_empty() && self.reads && is_readable(io::stdin().as_fd()) {
            let mut room = [0; 4096];
            match nix::unistd::read(io::stdin(), &mut room) {
                Ok(0) | Err(Errno::EIO) => {
                    self.reads = false;
                    self.typed.push(END_OF_INPUT);
                }
                Ok(len) => self.typed.extend_from_slice(&room[..len]),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !self.typed.is_empty() {
            match self.master.write(&self.typed) {
                Ok(len) => drop(self.typed.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // No process reads the terminal any more.
                Err(_) => self.typed.clear(),
            }
        }
        Ok(())
    }

    /// Sets the size of the program's terminal to that of this process's, if it has one.
    fn follow_size(&self) {
        // SAFETY: the struct has plain numbers only.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptors are open, and `size` has room for the answer.
        unsafe {
            if libc::ioctl(libc::STDIN_FILENO, libc::TIOCGWINSZ, &mut size) == 0 {
                libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size);
            }
        }
    }
}

fn is_readable(fd: BorrowedFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Raw mode of this process's terminal. Dropping this value restores the former mode.
struct Raw {
    before: Termios,
}

impl Raw {
    /// Sets raw mode; none if standard input is not a terminal.
    fn set() -> nix::Result<Option<Raw>> {
        let Ok(before) = tcgetattr(io::stdin()) else { return Ok(None) };
        let raw = Raw { before };
        raw.again()?;
        Ok(Some(raw))
    }

    /// Sets raw mode again: a shell may have changed it while this process was stopped.
    fn again(&self) -> nix::Result<()> {
        let mut raw = self.before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// Makes a console for a program that needs a terminal, runs in the foreground, and has no console socket from the command line.
///
/// # Errors
///
/// Those of [`Console::offer`].
pub fn where_wanted(
    runtime_dir: &RuntimeDir,
    id: &str,
    wants: bool,
    detached: bool,
    offered: Option<&Path>,
) -> anyhow::Result<Option<Console>> {
    let ours = wants && !detached && offered.is_none();
    ours.then(|| Console::offer(runtime_dir, id)).transpose()
}
