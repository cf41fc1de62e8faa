//! Records of the BPF programs, parsed into packets.

use serde::Serialize;

/// Size of a record in the ring buffer, bytes.
pub(crate) const RECORD_LEN: usize = 56;

const INGRESS: u8 = 1;
const IPV6: u8 = 2;
const LATER_FRAGMENT: u8 = 4;
const SENT_AGAIN: u8 = 8;
/// The same bit as SENT_AGAIN, in a record of egress.
const BY_NUMBER: u8 = 8;
const BY_RAW: u8 = 0x80;
const NO_DEVICE: u32 = u32::MAX;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Direction of a packet, as the container sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a program to the outer device.
    Egress,
    /// From the outer device to a program.
    Ingress,
}

impl Direction {
    /// Returns `egress` or `ingress`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Egress => "egress",
            Direction::Ingress => "ingress",
        }
    }
}

/// The protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// ICMP and ICMPv6.
    Icmp,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// Any other protocol.
    Other,
}

impl Protocol {
    /// All protocols, in the order of display.
    pub const ALL: [Protocol; 4] = [Protocol::Icmp, Protocol::Udp, Protocol::Tcp, Protocol::Other];

    /// Returns `icmp`, `udp`, `tcp` or `other`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Icmp => "icmp",
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
            Protocol::Other => "other",
        }
    }
}

/// Outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketOutcome {
    /// Both ends saw the packet: its latency is known.
    Matched,
    /// The kernel's own part of a TCP connection: an acknowledgement without data, or a retransmitted segment. No program sent or
    /// read it.
    Kernel,
    /// Part of it has another sender or reader: it was read in pieces, or sent together with the data of the next call.
    Shared,
    /// A further read of a packet that was matched before.
    Again,
    /// A miss: sent, never seen on the outer device (it went elsewhere, was dropped, or was replaced on the way).
    Lost,
    /// A miss: received, never read (dropped, read by io_uring or splice, or merged with another).
    Unread,
    /// A miss: another packet had the same sk_buff address at the other end.
    Changed,
    /// A miss: one call had more packets than there is room for.
    Crowded,
    /// A miss: read outside any receive call that the programs follow.
    Elsewhere,
}

impl PacketOutcome {
    /// Whether the packet should have been matched and was not.
    pub fn is_miss(self) -> bool {
        use PacketOutcome::{Changed, Crowded, Elsewhere, Lost, Unread};
        matches!(self, Lost | Unread | Changed | Crowded | Elsewhere)
    }

    /// Returns the outcome's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            PacketOutcome::Matched => "matched",
            PacketOutcome::Kernel => "kernel",
            PacketOutcome::Shared => "shared",
            PacketOutcome::Again => "again",
            PacketOutcome::Lost => "lost",
            PacketOutcome::Unread => "unread",
            PacketOutcome::Changed => "changed",
            PacketOutcome::Crowded => "crowded",
            PacketOutcome::Elsewhere => "elsewhere",
        }
    }
}

