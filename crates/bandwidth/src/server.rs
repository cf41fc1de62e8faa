//! The receiving end: it timestamps probes and reports them. It sends nothing but answers over TCP.
//!
//! A stranger can use only bounded resources:
//!
//! - [`MAX_CONNECTIONS`] connections, each with a few seconds to show that it may begin a session;
//! - [`MAX_SESSIONS`] sessions, each of which ends after [`IDLE_TIMEOUT`] without a message, and after [`MAX_SESSION_TIME`] in any
//!   case;
//! - messages of a few kilobytes, and streams of [`MAX_PACKETS`] probes.
//!
//! A probe counts only if it comes from the session's client and carries the session's number.

use crate::wire::{
    hex, Control, Header, ToClient, ToServer, Token, MAX_MESSAGE_TO_SERVER, MAX_PACKETS, VERSION,
};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    recvmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, SockaddrStorage,
};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of connections at a time, with or without a session.
pub const MAX_CONNECTIONS: usize = 32;
/// Largest number of sessions at a time.
pub const MAX_SESSIONS: usize = 8;
/// Time without a message after which a session ends.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time that a session lasts.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(3600);
/// Timeout of the answer to the challenge.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// After the message that all probes were sent, the server still waits for probes until none has come for this time.
const QUIET_TIME: Duration = Duration::from_millis(200);
/// Time after which the server ends a stream.
const MAX_STREAM_TIME: Duration = Duration::from_secs(30);
/// Length of the receive buffer, bytes: room for bursts of probes while this program does not have the processor.
const RECEIVE_BUFFER_LEN: usize = 32 << 20;

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: Option<Token>,
    connections: Arc<AtomicUsize>,
    sessions: Arc<AtomicUsize>,
    idle: Duration,
}

/// One of a limited number of slots. Dropping it frees the slot.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn acquire(count: &Arc<AtomicUsize>, most: usize) -> Option<Slot> {
        let add = |n: usize| (n < most).then_some(n + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Slot(count.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Listens at `address`. With a token, only clients that know the token may measure.
    ///
    /// # Errors
    ///
    /// The address cannot be used.
    pub fn bind(address: SocketAddr, token: Option<Token>) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let (connections, sessions) = Default::default();
        Ok(Server { listener, token, connections, sessions, idle: IDLE_TIMEOUT })
    }

    /// Ends sessions after `idle` without a message, instead of after [`IDLE_TIMEOUT`].
    pub fn idle_after(mut self, idle: Duration) -> Server {
        self.idle = idle;
        self
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves all clients. Calls `tell` with the outcome of each session.
    pub fn serve(
        &self,
        tell: impl Fn(SocketAddr, &str) + Send + Clone + 'static,
    ) -> io::Result<()> {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(found) => found,
                // The connection is gone already, or there are too many. The next one may succeed.
                Err(error) if is_passing(&error) => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(slot) = Slot::acquire(&self.connections, MAX_CONNECTIONS) else { continue };
            let (token, sessions, idle) = (self.token.clone(), self.sessions.clone(), self.idle);
            let tell = tell.clone();
            // Without a thread there is no session, and the connection closes.
            let _ = std::thread::Builder::new().name("session".into()).spawn(move || {
                let ended = session(stream, peer, token.as_ref(), &sessions, idle);
                let words = ended.map_or_else(|error| error.to_string(), |()| "ended".to_string());
                tell(peer, &words);
                drop(slot);
            });
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EMFILE
                | libc::ENFILE
                | libc::EPROTO
                | libc::ENOBUFS
        )
    )
}

fn refuse(control: &mut Control, why: &str) -> io::Error {
    // Ignore whether the message arrives: the connection ends anyway.
    let _ = control.send(&ToClient::Refused { why: why.to_string() });
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_string())
}

