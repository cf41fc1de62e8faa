//! Clients at the socket of a network, and the ports that receive frames.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use lorentz_clock::{Snapshot, VirtualInstant};
use lorentz_emulator::StationId;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::capture::{self, CaptureDirection};
use crate::lateness::Histogram;
use crate::plan::Endpoint;
use crate::tap::Tap;

/// Most bytes that a capture's reader may be behind. A capture beyond that ends: frames missing in its middle would go unnoticed.
const MAX_CAPTURE_BACKLOG: usize = 256 << 20;

/// The token of the first interface in the poll; those of the others follow. Smaller ones are those of the event loop.
pub(super) const FIRST_STATION_TOKEN: u64 = 3;

/// An interface of a node.
pub(crate) struct Port {
    /// `None` if it was removed. The emulator numbers its stations by the ports, and uses no number again.
    tap: Option<Tap>,
    /// Its name; empty if it was removed.
    pub end: Endpoint,
    /// Frames that the node did not take, because its interface is down.
    pub refused: u64,
}

impl Port {
    /// The interface `end`, which is the device `tap`.
    pub fn new(tap: Tap, end: Endpoint) -> Port {
        Port { tap: Some(tap), end, refused: 0 }
    }

    /// Its device.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn tap(&self) -> io::Result<&Tap> {
        self.tap.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Has `poll` report frames that its node sends, as `token`.
    pub fn listen(&self, poll: &Epoll, token: u64) -> io::Result<()> {
        // SAFETY: a device stays open as long as its port has it; a poll forgets one that is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tap()?.fd()) };
        Ok(poll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    /// Has `poll` report nothing more of it.
    pub fn ignore(&self, poll: &Epoll) {
        let Ok(tap) = self.tap() else { return };
        // SAFETY: as above.
        let fd = unsafe { BorrowedFd::borrow_raw(tap.fd()) };
        // An error means that this was done before.
        let _ = poll.delete(fd);
    }

    /// Removes the interface from its node.
    pub fn remove(&mut self) {
        self.end = Endpoint::default();
        if let Some(tap) = self.tap.take() {
            // An error means that its node has ended.
            let _ = tap.remove();
        }
    }
}

/// A client at the socket.
pub(super) struct ConnectedClient {
    pub stream: UnixStream,
    pub inbox: Vec<u8>,
    pub outbox: VecDeque<u8>,
    pub captures: Option<StationId>,
    /// Whether the poll watches for room to write.
    pub waits: bool,
    pub is_done: bool,
}

/// Receivers of frames: the ports and the clients.
pub(super) struct Receivers {
    pub ports: Vec<Port>,
    pub clients: HashMap<u64, ConnectedClient>,
    pub lateness: Histogram,
}

impl Receivers {
    pub fn capture(
        &mut self,
        station: StationId,
        direction: CaptureDirection,
        at: VirtualInstant,
        look: &Snapshot,
        frame: &[u8],
    ) {
        for client in self.clients.values_mut().filter(|client| client.captures == Some(station)) {
            client.outbox.extend(capture::frame(look.segment.wall_at(at), direction, frame));
            client.is_done |= client.outbox.len() > MAX_CAPTURE_BACKLOG;
        }
    }

    /// Writes the data that clients can take, and forgets clients that have left.
    pub fn flush(&mut self, poll: &Epoll) {
        for (token, client) in &mut self.clients {
            client.write();
            let waits = !client.outbox.is_empty();
            if waits != client.waits && !client.is_done {
                let also = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                let mut event = EpollEvent::new(EpollFlags::EPOLLIN | also, *token);
                client.is_done |= poll.modify(&client.stream, &mut event).is_err();
                client.waits = waits;
            }
        }
        self.clients.retain(|_, client| !client.is_done);
    }
}

impl ConnectedClient {
    fn write(&mut self) {
        while !self.outbox.is_empty() && !self.is_done {
            let (first, _) = self.outbox.as_slices();
            match self.stream.write(first) {
                Ok(size) => drop(self.outbox.drain(..size)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_done = true,
            }
        }
    }
}
