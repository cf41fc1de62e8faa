//! The loop of a watcher. It delivers packets from the kernel to their readers, until a signal, a limit, or the end of all that it
//! watches.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::container_socket::{ContainerSocket, SocketLocation};
use crate::control::{self, WatchOrder};
use crate::error::PacketsError;
use crate::host_clock::wall_offset;
use crate::namespace::Namespace;
use crate::reader::{Reader, ReaderRequest};
use crate::record::Packet;
use crate::source::Counters;
use crate::text;
use crate::watch::{ToVirtual, Watched, Watcher};

/// Interval between two readings of the ring buffer, ms; the ring buffer wakes no reader.
const POLL_INTERVAL_MS: u8 = 50;
/// Interval between two checks for namespaces that have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two calls of [`Audience::tick`].
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of readers of one namespace at a time. Each takes a descriptor and a buffer.
const MAX_READERS: usize = 64;

/// The receiver of all packets and events of a [`Service`].
pub trait Audience {
    /// Called with each packet of `watched`. Wall time is `wall_offset` ns ahead of the packet's times.
    ///
    /// # Errors
    ///
    /// An error ends the service.
    fn packet(&mut self, watched: &Watched, packet: &Packet, wall_offset: u64) -> io::Result<()>;
    /// Called once a second.
    ///
    /// # Errors
    ///
    /// An error ends the service.
    fn tick(&mut self, watcher: &Watcher) -> io::Result<()>;
    /// Called when a namespace has ended, with its statistics and counters.
    ///
    /// # Errors
    ///
    /// An error ends the service.
    fn ended(&mut self, watched: &Watched, counters: Counters) -> io::Result<()>;
}

/// A watcher at work.
pub struct Service {
    watcher: Watcher,
    control: UnixListener,
    sockets: Vec<ContainerSocket>,
    readers: Vec<Reader>,
    signals: SignalFd,
}

