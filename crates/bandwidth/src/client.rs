//! The sending end: a [`Path`] over sockets.

use crate::path::{Limits, Path, PathError, Probe, Stream, StreamPlan};
use crate::rate::BitRate;
use crate::wire::{
    Control, Header, ToClient, ToServer, Token, MAX_BYTES, MAX_MESSAGE_TO_CLIENT, VERSION,
};
use lorentz_timers::{sleep, sleep_until, use_fifo_scheduling, Interval, Moment};
use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The clock and the sleep that pace and timestamp streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacingTimers {
    /// The system's gettimeofday and usleep, which most programs use.
    System,
    /// [`lorentz_timers`]' clock and sleep.
    Precise,
}

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shared secret, if the server requires one.
    pub token: Option<Token>,
    /// The highest rate that is probed.
    pub rate_max: BitRate,
    /// The clock and the sleep that pace and timestamp the streams.
    pub timers: PacingTimers,
    /// Whether to put the sending thread under SCHED_FIFO. That requires CAP_SYS_NICE or RLIMIT_RTPRIO.
    pub fifo: bool,
    /// Length of the longest IP packet, bytes; `None` for the longest one that the first link takes.
    pub most_bytes: Option<u32>,
}

/// Timeout of connecting, and of each answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of the longest packet sent without `most_bytes`, bytes: that of jumbo frames.
const DEFAULT_MAX_BYTES: u32 = 9_000;

/// A session with a server.
#[derive(Debug)]
pub struct Client {
    control: Control,
    socket: UdpSocket,
    session: u64,
    /// Length of the IP and UDP headers, bytes.
    headers: u32,
    limits: Limits,
    timers: PacingTimers,
    next: u32,
    payload: Vec<u8>,
}

fn peer(why: impl Into<String>) -> PathError {
    PathError::Peer(why.into())
}

impl Client {
    /// Begins a session with the server at `address`.
    ///
    /// # Errors
    ///
    /// The connection fails, or the server refuses the session.
    pub fn connect(address: SocketAddr, options: &Options) -> Result<Client, PathError> {
        let mut control = Control::new(TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?)?;
        answer(&mut control, options.token.as_ref())?;
        let (port, session, most_packets) =
            match control.receive(MAX_MESSAGE_TO_CLIENT, ANSWER_TIMEOUT)? {
                ToClient::Ready { port, session, most_packets } => (port, session, most_packets),
                ToClient::Refused { why } => return Err(peer(why)),
                _ => return Err(peer("it does not speak this protocol")),
            };
        if options.fifo {
            const PRIORITY: i32 = 10;
            use_fifo_scheduling(PRIORITY)?;
        }
        let local = control.stream().local_addr()?.ip();
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect((address.ip(), port))?;
        never_fragment(&socket, address.is_ipv6())?;
        let link = mtu(&socket, address.is_ipv6()).unwrap_or(1500);
        let most_bytes = options.most_bytes.unwrap_or(link.min(DEFAULT_MAX_BYTES)).min(MAX_BYTES);
        let headers = if address.is_ipv6() { 48 } else { 28 };
        Ok(Client {
            control,
            socket,
            session,
            headers,
            limits: Limits { most_bytes, rate_max: options.rate_max, most_packets },
            timers: options.timers,
            next: 0,
            payload: vec![0; most_bytes as usize],
        })
    }

