//! The process at the other end of a socket, by the kernel's socket tables (sock_diag(7)).
//!
//! A table is as long as there are sockets on the machine. Once a socket was found in a table, the next question asks for that
//! socket alone, by its cookie. No other socket ever has the same cookie. This works only where the answer does not need the other
//! end.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::unix::{self, ShowFlags, UnixRequest, UnixResponse};
use netlink_packet_sock_diag::SockDiagMessage;

use crate::netlink::Netlink;

/// A TCP or UDP socket.
struct Inet {
    inode: u64,
    state: u8,
    here: SocketAddr,
    there: SocketAddr,
    /// Bytes sent, without retransmissions; bytes received; bytes that wait to be sent. All 0 for UDP and for a listening socket.
    sent: u64,
    received: u64,
    waiting: u64,
    /// The address family and the socket id by which the kernel finds the socket.
    id: (u8, SocketId),
}

/// The socket tables at one moment. Each is read when it is first needed.
#[derive(Default)]
pub struct Tables {
    unix: Option<HashMap<u64, Unix>>,
    tcp: Option<Vec<Inet>>,
    udp: Option<Vec<Inet>>,
}

struct Unix {
    peer: Option<u64>,
    cookie: [u8; 8],
}

/// How to find a socket again.
enum Handle {
    Unix([u8; 8]),
    Listener(InetRequest),
    Tcp,
}

/// State that stays from look to look: the netlink socket, and how to find each known socket.
#[derive(Default)]
pub struct Sockets {
    netlink: Netlink,
    handles: HashMap<u64, Handle>,
}

/// From where something may come to a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// From processes on the clock only.
    Internal,
    /// The socket waits for any peer: a listening socket, or a server's datagram socket.
    Anybody,
    /// From outside. The text is for people.
    External(String),
    /// Data is on its way already. The text is for people.
    InFlight(String),
}

const LISTEN: u8 = 10;
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;

impl Sockets {
    /// Returns from where something may come to the socket `inode`. `inside` tells whether a process on the clock has the socket
    /// with a given inode.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn reach(
        &mut self,
        inode: u64,
        tables: &mut Tables,
        inside: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Reach> {
        let reach = match self.handles.remove(&inode) {
            Some(handle) => self.reach_by(inode, handle, tables, inside)?,
            None => None,
        };
        match reach {
            Some(reach) => Ok(reach),
            None => self.reach_by_tables(inode, tables, inside),
        }
    }

    /// Answers by the handle of the socket. `None` if the handle does not find the socket any more.
    fn reach_by(
        &mut self,
        inode: u64,
        handle: Handle,
        tables: &mut Tables,
        inside: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Option<Reach>> {
        let reach = match &handle {
            Handle::Unix(cookie) => {
                let socket = one_unix(&mut self.netlink, inode, *cookie);
                socket.map(|socket| reach_of_unix(&socket, inside))
            }
            Handle::Listener(request) => match one_inet(&mut self.netlink, request) {
                Some(socket) if socket.inode == inode && socket.state == LISTEN => {
                    Some(Reach::Anybody)
                }
                _ => None,
            },
            Handle::Tcp => {
                let tcp = read_once(&mut tables.tcp, || dump_inet(&mut self.netlink, IPPROTO_TCP))?;
                let socket = tcp.iter().find(|socket| socket.inode == inode);
                socket.map(|socket| reach_of_tcp(socket, tcp, inside))
            }
        };
        if reach.is_some() {
            self.handles.insert(inode, handle);
        }
        Ok(reach)
    }

    fn reach_by_tables(
        &mut self,
        inode: u64,
        tables: &mut Tables,
        inside: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Reach> {
        /// At so many handles all are forgotten: sockets come and go.
        const MAX_HANDLES: usize = 4096;
        if self.handles.len() >= MAX_HANDLES {
            self.handles.clear();
        }
        let unix = read_once(&mut tables.unix, || dump_unix(&mut self.netlink))?;
        if let Some(socket) = unix.get(&inode) {
            self.handles.insert(inode, Handle::Unix(socket.cookie));
            return Ok(reach_of_unix(socket, inside));
        }
        let tcp = read_once(&mut tables.tcp, || dump_inet(&mut self.netlink, IPPROTO_TCP))?;
        if let Some(socket) = tcp.iter().find(|socket| socket.inode == inode) {
            self.handles.insert(inode, socket.handle());
            return Ok(reach_of_tcp(socket, tcp, inside));
        }
        let udp = read_once(&mut tables.udp, || dump_inet(&mut self.netlink, IPPROTO_UDP))?;
        Ok(match udp.iter().find(|socket| socket.inode == inode) {
            Some(socket) => reach_of_udp(socket, udp, inside),
            // A raw, packet, netlink or vsock socket, or one of another network namespace.
            None => Reach::External("a socket that may be reached from outside".into()),
        })
    }
}

fn read_once<T>(table: &mut Option<T>, read: impl FnOnce() -> io::Result<T>) -> io::Result<&mut T> {
    match table {
        Some(table) => Ok(table),
        None => Ok(table.insert(read()?)),
    }
}

impl Inet {
    /// Returns how to find this TCP socket again.
    fn handle(&self) -> Handle {
        let (family, socket_id) = self.id.clone();
        match self.state {
            LISTEN => Handle::Listener(inet_request(IPPROTO_TCP, family, socket_id)),
            _ => Handle::Tcp,
        }
    }
}

fn reach_of_unix(socket: &Unix, inside: &mut dyn FnMut(u64) -> bool) -> Reach {
    match socket.peer {
        Some(peer) if inside(peer) => Reach::Internal,
        Some(_) => Reach::External("a socket of a process outside".into()),
        // The socket listens, takes datagrams without a peer, or its peer is gone.
        None => Reach::Anybody,
    }
}

fn reach_of_tcp(socket: &Inet, all: &[Inet], inside: &mut dyn FnMut(u64) -> bool) -> Reach {
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
            // A connection that nobody has accepted yet has no inode. It belongs to the owner of the listening socket.
            let owner = if other.inode != 0 { Some(other) } else { listener(socket.there) };
            if !owner.is_some_and(|owner| inside(owner.inode)) {
                return Reach::External(format!("{}", socket.there));
            }
            // A FIN counts as one byte received.
            let ends = u64::from(socket.state != ESTABLISHED || other.state != ESTABLISHED);
            let flight = socket.sent.abs_diff(other.received) > ends
                || other.sent.abs_diff(socket.received) > ends
                || socket.waiting + other.waiting > 0;
            match flight {
                true => Reach::InFlight(format!("data on the way to {}", socket.there)),
                false => Reach::Internal,
            }
        }
        (ESTABLISHED | SYN_SENT, None) => Reach::External(format!("{}", socket.there)),
        // The other end is gone: nothing comes any more.
        (_, None) => Reach::Internal,
    }
}

