//! Exchanges of a tool: the packet it sent under a number, and the packet that answered.

use std::collections::HashMap;

use serde_json::Value;

use crate::rule::{MatchKey, Measured, Until};

/// Time, ns, within which the same number from two senders is ambiguous.
const AMBIGUITY_WINDOW: u64 = 10_000_000_000;
/// Number of ancestors that we check to see whether a process belongs to the tool.
const MAX_GENERATIONS: usize = 16;

/// A packet that the tool sent.
struct SentPacket {
    pid: u64,
    fd: u64,
    /// The sender: its process. In-band measurement does not know the process; there, the identifier of the ICMP echo or the source
    /// port.
    sender: (u64, u64),
    at: u64,
    latency: f64,
    /// Another sender used the same number at about the same time: the answer may belong to either.
    ambiguous: bool,
}

/// A received packet, with two latencies in ns: until its reader had it, and until it had reached the container's device.
#[derive(Clone, Copy)]
struct ReceivedPacket {
    call: f64,
    device: f64,
    in_band: bool,
}

/// Returns the number of the packet that is at `place`, from 0, among those with a time to live.
pub(crate) fn number_at(ttl: u8, place: usize) -> Option<u32> {
    Some(u32::from(ttl) << 8 | u32::from(u8::try_from(place).ok()?))
}

/// The packets that a tool exchanged.
pub(crate) struct Exchanges {
    key: MatchKey,
    tree: ProcessTree,
    /// Sent packets, by number.
    sent: HashMap<u32, SentPacket>,
    received: HashMap<u32, ReceivedPacket>,
    /// Amounts of packets sent, by their time to live.
    of_ttl: HashMap<u8, usize>,
    /// Numbers of packets sent, by the sender's port.
    ports: HashMap<u64, u32>,
    /// Answers without a number, by process and descriptor.
    answered: HashMap<(u64, u64), ReceivedPacket>,
}

impl Exchanges {
    /// Makes an empty set for process `tool` and its descendants; `key` says which field numbers the packets.
    pub fn new(key: MatchKey, tool: u32) -> Exchanges {
        let tree = ProcessTree { known: HashMap::from([(u64::from(tool), true)]) };
        Exchanges {
            key,
            tree,
            sent: HashMap::new(),
            received: HashMap::new(),
            of_ttl: HashMap::new(),
            ports: HashMap::new(),
            answered: HashMap::new(),
        }
    }

    /// Adds a packet, in the JSON form of the container's socket.
    pub fn note(&mut self, packet: &Value) {
        let number = |name: &str| packet[name].as_u64();
        let (Some(pid), Some(latency), Some(fd)) =
            (number("inner_pid"), number("latency_ns"), number("fd"))
        else {
            return;
        };
        // In-band measurement does not know the process.
        if pid != 0 && !self.tree.has(pid) {
            return;
        }
        let latency = latency as f64;
        if packet["direction"] == "egress" {
            let Some(key) = self.number_of_sent(packet) else { return };
            let at = number("outer_ns").unwrap_or(0);
            let mark = number("id").or_else(|| number("source_port")).filter(|_| pid == 0);
            let sender = (pid, mark.unwrap_or(0));
            let before = self.sent.get(&key);
            let ambiguous = before.is_some_and(|one| {
                at.abs_diff(one.at) < AMBIGUITY_WINDOW && (one.ambiguous || one.sender != sender)
            });
            self.sent.insert(key, SentPacket { pid, fd, sender, at, latency, ambiguous });
            self.received.remove(&key);
            self.answered.remove(&(pid, fd));
            return;
        }
        // If container and host share a device, the tool's own timestamp is that of the outer device.
        let device = number("device_ns").unwrap_or(0) as f64;
        let received = ReceivedPacket { call: latency, device, in_band: pid == 0 };
        match self.answers(packet) {
            Some(key) => drop(self.received.insert(key, received)),
            // The tool read it from a socket of its own: the first packet there is the answer.
            None if pid != 0 => drop(self.answered.entry((pid, fd)).or_insert(received)),
            None => (),
        }
    }

    /// Returns the number of a packet that the tool has just sent.
    fn number_of_sent(&mut self, packet: &Value) -> Option<u32> {
        if self.key != MatchKey::Ttl {
            return self.printed_number(packet);
        }
        let (ttl, port) = (packet["ttl"].as_u64()? as u8, packet["source_port"].as_u64()?);
        let place = self.of_ttl.entry(ttl).or_default();
        let number = number_at(ttl, *place)?;
        *place += 1;
        // An answer to a port that was used twice may belong to either.
        if self.ports.insert(port, number).is_some() {
            self.ports.remove(&port);
        }
        Some(number)
    }

