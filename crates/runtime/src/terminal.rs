//! A terminal for a program in the foreground: it gets a pseudo terminal of its own, whose other end is served here.
//!
//! `libcontainer` makes the pseudo terminal inside the container and sends its master over a socket, the *console socket*
//! that engines offer with `--console-socket`. Where none is offered and a terminal is wanted, [`Console`] is that socket and
//! [`Terminal`] what an engine would do with the master: this process's own terminal becomes raw, so that every key reaches
//! the program's, which does the line editing and sends the signals, and follows in size.

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

use crate::life;
use crate::place::Place;

/// The socket at which a container hands in its terminal; it goes when that is dropped.
pub struct Console {
    dir: PathBuf,
    listener: UnixListener,
}

impl Console {
    /// Offers one for container `id`.
    ///
    /// # Errors
    ///
    /// Where no directory or socket can be made.
    pub fn offer(place: &Place, id: &str) -> anyhow::Result<Console> {
        let make = || -> io::Result<Console> {
            let dir = place.root.join(format!(".{id}.console.{}", std::process::id()));
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            // The path may be longer than a socket's address; that of the descriptor is not.
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

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// The terminal that was handed in.
    ///
    /// # Errors
    ///
    /// Where none was.
    pub fn accept(self) -> anyhow::Result<Terminal> {
        /// It was sent before the container was there.
        const PATIENCE: Duration = Duration::from_secs(2);
        let (stream, _) = self.listener.accept().context("the container opened no terminal")?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
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
        // SAFETY: it has just come, and is nobody else's.
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
    /// What was typed and did not fit yet.
    typed: Vec<u8>,
    /// Whether more may be typed.
    reads: bool,
}

/// What came of showing what a program has written.
#[derive(PartialEq, Eq)]
enum Shown {
    /// There may be more.
    Some,
    /// There was nothing.
    Nothing,
    /// All who could write are gone.
    End,
}

/// What the end of input is to a program that reads line by line.
const END_OF_INPUT: u8 = 4;

impl Terminal {
    /// Passes on what is typed, written and signalled until process `pid`, a child of this one, has ended. Gives its
    /// status as a shell would.
    ///
    /// # Errors
    ///
    /// Where it is no child, or the terminal fails.
    pub fn serve(mut self, pid: i32) -> anyhow::Result<i32> {
        // Whoever touches the terminal from the background is to be stopped, as shells expect.
        let mut all = SigSet::all();
        all.remove(Signal::SIGTTOU);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None)?;
        let outer = Raw::set()?;
        all.add(Signal::SIGTTOU);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None)?;
        let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut open = true;
        let status = loop {
            if let Some(status) = life::ended(pid)? {
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

    /// Until there is something to do.
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
                life::pass_on(signal, pid);
            }
        }
        Ok(())
    }

    /// Shows what the program has written.
    fn show(&mut self) -> io::Result<Shown> {
        let mut room = [0; 4096];
        match self.master.read(&mut room) {
            Ok(0) => Ok(Shown::End),
            Ok(len) => {
                let mut out = io::stdout().lock();
                // Nobody may be there any more who could see it.
                let _ = out.write_all(&room[..len]).and_then(|()| out.flush());
                Ok(Shown::Some)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Shown::Nothing),
            // All ends on the other side are closed.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Shown::End),
            Err(error) => Err(error),
        }
    }

    /// Passes on what was typed.
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
                // Nobody reads any more.
                Err(_) => self.typed.clear(),
            }
        }
        Ok(())
    }

    /// The program's terminal is as large as this process's, where that has one.
    fn follow_size(&self) {
        // SAFETY: plain numbers.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: open descriptors, and room for the answer.
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

/// This process's terminal, raw until this is dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    /// None where standard input is no terminal.
    fn set() -> nix::Result<Option<Raw>> {
        let Ok(before) = tcgetattr(io::stdin()) else { return Ok(None) };
        let raw = Raw { before };
        raw.again()?;
        Ok(Some(raw))
    }

    /// A shell may have set it otherwise while this process was stopped.
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

/// Offers a console for a program that wants a terminal in the foreground and to which nobody else has offered one.
///
/// # Errors
///
/// As [`Console::offer`].
pub fn where_wanted(
    place: &Place,
    id: &str,
    wants: bool,
    detached: bool,
    offered: Option<&Path>,
) -> anyhow::Result<Option<Console>> {
    let ours = wants && !detached && offered.is_none();
    ours.then(|| Console::offer(place, id)).transpose()
}