fn reach_of_udp(socket: &Inet, all: &[Inet], inside: &mut dyn FnMut(u64) -> bool) -> Reach {
    if socket.there.port() == 0 {
        return match is_ephemeral(socket.here.port()) {
            // A client that names its peer with each datagram, as resolvers do.
            true => Reach::External("an answer to a datagram".into()),
            false => Reach::Anybody,
        };
    }
    let other = all.iter().find(|other| {
        let there = socket.there;
        let at = other.here.ip() == there.ip() || other.here.ip().is_unspecified();
        other.here.port() == there.port() && at
    });
    match other {
        Some(other) if inside(other.inode) => Reach::Internal,
        _ => Reach::External(format!("{}", socket.there)),
    }
}

/// Whether the port is in the kernel's ephemeral range, so that the kernel may have chosen it.
fn is_ephemeral(port: u16) -> bool {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = text.ok().and_then(|text| {
        let mut ends = text.split_ascii_whitespace().filter_map(|end| end.parse::<u16>().ok());
        Some(ends.next()?..=ends.next()?)
    });
    range.is_none_or(|range| range.contains(&port))
}

fn unix_request(inode: u32, cookie: [u8; 8]) -> SockDiagMessage {
    SockDiagMessage::UnixRequest(UnixRequest {
        state_flags: unix::StateFlags::all(),
        inode,
        show_flags: ShowFlags::PEER,
        cookie,
    })
}

fn unix_of(socket: &UnixResponse) -> (u64, Unix) {
    let unix = Unix { peer: socket.peer().map(u64::from), cookie: socket.header.cookie };
    (u64::from(socket.header.inode), unix)
}

fn one_unix(netlink: &mut Netlink, inode: u64, cookie: [u8; 8]) -> Option<Unix> {
    match netlink.one(unix_request(u32::try_from(inode).ok()?, cookie))? {
        SockDiagMessage::UnixResponse(socket) => {
            let (found, unix) = unix_of(&socket);
            (found == inode).then_some(unix)
        }
        _ => None,
    }
}

fn dump_unix(netlink: &mut Netlink) -> io::Result<HashMap<u64, Unix>> {
    let mut found = HashMap::new();
    netlink.dump(unix_request(0, [0xff; 8]), |answer| {
        if let SockDiagMessage::UnixResponse(socket) = answer {
            found.extend([unix_of(&socket)]);
        }
    })?;
    Ok(found)
}

fn inet_request(protocol: u8, family: u8, socket_id: SocketId) -> InetRequest {
    let (extensions, states) = (ExtensionFlags::INFO, StateFlags::all());
    InetRequest { family, protocol, extensions, states, socket_id }
}

fn one_inet(netlink: &mut Netlink, request: &InetRequest) -> Option<Inet> {
    match netlink.one(SockDiagMessage::InetRequest(request.clone()))? {
        SockDiagMessage::InetResponse(socket) => {
            Some(inet_of(&socket, request.protocol == IPPROTO_TCP))
        }
        _ => None,
    }
}

/// Dumps both families: an IPv6 socket may speak to an IPv4 socket.
fn dump_inet(netlink: &mut Netlink, protocol: u8) -> io::Result<Vec<Inet>> {
    let mut found = Vec::new();
    for (family, id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let request = SockDiagMessage::InetRequest(inet_request(protocol, family, id));
        netlink.dump(request, |answer| {
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
    // In a listening socket the queues count connections.
    let carries = tcp && socket.header.state != LISTEN;
    Inet {
        inode: u64::from(socket.header.inode),
        state: socket.header.state,
        here: at(id.source_address, id.source_port),
        there: at(id.destination_address, id.destination_port),
        sent: if carries { of(|info| info.bytes_sent - info.bytes_retrans) } else { 0 },
        received: if carries { of(|info| info.bytes_received) } else { 0 },
        id: (socket.header.family, id.clone()),
        waiting: if carries { of(|info| u64::from(info.notsent_bytes)) } else { 0 },
    }
}