fn session(
    stream: TcpStream,
    peer: SocketAddr,
    token: Option<&Token>,
    sessions: &Arc<AtomicUsize>,
    idle: Duration,
) -> io::Result<()> {
    let local = stream.local_addr()?.ip();
    let mut control = Control::new(stream)?;
    authenticate(&mut control, token)?;
    let Some(_place) = Slot::acquire(sessions, MAX_SESSIONS) else {
        return Err(refuse(&mut control, "too many measurements at a time"));
    };
    let mut receiver = Receiver::new(local, peer.ip())?;
    let (port, session) = (receiver.socket.local_addr()?.port(), receiver.session);
    control.send(&ToClient::Ready { port, session, most_packets: MAX_PACKETS })?;
    let until = Instant::now() + MAX_SESSION_TIME;
    while Instant::now() < until {
        let (number, packets) = match control.receive(MAX_MESSAGE_TO_SERVER, idle) {
            Ok(ToServer::Stream { number, packets }) => (number, packets),
            Ok(ToServer::End { .. } | ToServer::Proof { .. }) => {
                return Err(refuse(&mut control, "that was not asked for"));
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(refuse(&mut control, &error.to_string())),
        };
        if !(2..=MAX_PACKETS).contains(&packets) {
            return Err(refuse(&mut control, "a stream has 2 to 20000 packets"));
        }
        receiver.arm(number, packets)?;
        control.send(&ToClient::Armed { number })?;
        receiver.receive_until_done(&mut control)?;
        control.send(&receiver.arrivals())?;
    }
    Err(refuse(&mut control, "the session has lasted too long"))
}

fn authenticate(control: &mut Control, token: Option<&Token>) -> io::Result<()> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let nonce = hex(&random);
    let challenge =
        ToClient::Challenge { version: VERSION, nonce: nonce.clone(), token: token.is_some() };
    control.send(&challenge)?;
    let ToServer::Proof { mac } = control.receive(MAX_MESSAGE_TO_SERVER, HANDSHAKE_TIMEOUT)? else {
        return Err(refuse(control, "the challenge was not answered"));
    };
    match token {
        Some(token) if !token.accepts(&nonce, &mac) => Err(refuse(control, "wrong token")),
        _ => Ok(()),
    }
}

/// The receiver of a session's probes.
struct Receiver {
    socket: UdpSocket,
    from: IpAddr,
    session: u64,
    stream: u32,
    /// Number of packets that the socket had lost before the stream.
    dropped: u32,
    /// Which probes of the stream have arrived.
    seen: Vec<bool>,
    arrived: Vec<(u32, i64)>,
    control_buffer: Vec<u8>,
}

impl Receiver {
    fn new(local: IpAddr, from: IpAddr) -> io::Result<Receiver> {
        let socket = UdpSocket::bind((local, 0))?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // With CAP_NET_ADMIN the buffer may exceed the system's limit; without it, the limit applies.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_LEN).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_LEN)?;
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        // JSON in other languages has no integers beyond 2^53.
        let session = u64::from_ne_bytes(random) >> 11;
        let control_buffer = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let (seen, arrived) = Default::default();
        Ok(Receiver { socket, from, session, stream: 0, dropped: 0, seen, arrived, control_buffer })
    }

    /// Discards late probes of the stream before, and prepares for stream `number`.
    fn arm(&mut self, number: u32, packets: u32) -> io::Result<()> {
        self.drain()?;
        self.stream = number;
        self.dropped = dropped(&self.socket);
        self.seen = vec![false; packets as usize];
        self.arrived.clear();
        Ok(())
    }

