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

/// The packets that a tool exchanged.
pub(crate) struct Exchanges {
    key: MatchKey,
    tree: ProcessTree,
    /// Sent packets, by number.
    sent: HashMap<u32, SentPacket>,
    received: HashMap<u32, ReceivedPacket>,
    /// Answers without a number, by process and descriptor.
    answered: HashMap<(u64, u64), ReceivedPacket>,
}

impl Exchanges {
    /// Makes an empty set for process `tool` and its descendants; `key` says which field numbers the packets.
    pub fn new(key: MatchKey, tool: u32) -> Exchanges {
        let tree = ProcessTree { known: HashMap::from([(u64::from(tool), true)]) };
        let (sent, received, answered) = (HashMap::new(), HashMap::new(), HashMap::new());
        Exchanges { key, tree, sent, received, answered }
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
            let Some(key) = self.sent_as(packet) else { return };
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

    fn sent_as(&self, packet: &Value) -> Option<u32> {
        match self.key {
            MatchKey::Seq => packet["seq"].as_u64().map(|seq| seq as u32),
            MatchKey::DestinationPort => {
                packet["destination_port"].as_u64().map(|port| port as u32)
            }
            MatchKey::Payload => {
                u32::from_str_radix(packet["payload"].as_str()?.get(..8)?, 16).ok()
            }
        }
    }

    /// Returns the number of the packet that this one answers.
    fn answers(&self, packet: &Value) -> Option<u32> {
        let Some(quoted) = packet["quoted"].as_str() else {
            return self.sent_as(packet).filter(|_| self.key != MatchKey::DestinationPort);
        };
        // An ICMP echo request has its type where UDP and TCP have their source port.
        let echo = matches!(quoted.get(..4)?, "0800" | "8000");
        let digits = match self.key {
            MatchKey::Seq if echo => quoted.get(12..16)?,
            MatchKey::DestinationPort => quoted.get(4..8)?,
            _ => return None,
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