/// One packet of a watched namespace, in one direction. Times are CLOCK_MONOTONIC, ns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Packet {
    /// Number that the watcher gave to the namespace.
    #[serde(skip)]
    pub space: u16,
    /// The direction.
    pub direction: Direction,
    /// The outcome.
    pub outcome: PacketOutcome,
    /// The protocol above IP.
    pub protocol: Protocol,
    /// Version of IP: 4 or 6.
    pub ip: u8,
    /// Length from the IP header on, bytes; 65,535 if greater.
    pub length: u16,
    /// Start of transmission on the outer device, or reception there.
    pub outer_ns: u64,
    /// Entry of the send call, or exit of the receive call.
    pub call_ns: u64,
    /// Time between the two: the latency that the stack added, ns. None for a miss.
    pub latency_ns: Option<u64>,
    /// The same latency on the container's virtual clock, ns; none if it has no such clock.
    pub virtual_ns: Option<u64>,
    /// The part of the latency between the outer device and the namespace's own, ns; none if they share a device.
    pub device_ns: Option<u32>,
    /// ICMP echo: the identifier, as the namespace sees it. 0 in an ICMP message of another kind.
    pub id: Option<u16>,
    /// ICMP echo: the sequence number. None for UDP and TCP.
    pub seq: Option<u32>,
    /// UDP and TCP: the sender's port.
    pub source_port: Option<u16>,
    /// UDP and TCP: the receiver's port.
    pub destination_port: Option<u16>,
    /// TCP: sequence number of the segment's first byte.
    pub tcp_seq: Option<u32>,
    /// A packet sent, but for TCP by a stream socket, and not in-band: IP's time to live, the hop limit of IPv6.
    pub ttl: Option<u8>,
    /// UDP, ICMP: first 8 bytes of the payload, in hexadecimal.
    pub payload: Option<String>,
    /// ICMP errors (unreachable, time exceeded): first 8 bytes behind the quoted packet's IP header, in hexadecimal.
    pub quoted: Option<String>,
    /// Process id on the host; 0 if there is no process.
    pub pid: u32,
    /// Process id inside the container.
    pub inner_pid: u32,
    /// The process's descriptor of the socket.
    pub fd: u16,
}

/// Reads numbers from a record.
struct Bytes<'a>(&'a [u8; RECORD_LEN]);

impl Bytes<'_> {
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.take(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.take(at))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.take(at))
    }
}

/// First bytes behind the IP header.
struct UpperHeader {
    bytes: [u8; 16],
    protocol: u8,
    /// The packet is a later fragment: the header is in the first one.
    headless: bool,
}

impl UpperHeader {
    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    fn is(&self, protocols: &[u8]) -> bool {
        !self.headless && protocols.contains(&self.protocol)
    }

    /// Whether this is an echo request or reply.
    fn is_echo(&self) -> bool {
        (self.is(&[ICMP]) && matches!(self.bytes[0], 0 | 8))
            || (self.is(&[ICMPV6]) && matches!(self.bytes[0], 128 | 129))
    }

    /// Whether this is an ICMP error that quotes the beginning of another packet.
    fn quotes(&self) -> bool {
        (self.is(&[ICMP]) && matches!(self.bytes[0], 3..=5 | 11 | 12))
            || (self.is(&[ICMPV6]) && self.bytes[0] < 128)
    }

    fn kind(&self) -> Protocol {
        match self.protocol {
            ICMP | ICMPV6 => Protocol::Icmp,
            UDP => Protocol::Udp,
            TCP => Protocol::Tcp,
            _ => Protocol::Other,
        }
    }

    /// Whether a TCP segment of `length` bytes from the IP header on carries any data.
    fn has_data(&self, length: u16, ip_header: u16) -> bool {
        let header = u16::from(self.bytes[12] >> 4) * 4;
        length > ip_header.saturating_add(header)
    }
}