    /// Receives probes until the client says that all were sent, and a little longer.
    fn receive_until_done(&mut self, control: &mut Control) -> io::Result<()> {
        let until = Instant::now() + MAX_STREAM_TIME;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refuse(control, "a stream has lasted too long"));
            }
            let readable = self.wait(Some(control.stream()), left)?;
            self.drain()?;
            if readable {
                break;
            }
        }
        match control.receive(MAX_MESSAGE_TO_SERVER, HANDSHAKE_TIMEOUT)? {
            ToServer::End { number } if number == self.stream => {}
            _ => return Err(refuse(control, "the end of the stream was expected")),
        }
        let mut quiet_until = Instant::now() + QUIET_TIME;
        while self.arrived.len() < self.seen.len() && Instant::now() < quiet_until.min(until) {
            let before = self.arrived.len();
            self.wait(None, quiet_until.saturating_duration_since(Instant::now()))?;
            self.drain()?;
            if self.arrived.len() > before {
                quiet_until = Instant::now() + QUIET_TIME;
            }
        }
        Ok(())
    }

    /// Waits for a probe or a message of the client. Returns whether a message has come.
    fn wait(&self, control: Option<&TcpStream>, timeout: Duration) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        fds.extend(control.map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)));
        let millis = timeout.as_millis().clamp(1, 60_000) as u16;
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds.get(1).and_then(PollFd::any).unwrap_or(false))
    }

    /// Receives all packets that have arrived.
    fn drain(&mut self) -> io::Result<()> {
        // The loop is bounded, so that a flood of strangers' packets cannot keep the server here.
        for _ in 0..2 * MAX_PACKETS {
            let mut bytes = [0; Header::LEN];
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let (fd, buffer) = (self.socket.as_raw_fd(), Some(self.control_buffer.as_mut_slice()));
            let message =
                recvmsg::<SockaddrStorage>(fd, &mut slices, buffer, MsgFlags::MSG_DONTWAIT);
            let message = match message {
                Ok(message) => message,
                Err(nix::Error::EAGAIN) => return Ok(()),
                Err(nix::Error::EINTR | nix::Error::ECONNREFUSED) => continue,
                Err(error) => return Err(error.into()),
            };
            let timestamp = message.cmsgs()?.find_map(|cmsg| match cmsg {
                ControlMessageOwned::ScmTimestampns(time) => {
                    Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
                }
                _ => None,
            });
            let from = message.address.as_ref().and_then(ip_of);
            if from == Some(self.from) {
                self.take(&bytes, timestamp);
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], timestamp: Option<i64>) {
        let (Some(header), Some(timestamp)) = (Header::parse(bytes), timestamp) else { return };
        if header.session != self.session || header.stream != self.stream {
            return;
        }
        // Each probe counts once, and only if its stream was announced.
        let Some(seen) = self.seen.get_mut(header.number as usize) else { return };
        if !std::mem::replace(seen, true) {
            self.arrived.push((header.number, timestamp));
        }
    }

    fn arrivals(&self) -> ToClient {
        let first = self.arrived.first().map_or(0, |probe| probe.1);
        let probes = self.arrived.iter().map(|(number, at)| (*number, at.saturating_sub(first)));
        let overrun = dropped(&self.socket).wrapping_sub(self.dropped);
        ToClient::Arrivals { number: self.stream, first, overrun, probes: probes.collect() }
    }
}

/// Returns how many packets have found this socket's buffer full; 0 if the kernel does not say.
fn dropped(socket: &UdpSocket) -> u32 {
    /// Index of SK_MEMINFO_DROPS, the last word of SO_MEMINFO (linux/sock_diag.h).
    const DROPS: usize = 8;
    let mut meminfo = [0u32; DROPS + 1];
    let mut length = size_of_val(&meminfo) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `meminfo`, which is that long.
    unsafe {
        let out = (&raw mut meminfo).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, out, &mut length)
    };
    meminfo[DROPS]
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_buffer_loses_is_counted() {
        const SENT: u32 = 500;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        setsockopt(&socket, sockopt::RcvBuf, &8_192).unwrap();
        assert_eq!(dropped(&socket), 0);
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(socket.local_addr().unwrap()).unwrap();
        for _ in 0..SENT {
            from.send(&[0; 1_000]).unwrap();
        }
        let mut bytes = [0; 1_000];
        let came = (0..SENT).take_while(|_| socket.recv(&mut bytes).is_ok()).count() as u32;
        assert!(0 < came && came < SENT, "{came}");
        assert_eq!(came + dropped(&socket), SENT);
    }
}
