//! A bottleneck of constant rate between two network interfaces, for the benchmark. Packets that enter at the first interface
//! leave at the second when a link of that rate, with cross traffic, would have sent them. Packets of the other direction are
//! only delayed.
//!
//!     bottleneck IN OUT RATE CROSS QUEUE DELAY SECONDS
//!
//! RATE and CROSS are bits per second of IP packets. QUEUE is bytes. DELAY is microseconds one way. Cross traffic consists of
//! packets of 1500 bytes at random times (Poisson). They leave the path behind the bottleneck: they take its time, and appear
//! nowhere else. The kernel's timestamp says when a packet arrived; the program spins until it has to leave.

use lorentz_timers::{use_fifo_scheduling, Reference};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::socket::{
    recvmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, SockaddrStorage,
};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Length of the struct virtio_net_hdr that the kernel puts before each frame, bytes. It describes checksums and segments that
/// are still to be made.
const OFFLOAD_HEADER: usize = 10;
const ETHERNET_HEADER: usize = 14;
/// Distance, ns, by which two packets may leave closer together than on the link, to allow for the length of a loop iteration.
const SLACK: i64 = 2_000;
const CROSS_BYTES: f64 = 1500.0;

fn option(fd: &OwnedFd, name: libc::c_int) {
    let one: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads an int.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, (&raw const one).cast(), length)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Opens a socket that receives all frames of an interface.
fn open(interface: &str) -> OwnedFd {
    const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let index = nix::net::if_::if_nametoindex(interface).expect("an interface") as libc::c_int;
    // SAFETY: the descriptor is new. The address is one of this family, and has its length.
    let fd = unsafe {
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_PACKET, flags, protocol.into());
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        OwnedFd::from_raw_fd(fd)
    };
    option(&fd, libc::PACKET_VNET_HDR);
    option(&fd, PACKET_IGNORE_OUTGOING);
    setsockopt(&fd, sockopt::ReceiveTimestampns, &true).expect("stamps");
    setsockopt(&fd, sockopt::RcvBufForce, &(32 << 20)).expect("a buffer");
    fd
}

/// Receives a frame, and returns its length and the time of its arrival.
fn receive(fd: &OwnedFd, buffer: &mut [u8], control: &mut [u8]) -> Option<(usize, i64)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let message =
        recvmsg::<SockaddrStorage>(fd.as_raw_fd(), &mut slices, Some(control), MsgFlags::empty())
            .ok()?;
    let stamp = message.cmsgs().ok()?.find_map(|cmsg| match cmsg {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
        }
        _ => None,
    });
    Some((message.bytes, stamp.unwrap_or_else(|| Reference::Realtime.now())))
}

fn send(fd: &OwnedFd, frame: &[u8]) {
    // SAFETY: the kernel reads the frame. If the kernel has no room, the frame is lost, as on any link.
    unsafe { libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
}

/// The link: the time at which it has served all packets so far, and the time of the next packet of cross traffic.
struct Link {
    rate: f64,
    cross: f64,
    queue: f64,
    free: f64,
    next_cross: f64,
    random: u64,
}

impl Link {
    fn exponential(&mut self, mean: f64) -> f64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let uniform = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    }

    fn serve(&mut self, at: f64, bytes: f64) -> Option<f64> {
        if (self.free - at).max(0.0) * self.rate / 8e9 + bytes > self.queue {
            return None;
        }
        self.free = self.free.max(at) + bytes * 8e9 / self.rate;
        Some(self.free)
    }

    /// Returns the time at which a packet that arrives at `at` has passed the link; `None` if the queue is full.
    fn pass(&mut self, at: f64, bytes: f64) -> Option<f64> {
        if self.cross > 0.0 {
            let mean = CROSS_BYTES * 8e9 / self.cross;
            self.next_cross = self.next_cross.max(at - 1e9);
            while self.next_cross <= at {
                self.serve(self.next_cross, CROSS_BYTES);
                self.next_cross += self.exponential(mean);
            }
        }
        self.serve(at, bytes)
    }
}

/// Returns the packet at the front if its time has come, but not before `may_go`.
fn due(queue: &mut VecDeque<(i64, Vec<u8>)>, may_go: i64) -> Option<Vec<u8>> {
    let (leaves, _) = queue.front()?;
    // An iteration of the loop takes some hundred nanoseconds, less than the transmission of a packet.
    let at = (*leaves).max(may_go - SLACK);
    (at <= Reference::Realtime.now()).then(|| queue.pop_front().map(|(_, frame)| frame)).flatten()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
    let numbers: Option<Vec<f64>> = (2..7).map(number).collect();
    let Some([rate, cross, queue, delay, seconds]) = numbers.as_deref() else {
        eprintln!("usage: bottleneck IN OUT RATE CROSS QUEUE DELAY SECONDS");
        std::process::exit(2);
    };
    let delay = (delay * 1e3) as i64;
    let (inner, outer) = (open(&words[0]), open(&words[1]));
    let start = Reference::Realtime.now();
    // Times are relative to the start: as f64 they are exact to far below a nanosecond.
    let mut link = Link {
        rate: *rate,
        cross: *cross,
        queue: *queue,
        free: 0.0,
        next_cross: 0.0,
        random: start as u64 | 1,
    };
    let (mut forth, mut back) = (VecDeque::<(i64, Vec<u8>)>::new(), VecDeque::new());
    let mut buffer = vec![0; OFFLOAD_HEADER + 70_000];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    // Run under SCHED_FIFO if permitted: a link does not wait for other programs. It sleeps while no packet is on its way.
    let is_fifo = use_fifo_scheduling(20).is_ok();
    println!("ready, {}", if is_fifo { "under SCHED_FIFO" } else { "without SCHED_FIFO" });
    let mut may_go = 0;
    let over = start + (seconds * 1e9) as i64;
    loop {
        let now = Reference::Realtime.now();
        if now > over {
            break;
        }
        if forth.is_empty() && back.is_empty() {
            let mut fds = [&inner, &outer].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
            let _ = poll(&mut fds, 100u8);
        }
        if let Some((length, at)) = receive(&inner, &mut buffer, &mut control) {
            let bytes = length.saturating_sub(OFFLOAD_HEADER + ETHERNET_HEADER) as f64;
            if let Some(leaves) = link.pass((at - start) as f64, bytes) {
                forth.push_back((start + leaves as i64 + delay, buffer[..length].to_vec()));
            }
        }
        if let Some((length, at)) = receive(&outer, &mut buffer, &mut control) {
            back.push_back((at + delay, buffer[..length].to_vec()));
        }
        // A packet may leave late because this program did not have a processor. The next packets must still not be closer
        // together than on the link.
        if let Some(frame) = due(&mut forth, may_go) {
            let bytes = frame.len().saturating_sub(OFFLOAD_HEADER + ETHERNET_HEADER) as f64;
            may_go = Reference::Realtime.now() + (bytes * 8e9 / rate) as i64;
            send(&outer, &frame);
        }
        if let Some(frame) = due(&mut back, 0) {
            send(&inner, &frame);
        }
    }
}
