//! The registration socket. A process that the monitor has not started comes under its supervision here: it sends the listener
//! of its filter to the socket, and executes its program when the monitor has answered.

use crate::{Error, Result};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// A descriptor that a process sends to the monitor.
#[derive(Debug)]
pub(crate) enum Handed {
    /// The listener of a seccomp filter.
    Listener(OwnedFd),
    /// A pidfd of a process that has no filter. The monitor only waits for that process to end.
    Process(OwnedFd),
}

const LISTENER: u8 = b'L';
const PROCESS: u8 = b'P';
const LET_IN: u8 = b'+';

/// The monitor's side: the listening socket, and the connections that processes have opened to it.
#[derive(Default)]
pub struct Door {
    socket: Option<UnixListener>,
    callers: Vec<UnixStream>,
}

impl Door {
    /// Makes the monitor's side of `socket`, with a first connection. As long as a connection is open, the monitor does not
    /// leave.
    ///
    /// # Errors
    ///
    /// The sockets cannot be made non-blocking.
    pub fn new(socket: UnixListener, first: UnixStream) -> io::Result<Door> {
        socket.set_nonblocking(true)?;
        first.set_nonblocking(true)?;
        Ok(Door { socket: Some(socket), callers: vec![first] })
    }

    /// Returns the descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = self.socket.iter().map(|socket| socket.as_fd());
        socket.chain(self.callers.iter().map(|caller| caller.as_fd()))
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// Accepts new connections, and returns the descriptors that the processes have sent. Drops connections that their
    /// processes have closed.
    pub(crate) fn serve(&mut self) -> Vec<Handed> {
        while let Some(Ok((caller, _))) = self.socket.as_ref().map(UnixListener::accept) {
            if caller.set_nonblocking(true).is_ok() {
                self.callers.push(caller);
            }
        }
        let mut handed = Vec::new();
        self.callers.retain_mut(|caller| match receive(caller) {
            Ok(Some(one)) => {
                handed.push(one);
                let _ = caller.write_all(&[LET_IN]);
                true
            }
            Ok(None) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        handed
    }
}

/// Receives a descriptor; `None` if the process has closed the connection.
fn receive(caller: &UnixStream) -> io::Result<Option<Handed>> {
    let mut word = [0];
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut parts = [IoSliceMut::new(&mut word)];
    let message = recvmsg::<UnixAddr>(
        caller.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            // SAFETY: the kernel has just made these descriptors for this process.
            fds.extend(numbers.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let length = message.bytes;
    match (length, word[0], fds.pop()) {
        (1, LISTENER, Some(fd)) => Ok(Some(Handed::Listener(fd))),
        (1, PROCESS, Some(fd)) => Ok(Some(Handed::Process(fd))),
        _ => Ok(None),
    }
}

/// Sends the listener of a filter to the monitor, and waits for the answer. Makes no system call that the filter traps.
///
/// # Errors
///
/// The monitor is gone.
pub(crate) fn hand_in_listener(door: &UnixStream, listener: BorrowedFd) -> Result<()> {
    hand_in(door, LISTENER, listener)
}

/// Makes the monitor behind `door` stay until the process of `pidfd` has ended.
///
/// # Errors
///
/// The monitor is gone.
pub fn hand_in_process(door: &UnixStream, pidfd: BorrowedFd) -> Result<()> {
    hand_in(door, PROCESS, pidfd)
}

fn hand_in(mut door: &UnixStream, word: u8, fd: BorrowedFd) -> Result<()> {
    let gone = |error| Error::System("the monitor of this clock does not answer", error);
    let fds = [fd.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let word = [word];
    let parts = [IoSlice::new(&word)];
    sendmsg::<UnixAddr>(door.as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)
        .map_err(|error| gone(error.into()))?;
    let mut answer = [0];
    door.read_exact(&mut answer).map_err(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_in_arrives_and_who_has_gone_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let socket = UnixListener::bind(place.path().join("door")).unwrap();
        let (first, theirs) = UnixStream::pair().unwrap();
        let mut door = Door::new(socket, theirs).unwrap();
        assert!(door.serve().is_empty() && !door.is_empty());
        let file = std::fs::File::open("/dev/null").unwrap();
        let second = UnixStream::connect(place.path().join("door")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| hand_in_listener(&first, file.as_fd()).unwrap());
            scope.spawn(|| hand_in_process(&second, file.as_fd()).unwrap());
            let mut handed = Vec::new();
            while handed.len() < 2 {
                handed.extend(door.serve());
                std::thread::yield_now();
            }
        });
        assert_eq!(door.fds().count(), 3);
        drop((first, second));
        // Race: another test of this process starts a program. Its child has copies of the two sockets until its exec.
        while !door.is_empty() {
            assert!(door.serve().is_empty());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_monitor_that_is_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = hand_in_listener(&ours, file.as_fd()).unwrap_err().to_string();
        assert!(error.starts_with("the monitor of this clock does not answer"), "{error}");
    }
}