    fn printed_number(&self, packet: &Value) -> Option<u32> {
        match self.key {
            MatchKey::Seq => packet["seq"].as_u64().map(|seq| seq as u32),
            MatchKey::DestinationPort => {
                packet["destination_port"].as_u64().map(|port| port as u32)
            }
            MatchKey::Payload => {
                u32::from_str_radix(packet["payload"].as_str()?.get(..8)?, 16).ok()
            }
            MatchKey::Ttl => None,
        }
    }

    /// Returns the number of the time at `place` of a line with `times` times, which is about the packets with a time to live. None
    /// if not all of these packets are known: their order is not known then.
    pub fn number_of_hop(&self, ttl: u8, place: usize, times: usize) -> Option<u32> {
        (self.of_ttl.get(&ttl) == Some(&times)).then(|| number_at(ttl, place))?
    }

    /// Returns the number of the packet that this one answers.
    fn answers(&self, packet: &Value) -> Option<u32> {
        let Some(quoted) = packet["quoted"].as_str() else {
            return match self.key {
                MatchKey::DestinationPort => None,
                MatchKey::Ttl => self.ports.get(&packet["destination_port"].as_u64()?).copied(),
                MatchKey::Seq | MatchKey::Payload => self.printed_number(packet),
            };
        };
        // An ICMP echo request has its type where UDP and TCP have their source port.
        let echo = matches!(quoted.get(..4)?, "0800" | "8000");
        let digits = match self.key {
            MatchKey::Seq if echo => quoted.get(12..16)?,
            MatchKey::DestinationPort => quoted.get(4..8)?,
            MatchKey::Ttl => {
                let port = u64::from_str_radix(quoted.get(..4)?, 16).ok()?;
                return self.ports.get(&port).copied();
            }
            MatchKey::Seq | MatchKey::Payload => return None,
        };
        u32::from_str_radix(digits, 16).ok()
    }

    /// Returns the latency that the stack added to the part of the exchange with this number that the tool has `measured`, ns; none if
    /// it is not known.
    pub fn added(&self, number: u32, until: Until, measured: Measured) -> Option<f64> {
        // Sequence numbers of ICMP have 16 bits. The tool may print more.
        let number = if self.key == MatchKey::Seq { number & 0xffff } else { number };
        let sent = self.sent.get(&number).filter(|sent| !sent.ambiguous);
        let by_socket = |sent: &SentPacket| self.answered.get(&(sent.pid, sent.fd));
        let back = || {
            let received = match self.key {
                MatchKey::DestinationPort => {
                    self.received.get(&number).or_else(|| sent.and_then(by_socket))
                }
                _ => self.received.get(&number),
            }?;
            Some(match until {
                Until::Call => received.call,
                // In-band, SO_TIMESTAMP is the time of reception on the outer device.
                Until::Device if received.in_band => 0.0,
                Until::Device => received.device,
            })
        };
        match measured {
            Measured::RoundTrip => Some(sent?.latency + back()?),
            Measured::Sent => Some(sent?.latency),
            Measured::Received => back(),
        }
    }
}

/// A process and its descendants.
struct ProcessTree {
    known: HashMap<u64, bool>,
}

impl ProcessTree {
    fn has(&mut self, pid: u64) -> bool {
        let mut line = Vec::new();
        let mut at = Some(pid);
        let mut belongs = false;
        while let Some(one) = at.filter(|_| line.len() < MAX_GENERATIONS) {
            if let Some(&known) = self.known.get(&one) {
                belongs = known;
                break;
            }
            line.push(one);
            at = parent(one);
        }
        self.known.extend(line.into_iter().map(|one| (one, belongs)));
        belongs
    }
}