impl Packet {
    /// Parses a record; none if the bytes are no record.
    pub(crate) fn parse(record: &[u8]) -> Option<Packet> {
        let record: &[u8; RECORD_LEN] = record.get(..RECORD_LEN)?.try_into().ok()?;
        let bytes = Bytes(record);
        let (protocol, flags) = (record[38], record[39]);
        let above =
            UpperHeader { bytes: bytes.take(40), protocol, headless: flags & LATER_FRAGMENT != 0 };
        let ingress = flags & INGRESS != 0;
        let (outer_ns, call_ns) = (bytes.u64(0), bytes.u64(8));
        let outcome = outcome(&bytes, &above, flags);
        let latency =
            if ingress { call_ns.checked_sub(outer_ns) } else { outer_ns.checked_sub(call_ns) };
        let ports = above.is(&[UDP, TCP]);
        let device = bytes.u32(16);
        let payload = (above.is(&[UDP]) || above.is_echo()).then(|| hex(&above.bytes[8..]));
        Some(Packet {
            space: bytes.u16(36),
            direction: if ingress { Direction::Ingress } else { Direction::Egress },
            outcome,
            protocol: above.kind(),
            ip: if flags & IPV6 != 0 { 6 } else { 4 },
            length: bytes.u16(32),
            outer_ns,
            call_ns,
            latency_ns: latency
                .filter(|_| matches!(outcome, PacketOutcome::Matched | PacketOutcome::Again)),
            virtual_ns: None,
            device_ns: (device != NO_DEVICE && !outcome.is_miss()).then_some(device),
            id: above.is_echo().then(|| above.u16(4)),
            seq: above.is_echo().then(|| u32::from(above.u16(6))),
            source_port: ports.then(|| above.u16(0)),
            destination_port: ports.then(|| above.u16(2)),
            // In-band records have 0.
            ttl: (flags & (INGRESS | BY_NUMBER) == 0 && bytes.u32(28) != 0)
                .then(|| bytes.u32(28) as u8),
            tcp_seq: above.is(&[TCP]).then(|| above.u32(4)),
            payload,
            quoted: above.quotes().then(|| hex(&above.bytes[8..])),
            pid: bytes.u32(20),
            inner_pid: bytes.u32(24),
            fd: bytes.u16(34),
        })
    }
}