impl Service {
    /// Makes a service for `watcher`. From now on SIGINT, SIGTERM and SIGHUP end the service and not the process.
    ///
    /// # Errors
    ///
    /// An error if descriptors or sockets cannot be made.
    pub fn new(watcher: Watcher) -> Result<Service, PacketsError> {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        set.thread_block().map_err(io::Error::from)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).map_err(io::Error::from)?;
        let control = control::listen()?;
        Ok(Service { watcher, control, sockets: Vec::new(), readers: Vec::new(), signals })
    }

    /// Returns the watcher.
    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Watches `namespace`. Programs of the namespace may read of its packets at `location`.
    ///
    /// # Errors
    ///
    /// An error if the namespace is watched already, or the socket cannot be made.
    pub fn add(
        &mut self,
        namespace: Namespace,
        to_virtual: Option<ToVirtual>,
        location: &SocketLocation,
    ) -> Result<(), PacketsError> {
        self.sockets.extend(ContainerSocket::open(&namespace, location)?);
        self.watcher.add(namespace, to_virtual)
    }

    /// Pauses all measuring, until an order comes: from a container or from outside.
    ///
    /// # Errors
    ///
    /// An error if the kernel refuses a call.
    pub fn pause(&mut self) -> Result<(), PacketsError> {
        let cookies: Vec<u64> =
            self.watcher.watched().iter().map(|one| one.namespace.cookie).collect();
        cookies.into_iter().try_for_each(|cookie| self.watcher.switch(cookie, false))
    }

    /// Runs until a signal comes, `limit` has passed, or all watched namespaces have ended.
    ///
    /// # Errors
    ///
    /// An error if an outer device is gone, the kernel refuses a call, or `audience` fails.
    pub fn run(
        &mut self,
        limit: Option<Duration>,
        audience: &mut dyn Audience,
    ) -> Result<(), PacketsError> {
        let begun = Instant::now();
        let (mut checked, mut ticked) = (begun, begun);
        while !self.watcher.watched().is_empty() {
            if self.wait()? || limit.is_some_and(|limit| begun.elapsed() >= limit) {
                break;
            }
            self.deliver(audience)?;
            self.answer(audience)?;
            if checked.elapsed() >= CHECK_INTERVAL {
                checked = Instant::now();
                self.check(audience)?;
            }
            if ticked.elapsed() >= TICK_INTERVAL {
                ticked = Instant::now();
                self.show_statistics()?;
                audience.tick(&self.watcher)?;
            }
        }
        let packets = self.watcher.finish()?;
        self.distribute(&packets, audience)
    }

    /// Waits for an event. Returns true if it is a signal.
    fn wait(&self) -> Result<bool, PacketsError> {
        let own = [self.signals.as_fd(), self.control.as_fd()].into_iter();
        let sockets = self.sockets.iter().map(|socket| socket.listener.as_fd());
        let readers = self.readers.iter().filter(|reader| reader.may_send());
        let readers = readers.map(|reader| reader.stream.as_fd());
        let all = own.chain(sockets).chain(readers);
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut all, PollTimeout::from(POLL_INTERVAL_MS)) {
            Ok(_) | Err(Errno::EINTR) => (),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(all[0].any().unwrap_or(false))
    }

    /// Delivers new packets to the audience and the readers.
    fn deliver(&mut self, audience: &mut dyn Audience) -> Result<(), PacketsError> {
        let packets = self.watcher.read()?;
        self.distribute(&packets, audience)
    }

    fn distribute(
        &mut self,
        packets: &[(u64, Packet)],
        audience: &mut dyn Audience,
    ) -> Result<(), PacketsError> {
        let offset = wall_offset()?;
        for (cookie, packet) in packets {
            let Some(watched) = self.watcher.find(*cookie) else { continue };
            audience.packet(watched, packet, offset)?;
            let files = self.sockets.iter_mut().filter(|socket| socket.cookie == *cookie);
            for files in files.filter_map(|socket| socket.files.as_mut()) {
                files.tell(&text::line(packet, offset));
            }
            for reader in self.readers.iter_mut().filter(|reader| reader.cookie == *cookie) {
                let line = match reader.json {
                    true => text::json_line(packet, &watched.namespace.name, offset),
                    false => text::line(packet, offset),
                };
                reader.tell(&line);
            }
        }
        self.readers.retain_mut(Reader::flush);
        Ok(())
    }

    /// Writes the files of statistics anew.
    fn show_statistics(&self) -> Result<(), PacketsError> {
        for socket in &self.sockets {
            let Some(files) = &socket.files else { continue };
            let Some(watched) = self.watcher.find(socket.cookie) else { continue };
            let counters = self.watcher.counters(socket.cookie)?;
            // An error means that the container is gone.
            let _ = files.show(&text::aggregate(watched, counters, true).to_string());
        }
        Ok(())
    }

    /// Accepts connections, and answers orders and requests.
    fn answer(&mut self, audience: &mut dyn Audience) -> Result<(), PacketsError> {
        let watcher = &mut self.watcher;
        // An error means that there is no connection, or that it has closed.
        let _ = control::serve(&self.control, |request| {
            carry_out(watcher, request.order, request.cookie).ok().flatten()
        });
        for socket in &self.sockets {
            // A refused connection is closed.
            let readers =
                self.readers.iter().filter(|reader| reader.cookie == socket.cookie).count();
            if let (Ok(Some(stream)), true) = (socket.admit(), readers < MAX_READERS) {
                self.readers.push(Reader::new(stream, socket.cookie));
            }
        }
        let mut asked = Vec::new();
        let mut at = 0;
        self.readers.retain_mut(|reader| {
            let requests = reader.requests();
            let stays = requests.is_some();
            asked.extend(requests.into_iter().flatten().map(|request| (at, request)));
            at += usize::from(stays);
            stays
        });
        for (at, request) in asked {
            self.handle_request(at, request, audience)?;
        }
        self.readers.retain_mut(Reader::flush);
        Ok(())
    }

    fn handle_request(
        &mut self,
        at: usize,
        request: ReaderRequest,
        audience: &mut dyn Audience,
    ) -> Result<(), PacketsError> {
        if request == ReaderRequest::Sync {
            self.deliver(audience)?;
        }
        let Some(reader) = self.readers.get_mut(at) else { return Ok(()) };
        let cookie = reader.cookie;
        let order = match request {
            ReaderRequest::Json | ReaderRequest::Text => {
                reader.json = request == ReaderRequest::Json;
                return Ok(());
            }
            ReaderRequest::Sync => {
                reader.tell("# sync");
                return Ok(());
            }
            ReaderRequest::Unknown => {
                reader.tell("# expected json, text, on, off, reset, aggregate or sync");
                return Ok(());
            }
            ReaderRequest::Switch(true) => WatchOrder::On,
            ReaderRequest::Switch(false) => WatchOrder::Off,
            ReaderRequest::Reset => WatchOrder::Reset,
            ReaderRequest::Aggregate => WatchOrder::Show,
        };
        let answer = carry_out(&mut self.watcher, order, cookie)?;
        if let (WatchOrder::Show, Some(answer)) = (order, answer) {
            reader.tell(&answer.to_string());
        }
        Ok(())
    }

    /// Removes the namespaces that have ended, and checks the outer devices.
    fn check(&mut self, audience: &mut dyn Audience) -> Result<(), PacketsError> {
        self.watcher.check_outers()?;
        for (ended, counters) in self.watcher.ended()? {
            audience.ended(&ended, counters)?;
            self.sockets.retain(|socket| socket.cookie != ended.namespace.cookie);
            self.readers.retain(|reader| reader.cookie != ended.namespace.cookie);
        }
        Ok(())
    }
}

/// Carries out an order and returns the statistics now; none if the namespace is not watched.
fn carry_out(
    watcher: &mut Watcher,
    order: WatchOrder,
    cookie: u64,
) -> Result<Option<serde_json::Value>, PacketsError> {
    match order {
        WatchOrder::On => watcher.switch(cookie, true)?,
        WatchOrder::Off => watcher.switch(cookie, false)?,
        WatchOrder::Reset => watcher.reset(cookie)?,
        WatchOrder::Show => (),
    }
    let Some(watched) = watcher.find(cookie) else { return Ok(None) };
    Ok(Some(text::aggregate(watched, watcher.counters(cookie)?, true)))
}