fn parent(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the program's name, which may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|&parent| parent > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn out(pid: u64, seq: u64, id: u64) -> Value {
        json!({"direction": "egress", "inner_pid": pid, "fd": 3, "latency_ns": 1000, "seq": seq,
            "id": id, "outer_ns": 5_000_000_000_u64})
    }

    fn back(pid: u64, seq: u64) -> Value {
        json!({"direction": "ingress", "inner_pid": pid, "fd": 3, "latency_ns": 500,
            "device_ns": 200, "seq": seq})
    }

    #[test]
    fn both_ways_are_added() {
        let mut all = Exchanges::new(MatchKey::Seq, 77);
        all.note(&out(77, 1, 9));
        assert_eq!(all.added(1, Until::Call, Measured::RoundTrip), None);
        all.note(&back(77, 1));
        assert_eq!(all.added(1, Until::Call, Measured::RoundTrip), Some(1500.0));
        assert_eq!(all.added(65537, Until::Device, Measured::RoundTrip), Some(1200.0));
        all.note(&out(77, 1, 9));
        assert_eq!(
            all.added(1, Until::Call, Measured::RoundTrip),
            None,
            "sent once more, and not answered yet"
        );
    }

    #[test]
    fn one_way_needs_its_own_latency_alone() {
        let mut all = Exchanges::new(MatchKey::Seq, 77);
        all.note(&out(77, 1, 9));
        assert_eq!(all.added(1, Until::Call, Measured::Sent), Some(1000.0));
        assert_eq!(all.added(1, Until::Call, Measured::Received), None);
        // A packet that the tool receives and has not asked for.
        all.note(&back(77, 2));
        assert_eq!(all.added(2, Until::Call, Measured::Received), Some(500.0));
        assert_eq!(all.added(2, Until::Device, Measured::Received), Some(200.0));
        assert_eq!(all.added(2, Until::Call, Measured::Sent), None);
    }

    #[test]
    fn another_process_is_not_the_tool() {
        let own = std::process::id();
        let mut all = Exchanges::new(MatchKey::Seq, own);
        all.note(&out(1, 1, 9));
        all.note(&back(1, 1));
        assert_eq!(all.added(1, Until::Call, Measured::RoundTrip), None);
        let mut all = Exchanges::new(MatchKey::Seq, std::os::unix::process::parent_id());
        all.note(&out(own.into(), 1, 9));
        all.note(&back(own.into(), 1));
        assert_eq!(
            all.added(1, Until::Call, Measured::RoundTrip),
            Some(1500.0),
            "a child of the tool"
        );
    }

    #[test]
    fn a_message_of_icmp_answers_what_it_quotes() {
        let quoting = |bytes: &str| {
            json!({"direction": "ingress", "inner_pid": 77, "fd": 4, "latency_ns": 500,
                "quoted": bytes})
        };
        let mut all = Exchanges::new(MatchKey::Seq, 77);
        all.note(&out(77, 0x80e8, 9));
        all.note(&quoting("1234829a00000000"));
        assert_eq!(all.added(0x80e8, Until::Call, Measured::RoundTrip), None, "of UDP");
        all.note(&quoting("08000102123480e8"));
        assert_eq!(all.added(0x80e8, Until::Call, Measured::RoundTrip), Some(1500.0));
        let mut all = Exchanges::new(MatchKey::DestinationPort, 77);
        all.note(&json!({"direction": "egress", "inner_pid": 77, "fd": 3, "latency_ns": 1000,
            "destination_port": 33434}));
        all.note(&quoting("1234829a00000000"));
        assert_eq!(all.added(33434, Until::Call, Measured::RoundTrip), Some(1500.0));
    }

    #[test]
    fn packets_of_a_hop_are_numbered_in_their_order() {
        let sent = |ttl: u8, port: u16| {
            json!({"direction": "egress", "protocol": "tcp", "inner_pid": 77, "fd": 3, "ttl": ttl,
                "latency_ns": 1000, "source_port": port, "destination_port": 80})
        };
        let mut all = Exchanges::new(MatchKey::Ttl, 77);
        all.note(&sent(2, 0xd5fb));
        all.note(&sent(2, 0xbd1d));
        all.note(&sent(3, 0x1111));
        all.note(&json!({"direction": "ingress", "protocol": "icmp", "inner_pid": 77, "fd": 4,
            "latency_ns": 500, "quoted": "bd1d0050e458b4bf"}));
        all.note(&json!({"direction": "ingress", "protocol": "tcp", "inner_pid": 77, "fd": 3,
            "latency_ns": 300, "source_port": 80, "destination_port": 0xd5fb}));
        let added = |place, times| {
            let number = all.number_of_hop(2, place, times)?;
            all.added(number, Until::Call, Measured::RoundTrip)
        };
        assert_eq!((added(0, 2), added(1, 2)), (Some(1300.0), Some(1500.0)));
        assert_eq!(added(0, 3), None, "one of three is not known: it may be the first");
        assert_eq!(all.number_of_hop(1, 0, 3), None);
    }

    #[test]
    fn in_band_the_same_number_from_two_is_left_alone() {
        let mut all = Exchanges::new(MatchKey::Seq, 77);
        all.note(&out(0, 1, 9));
        all.note(&back(0, 1));
        assert_eq!(
            all.added(1, Until::Device, Measured::RoundTrip),
            Some(1000.0),
            "its stamp is the outer device's"
        );
        assert_eq!(all.added(1, Until::Call, Measured::RoundTrip), Some(1500.0));
        all.note(&out(0, 1, 10));
        all.note(&back(0, 1));
        assert_eq!(all.added(1, Until::Call, Measured::RoundTrip), None);
    }
}