/// Returns the outcome: from the kernel's reason, and for TCP from the sequence numbers.
fn outcome(bytes: &Bytes<'_>, above: &UpperHeader, flags: u8) -> PacketOutcome {
    let ip_header = if flags & IPV6 != 0 { 40 } else { 20 };
    let by_raw = flags & BY_RAW != 0;
    if above.is(&[TCP]) && !by_raw && !above.has_data(bytes.u16(32), ip_header) {
        return PacketOutcome::Kernel;
    }
    let (ingress, bit) = (flags & INGRESS != 0, flags & SENT_AGAIN != 0);
    let by_number = !ingress && flags & BY_NUMBER != 0;
    // The segment begins with another byte than the next one to be sent: a retransmission.
    if by_number && above.is(&[TCP]) && above.u32(4) != bytes.u32(28) {
        return PacketOutcome::Kernel;
    }
    match (flags & !BY_RAW) >> 4 {
        0 if ingress && bit => PacketOutcome::Again,
        0 => PacketOutcome::Matched,
        1 => PacketOutcome::Unread,
        2 => PacketOutcome::Changed,
        3 => PacketOutcome::Crowded,
        4 => PacketOutcome::Elsewhere,
        5 => PacketOutcome::Shared,
        _ => PacketOutcome::Lost,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a record: egress of 84 bytes, at 1,000 ns to 3,500 ns; `change` modifies it.
    fn record(
        protocol: u8,
        flags: u8,
        above: [u8; 16],
        change: impl Fn(&mut [u8]),
    ) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[0..8].copy_from_slice(&3_500_u64.to_ne_bytes());
        record[8..16].copy_from_slice(&1_000_u64.to_ne_bytes());
        record[16..20].copy_from_slice(&700_u32.to_ne_bytes());
        record[32..34].copy_from_slice(&84_u16.to_ne_bytes());
        (record[38], record[39]) = (protocol, flags);
        record[40..].copy_from_slice(&above);
        change(&mut record);
        record
    }

    fn parse(protocol: u8, flags: u8, above: [u8; 16]) -> Packet {
        Packet::parse(&record(protocol, flags, above, |_| ())).unwrap()
    }

    const ECHO: [u8; 16] = [8, 0, 1, 2, 0x12, 0x34, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8];
    /// Ports 80 and 443, byte 1000, 5 words of header.
    const SEGMENT: [u8; 16] = [0, 80, 1, 187, 0, 0, 3, 232, 0, 0, 0, 0, 0x50, 0, 0, 0];

    #[test]
    fn an_echo_has_its_numbers_and_its_latency() {
        let packet = parse(ICMP, 0, ECHO);
        assert_eq!((packet.id, packet.seq), (Some(0x1234), Some(0xffff)));
        assert_eq!((packet.latency_ns, packet.device_ns), (Some(2_500), Some(700)));
        assert_eq!(packet.payload.as_deref(), Some("0102030405060708"));
        assert_eq!((packet.direction, packet.outcome), (Direction::Egress, PacketOutcome::Matched));
    }

    #[test]
    fn a_miss_has_no_latency() {
        for (reason, outcome) in
            [(1, PacketOutcome::Unread), (2, PacketOutcome::Changed), (6, PacketOutcome::Lost)]
        {
            let packet = parse(ICMP, reason << 4, ECHO);
            assert_eq!((packet.outcome, packet.latency_ns), (outcome, None));
            assert!(outcome.is_miss());
        }
    }

    #[test]
    fn a_later_fragment_is_not_taken_for_a_header() {
        let packet = parse(ICMP, LATER_FRAGMENT, ECHO);
        assert_eq!((packet.id, packet.seq, packet.payload), (None, None, None));
    }

    #[test]
    fn a_segment_that_was_not_the_next_is_sent_again() {
        let next = |number: u32, flags: u8| {
            let change = move |r: &mut [u8]| r[28..32].copy_from_slice(&number.to_ne_bytes());
            Packet::parse(&record(TCP, flags, SEGMENT, change)).unwrap().outcome
        };
        assert_eq!(next(1000, BY_NUMBER), PacketOutcome::Matched);
        assert_eq!(next(1000, BY_NUMBER | 5 << 4), PacketOutcome::Shared);
        assert_eq!(next(2448, BY_NUMBER), PacketOutcome::Kernel);
        assert_eq!(next(2448, BY_NUMBER | 5 << 4), PacketOutcome::Kernel);
        assert_eq!(next(0, INGRESS | SENT_AGAIN), PacketOutcome::Again, "the bit of the other way");
    }

    #[test]
    fn a_message_that_quotes_a_packet_has_its_beginning() {
        let exceeded = [11, 0, 1, 2, 0, 0, 0, 0, 8, 0, 1, 2, 0x12, 0x34, 0x80, 0xe8];
        let packet = parse(ICMP, INGRESS, exceeded);
        assert_eq!(packet.quoted.as_deref(), Some("08000102123480e8"));
        assert_eq!((packet.id, packet.seq, packet.payload), (None, None, None));
        assert_eq!(parse(ICMP, 0, ECHO).quoted, None);
    }

    #[test]
    fn an_acknowledgement_is_the_kernels() {
        let bare = |r: &mut [u8]| r[32..34].copy_from_slice(&40_u16.to_ne_bytes());
        let packet = Packet::parse(&record(TCP, INGRESS | 1 << 4, SEGMENT, bare)).unwrap();
        assert_eq!(packet.outcome, PacketOutcome::Kernel);
        assert_eq!((packet.source_port, packet.tcp_seq), (Some(80), Some(1000)));
    }

    #[test]
    fn a_segment_of_a_raw_socket_is_its_programs() {
        let bare = |r: &mut [u8]| r[32..34].copy_from_slice(&40_u16.to_ne_bytes());
        let hop = |r: &mut [u8]| r[28..32].copy_from_slice(&3_u32.to_ne_bytes());
        let both = |r: &mut [u8]| (bare(r), hop(r)).0;
        let of = |flags: u8| Packet::parse(&record(TCP, flags, SEGMENT, both)).unwrap();
        assert_eq!(of(BY_RAW).outcome, PacketOutcome::Matched);
        assert_eq!((of(BY_RAW).latency_ns, of(BY_RAW).ttl), (Some(2_500), Some(3)));
        assert_eq!(of(BY_NUMBER).ttl, None, "it is a sequence number there");
        assert_eq!(of(BY_RAW | INGRESS | SENT_AGAIN).outcome, PacketOutcome::Again);
    }

    #[test]
    fn what_is_too_short_is_no_record() {
        assert_eq!(Packet::parse(&[0; RECORD_LEN - 1]), None);
    }
}
