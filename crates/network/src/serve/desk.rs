//! Clients at the socket of a network, and the ports that receive frames.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use lorentz_clock::{Snapshot, VirtualInstant};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::capture::{self, Way};
use crate::emulator::StationId;
use crate::lateness::Histogram;
use crate::plan::Endpoint;
use crate::tap::Tap;

/// Most bytes that a capture's reader may be behind. A capture beyond that ends: frames missing in its middle would go unnoticed.
const BEHIND: usize = 256 << 20;

/// An interface of a node.
pub(crate) struct Port {
    pub tap: Tap,
    pub end: Endpoint,
    /// Frames that the node did not take, because its interface is down.
    pub refused: u64,
}

/// A client at the socket.
pub(super) struct Caller {
    pub stream: UnixStream,
    pub inbox: Vec<u8>,
    pub outbox: VecDeque<u8>,
    pub captures: Option<StationId>,
    /// Whether the poll watches for room to write.
    pub waits: bool,
    pub is_done: bool,
}

/// Receivers of frames: the ports and the clients.
pub(super) struct Desk {
    pub ports: Vec<Port>,
    pub callers: HashMap<u64, Caller>,
    pub lateness: Histogram,
}

impl Desk {
    pub fn capture(
        &mut self,
        station: StationId,
        way: Way,
        at: VirtualInstant,
        look: &Snapshot,
        frame: &[u8],
    ) {
        for caller in self.callers.values_mut().filter(|caller| caller.captures == Some(station)) {
            caller.outbox.extend(capture::frame(look.segment.wall_at(at), way, frame));
            caller.is_done |= caller.outbox.len() > BEHIND;
        }
    }

    /// Writes the data that clients can take, and forgets clients that have left.
    pub fn flush(&mut self, poll: &Epoll) {
        for (token, caller) in &mut self.callers {
            caller.write();
            let waits = !caller.outbox.is_empty();
            if waits != caller.waits && !caller.is_done {
                let also = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                let mut event = EpollEvent::new(EpollFlags::EPOLLIN | also, *token);
                caller.is_done |= poll.modify(&caller.stream, &mut event).is_err();
                caller.waits = waits;
            }
        }
        self.callers.retain(|_, caller| !caller.is_done);
    }
}

impl Caller {
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
