//! Who is at the other end of a socket, by what the kernel's socket tables say (sock_diag(7)).

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::unix::{self, ShowFlags, UnixRequest};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::Socket;

/// A socket of the internet families.
struct Inet {
    inode: u64,
    state: u8,
    here: SocketAddr,
    there: SocketAddr,
    /// Bytes that were sent once, that arrived, and that wait to be sent.
    sent: u64,
    received: u64,
    waiting: u64,
}

/// The tables of one moment, each read when it is first needed.
#[derive(Default)]
pub struct Tables {
    unix: OnceCell<HashMap<u64, Unix>>,
    tcp: OnceCell<Vec<Inet>>,
    udp: OnceCell<Vec<Inet>>,
}

struct Unix {
    listens: bool,
    peer: Option<u64>,
}

/// What may come to a socket, and whence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Nothing but from processes on the clock.
    Inside,
    /// It waits for anybody: a listening socket, a server's datagram socket.
    Anybody,
    /// Something from outside.
    Outside(String),
    /// Something that is on its way already.
    InFlight(String),
}

const LISTEN: u8 = 10;
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;

impl Tables {
    /// What may come to the socket `inode`, where `inside` are the sockets of processes on the clock.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell.
    pub fn reach(&self, inode: u64, inside: &HashSet<u64>) -> io::Result<Reach> {
        let unix = read_once(&self.unix, dump_unix)?;
        if let Some(socket) = unix.get(&inode) {
            return Ok(match socket.peer {
                Some(peer) if inside.contains(&peer) => Reach::Inside,
                Some(_) => Reach::Outside("a socket of a process outside".into()),
                None if socket.listens => Reach::Anybody,
                // Datagrams without a peer, or one that is gone.
                None => Reach::Anybody,
            });
        }
        let tcp = read_once(&self.tcp, || dump_inet(IPPROTO_TCP))?;
        if let Some(socket) = tcp.iter().find(|socket| socket.inode == inode) {
            return Ok(reach_of_tcp(socket, tcp, inside));
        }
        let udp = read_once(&self.udp, || dump_inet(IPPROTO_UDP))?;
        Ok(match udp.iter().find(|socket| socket.inode == inode) {
            Some(socket) => reach_of_udp(socket, udp, inside),
            // Raw, packet, netlink, vsock, ..., or of another network namespace.
            None => Reach::Outside("a socket that may be reached from outside".into()),
        })
    }
}

fn read_once<T>(table: &OnceCell<T>, read: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
    match table.get() {
        Some(table) => Ok(table),
        None => {
            let found = read()?;
            Ok(table.get_or_init(|| found))
        }
    }
}

fn reach_of_tcp(socket: &Inet, all: &[Inet], inside: &HashSet<u64>) -> Reach {
    let other = all.iter().find(|other| other.here == socket.there && other.there == socket.here);
    let listener = |at: SocketAddr| {
        all.iter().find(move |other| {
            other.state == LISTEN
                && other.here.port() == at.port()
                && (other.here.ip().is_unspecified() || other.here.ip() == at.ip())
        })
    };
    match (socket.state, other) {
        (LISTEN, _) => Reach::Anybody,
        (_, Some(other)) => {
            // One that nobody has accepted yet belongs to who listens there.
            let owner = if other.inode != 0 { Some(other) } else { listener(socket.there) };
            if !owner.is_some_and(|owner| inside.contains(&owner.inode)) {
                return Reach::Outside(format!("{}", socket.there));
            }
            // The end of a stream is counted as a byte that arrived.
            let ends = u64::from(socket.state != ESTABLISHED || other.state != ESTABLISHED);
            let flight = socket.sent.abs_diff(other.received) > ends
                || other.sent.abs_diff(socket.received) > ends
                || socket.waiting + other.waiting > 0;
            match flight {
                true => Reach::InFlight(format!("data on the way to {}", socket.there)),
                false => Reach::Inside,
            }
        }
        (ESTABLISHED | SYN_SENT, None) => Reach::Outside(format!("{}", socket.there)),
        // The other end is gone: nothing comes any more.
        (_, None) => Reach::Inside,
    }
}

fn reach_of_udp(socket: &Inet, all: &[Inet], inside: &HashSet<u64>) -> Reach {
    if socket.there.port() == 0 {
        return match is_ephemeral(socket.here.port()) {
            // A client that names its peer each time, as resolvers do.
            true => Reach::Outside("an answer to a datagram".into()),
            false => Reach::Anybody,
        };
    }
    let other = all.iter().find(|other| {
        let there = socket.there;
        let at = other.here.ip() == there.ip() || other.here.ip().is_unspecified();
        other.here.port() == there.port() && at
    });
    match other {
        Some(other) if inside.contains(&other.inode) => Reach::Inside,
        _ => Reach::Outside(format!("{}", socket.there)),
    }
}

/// Whether the kernel may have chosen this port.
fn is_ephemeral(port: u16) -> bool {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = text.ok().and_then(|text| {
        let mut ends = text.split_ascii_whitespace().filter_map(|end| end.parse::<u16>().ok());
        Some(ends.next()?..=ends.next()?)
    });
    range.is_none_or(|range| range.contains(&port))
}

fn dump_unix() -> io::Result<HashMap<u64, Unix>> {
    let request = SockDiagMessage::UnixRequest(UnixRequest {
        state_flags: unix::StateFlags::all(),
        inode: 0,
        show_flags: ShowFlags::PEER,
        cookie: [0xff; 8],
    });
    let mut found = HashMap::new();
    dump(request, |answer| {
        if let SockDiagMessage::UnixResponse(socket) = answer {
            let listens = socket.header.state == LISTEN;
            let unix = Unix { listens, peer: socket.peer().map(u64::from) };
            found.insert(u64::from(socket.header.inode), unix);
        }
    })?;
    Ok(found)
}

/// Of both families: one of either may speak to one of the other.
fn dump_inet(protocol: u8) -> io::Result<Vec<Inet>> {
    let mut found = Vec::new();
    for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let request = SockDiagMessage::InetRequest(InetRequest {
            family,
            protocol,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::all(),
            socket_id,
        });
        dump(request, |answer| {
            if let SockDiagMessage::InetResponse(socket) = answer {
                found.push(inet_of(&socket, protocol == IPPROTO_TCP));
            }
        })?;
    }
    Ok(found)
}

fn inet_of(socket: &InetResponse, tcp: bool) -> Inet {
    let id = &socket.header.socket_id;
    let at = |address: IpAddr, port| SocketAddr::new(address.to_canonical(), port);
    let info = socket.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(info) => Some(info),
        _ => None,
    });
    let of = |field: fn(&TcpInfo) -> u64| info.map_or(0, field);
    // Of a socket that listens the queues count connections.
    let carries = tcp && socket.header.state != LISTEN;
    Inet {
        inode: u64::from(socket.header.inode),
        state: socket.header.state,
        here: at(id.source_address, id.source_port),
        there: at(id.destination_address, id.destination_port),
        sent: if carries { of(|info| info.bytes_sent - info.bytes_retrans) } else { 0 },
        received: if carries { of(|info| info.bytes_received) } else { 0 },
        waiting: if carries { of(|info| u64::from(info.notsent_bytes)) } else { 0 },
    }
}

/// Sends a dump request and hands over each answer.
fn dump(request: SockDiagMessage, mut each: impl FnMut(SockDiagMessage)) -> io::Result<()> {
    const ROOM: usize = 64 * 1024;
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(ROOM);
    loop {
        answer.clear();
        socket.recv(&mut answer, 0)?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                .map_err(|error| io::Error::other(error.to_string()))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => each(inner),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}
