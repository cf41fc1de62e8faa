//! The registration socket. A process that the monitor has not started comes under its supervision here: it sends the listener
//! of its filter to the socket, and executes its program when the monitor has answered.

use crate::{Error, Result};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// A descriptor that a process sends to the monitor.
#[derive(Debug)]
pub(crate) enum Registered {
    /// The listener of a seccomp filter.
    Listener(OwnedFd),
    /// A pidfd of a process that has no filter. The monitor only waits for that process to end.
    Process(OwnedFd),
}

const LISTENER: u8 = b'L';
const PROCESS: u8 = b'P';
const ACCEPTED: u8 = b'+';

/// The monitor's side: the listening socket, and the connections that processes have opened to it.
#[derive(Default)]
pub struct RegistrationSocket {
    socket: Option<UnixListener>,
    connections: Vec<UnixStream>,
}

impl RegistrationSocket {
    /// Makes the monitor's side of `socket`, with a first connection. As long as a connection is open, the monitor does not
    /// leave.
    ///
    /// # Errors
    ///
    /// The sockets cannot be made non-blocking.
    pub fn new(socket: UnixListener, first: UnixStream) -> io::Result<RegistrationSocket> {
        socket.set_nonblocking(true)?;
        first.set_nonblocking(true)?;
        Ok(RegistrationSocket { socket: Some(socket), connections: vec![first] })
    }

    /// Makes the monitor's side of `socket`, without a connection.
    ///
    /// # Errors
    ///
    /// The socket cannot be made non-blocking.
    pub fn listening(socket: UnixListener) -> io::Result<RegistrationSocket> {
        socket.set_nonblocking(true)?;
        Ok(RegistrationSocket { socket: Some(socket), connections: Vec::new() })
    }

    /// Returns the descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = self.socket.iter().map(|socket| socket.as_fd());
        socket.chain(self.connections.iter().map(|connection| connection.as_fd()))
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Accepts new connections, and returns the descriptors that the processes have sent. Drops connections that their
    /// processes have closed.
    pub(crate) fn serve(&mut self) -> Vec<Registered> {
        while let Some(Ok((connection, _))) = self.socket.as_ref().map(UnixListener::accept) {
            if connection.set_nonblocking(true).is_ok() {
                self.connections.push(connection);
            }
        }
        let mut registered = Vec::new();
        self.connections.retain_mut(|connection| match receive(connection) {
            Ok(Some(one)) => {
                registered.push(one);
                let _ = connection.write_all(&[ACCEPTED]);
                true
            }
            Ok(None) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        registered
    }
}

/// Receives a descriptor; `None` if the process has closed the connection.
fn receive(connection: &UnixStream) -> io::Result<Option<Registered>> {
    let mut word = [0];
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut parts = [IoSliceMut::new(&mut word)];
    let message = recvmsg::<UnixAddr>(
        connection.as_raw_fd(),
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
        (1, LISTENER, Some(fd)) => Ok(Some(Registered::Listener(fd))),
        (1, PROCESS, Some(fd)) => Ok(Some(Registered::Process(fd))),
        _ => Ok(None),
    }
}

/// Sends the listener of a filter to the monitor, and waits for the answer. Makes no system call that the filter traps.
///
/// # Errors
///
/// The monitor is gone.
pub(crate) fn register_listener(socket: &UnixStream, listener: BorrowedFd) -> Result<()> {
    register(socket, LISTENER, listener)
}

/// Makes the monitor behind `socket` stay until the process of `pidfd` has ended.
///
/// # Errors
///
/// The monitor is gone.
pub fn register_process(socket: &UnixStream, pidfd: BorrowedFd) -> Result<()> {
    register(socket, PROCESS, pidfd)
}

fn register(mut socket: &UnixStream, word: u8, fd: BorrowedFd) -> Result<()> {
    let gone = |error| Error::System("the monitor of this clock does not answer", error);
    let fds = [fd.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let word = [word];
    let parts = [IoSlice::new(&word)];
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)
        .map_err(|error| gone(error.into()))?;
    let mut answer = [0];
    socket.read_exact(&mut answer).map_err(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_descriptors_arrive_and_closed_connections_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        let (first, theirs) = UnixStream::pair().unwrap();
        let mut registration = RegistrationSocket::new(socket, theirs).unwrap();
        assert!(registration.serve().is_empty() && !registration.is_empty());
        let file = std::fs::File::open("/dev/null").unwrap();
        let second = UnixStream::connect(directory.path().join("socket")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| register_listener(&first, file.as_fd()).unwrap());
            scope.spawn(|| register_process(&second, file.as_fd()).unwrap());
            let mut registered = Vec::new();
            while registered.len() < 2 {
                registered.extend(registration.serve());
                std::thread::yield_now();
            }
        });
        assert_eq!(registration.fds().count(), 3);
        drop((first, second));
        // Race: another test of this process starts a program. Its child has copies of the two sockets until its exec.
        while !registration.is_empty() {
            assert!(registration.serve().is_empty());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_monitor_that_is_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = register_listener(&ours, file.as_fd()).unwrap_err().to_string();
        assert!(error.starts_with("the monitor of this clock does not answer"), "{error}");
    }
}