    /// Sends the stream. Returns when each probe was sent, ns; `None` for a probe that the system did not accept.
    fn send(&mut self, plan: &StreamPlan, number: u32) -> Result<Vec<Option<i64>>, PathError> {
        let length = plan.bytes.saturating_sub(self.headers).max(Header::LEN as u32) as usize;
        self.payload.resize(length.max(self.payload.len()), 0);
        let mut pacer = Pacer::new(self.timers, plan.interval)?;
        let mut times = Vec::with_capacity(plan.packets as usize);
        for probe in 0..plan.packets {
            let header = Header { session: self.session, stream: number, number: probe };
            self.payload[..Header::LEN].copy_from_slice(&header.bytes());
            let at = pacer.wait();
            let sent = self.socket.send(&self.payload[..length]);
            times.push(match sent {
                Ok(_) => Some(at),
                Err(error) if is_loss(&error) => None,
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    let why = format!("packets of {} bytes do not fit the link", plan.bytes);
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
                }
                Err(error) => return Err(error.into()),
            });
        }
        Ok(times)
    }

    fn ask(&mut self, message: &ToServer) -> Result<ToClient, PathError> {
        self.control.send(message)?;
        match self.control.receive(MAX_MESSAGE_TO_CLIENT, ANSWER_TIMEOUT)? {
            ToClient::Refused { why } => Err(peer(why)),
            answer => Ok(answer),
        }
    }
}

/// Whether the error only loses the probe: a full queue, or an ICMP message that nobody listens.
fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::EAGAIN | libc::ECONNREFUSED | libc::EPERM)
    )
}

fn answer(control: &mut Control, token: Option<&Token>) -> Result<(), PathError> {
    let (version, nonce, asked) = match control.receive(MAX_MESSAGE_TO_CLIENT, ANSWER_TIMEOUT)? {
        ToClient::Challenge { version, nonce, token } => (version, nonce, token),
        ToClient::Refused { why } => return Err(peer(why)),
        _ => return Err(peer("it does not speak this protocol")),
    };
    if version != VERSION {
        return Err(peer(format!(
            "it speaks version {version} of the protocol, this is {VERSION}"
        )));
    }
    let mac = match (asked, token) {
        (true, None) => return Err(peer("it asks for a token, and none was given")),
        (_, Some(token)) => token.answer(&nonce),
        (false, None) => String::new(),
    };
    Ok(control.send(&ToServer::Proof { mac })?)
}

impl Path for Client {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn probe(&mut self, plan: &StreamPlan) -> Result<Stream, PathError> {
        if let Ok(rest) = Interval::from_nanos(plan.rest.try_into().unwrap_or(i64::MAX)) {
            sleep(rest);
        }
        self.next += 1;
        let number = self.next;
        match self.ask(&ToServer::Stream { number, packets: plan.packets })? {
            ToClient::Armed { number: armed } if armed == number => {}
            _ => return Err(peer("it did not get ready for a stream")),
        }
        let times = self.send(plan, number)?;
        match self.ask(&ToServer::End { number })? {
            ToClient::Arrivals { number: of, overrun, probes, .. } if of == number => {
                Ok(join_arrivals(plan, &times, &probes, overrun))
            }
            _ => Err(peer("it did not report a stream")),
        }
    }
}

/// Joins the times of sending and arrival.
///
/// Arrivals of probes that were not sent are left out. A full receive buffer also loses strangers' packets, so at most as many
/// probes count as overrun as are missing.
fn join_arrivals(
    plan: &StreamPlan,
    times: &[Option<i64>],
    arrived: &[(u32, i64)],
    overrun: u32,
) -> Stream {
    let mut received = vec![None; times.len()];
    let (mut reordered, mut highest) = (0, None);
    for (number, at) in arrived {
        reordered += u32::from(highest > Some(*number));
        highest = highest.max(Some(*number));
        if let Some(place) = received.get_mut(*number as usize) {
            *place = Some(*at);
        }
    }
    let mut before = 0;
    let probes = times.iter().zip(received).map(|(sent, received)| {
        // A probe that was not sent counts as lost at its planned time.
        before = sent.unwrap_or(before + plan.interval as i64);
        Probe { sent: before, received }
    });
    let stream = Stream { plan: *plan, probes: probes.collect(), reordered, overrun: 0 };
    Stream { overrun: overrun.min(stream.lost() as u32), ..stream }
}

/// Times at which the probes of a stream are sent. A probe that is late by more than an interval moves all that follow: their
/// distances stay the same, and they do not catch up in a burst.
enum Pacer {
    Precise { start: Moment, target: Moment, interval: Interval },
    System { target: i64, interval: i64 },
}

impl Pacer {
    fn new(timers: PacingTimers, interval: u64) -> Result<Pacer, PathError> {
        let nanos = i64::try_from(interval).map_err(|_| peer("an interval without end"))?;
        Ok(match timers {
            PacingTimers::Precise => {
                let interval = Interval::from_nanos(nanos).map_err(io::Error::other)?;
                let start = Moment::now();
                Pacer::Precise { start, target: start, interval }
            }
            PacingTimers::System => Pacer::System { target: time_of_day(), interval: nanos },
        })
    }

    /// Waits until the next probe's time. Returns the clock's time then, ns.
    fn wait(&mut self) -> i64 {
        match self {
            Pacer::Precise { start, target, interval } => {
                sleep_until(*target);
                let now = Moment::now();
                let late = now.since(*target);
                *target = target.saturating_add(*interval);
                if late > *interval {
                    *target = now.saturating_add(*interval);
                }
                i64::try_from(now.since(*start).nanos()).unwrap_or(i64::MAX)
            }
            Pacer::System { target, interval } => {
                let left = *target - time_of_day();
                if left > 0 {
                    // SAFETY: usleep accepts any number.
                    unsafe { libc::usleep((left / 1_000) as libc::c_uint) };
                }
                let now = time_of_day();
                *target = if now - *target > *interval { now } else { *target } + *interval;
                now
            }
        }
    }
}

/// Reads gettimeofday, which has whole microseconds. Returns ns.
fn time_of_day() -> i64 {
    let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `now` is a local variable, and the call asks for no time zone.
    unsafe { libc::gettimeofday(&mut now, std::ptr::null_mut()) };
    now.tv_sec * 1_000_000_000 + now.tv_usec * 1_000
}

/// Makes a packet that does not fit an error, not two packets.
fn never_fragment(socket: &UdpSocket, six: bool) -> io::Result<()> {
    let (level, option, value) = if six {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    };
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads an int.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the length of the longest packet that the path to the peer is known to take, bytes.
fn mtu(socket: &UdpSocket, six: bool) -> Option<u32> {
    let (level, option) =
        if six { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes an int and its length.
    let result = unsafe {
        let out = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, out, &mut length)
    };
    (result == 0).then(|| u32::try_from(value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_joined_to_what_was_sent() {
        let plan = StreamPlan { packets: 4, bytes: 1000, interval: 10, rest: 0 };
        let times = [Some(0), None, Some(20), Some(30)];
        let arrived = [(0, 0), (3, 33), (2, 34), (9, 40), (u32::MAX, 41)];
        let stream = join_arrivals(&plan, &times, &arrived, 0);
        let received: Vec<_> = stream.probes.iter().map(|probe| probe.received).collect();
        assert_eq!(received, [Some(0), None, Some(34), Some(33)]);
        assert_eq!(stream.probes[1].sent, 10);
        assert_eq!((stream.reordered, stream.lost()), (1, 1));
        assert_eq!(stream.loss(), 0.25);
        // Probes for which only the receiver's machine had no room were not too much for the path.
        let stream = join_arrivals(&plan, &times, &arrived, 1_000);
        assert_eq!((stream.overrun, stream.loss()), (1, 0.0));
    }

    #[test]
    fn both_pacers_keep_their_intervals() {
        for timers in [PacingTimers::Precise, PacingTimers::System] {
            let mut pacer = Pacer::new(timers, 300_000).unwrap();
            let times: Vec<i64> = (0..20).map(|_| pacer.wait()).collect();
            assert!(times[19] - times[0] >= 18 * 300_000, "{timers:?} {times:?}");
            assert!(times.windows(2).all(|pair| pair[1] > pair[0]), "{timers:?} {times:?}");
        }
    }
}
