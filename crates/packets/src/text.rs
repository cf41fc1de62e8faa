//! Packets and statistics as text: MACE's lines, JSON, Prometheus.

use std::fmt::Write as _;

use serde_json::{json, Value};

use crate::record::{Direction, Packet, Protocol};
use crate::source::Counters;
use crate::statistics::LatencyStatistics;
use crate::watch::Watched;

const NANOS_PER_SEC: u64 = 1_000_000_000;
const NANOS_PER_MICRO: u64 = 1_000;

/// Formats a packet as MACE's device does: `[sec.usec] (seq) egress|ingress: ns`.
///
/// The time is the wall clock's at the outer device: `wall_offset` ns ahead of the packet's own. `seq` is the sequence number of
/// ICMP echo, or that of a TCP segment's first byte, or the first four bytes of a UDP payload. For any other packet it is 0. If the
/// latency is not known, the outcome stands in its place: `lost`, `unread` ... . For a container with virtual time, the virtual
/// latency follows: `ns (virtual ns)`.
pub fn line(packet: &Packet, wall_offset: u64) -> String {
    let wall = packet.outer_ns.saturating_add(wall_offset);
    let (secs, micros) = (wall / NANOS_PER_SEC, wall % NANOS_PER_SEC / NANOS_PER_MICRO);
    let latency = match (packet.latency_ns, packet.virtual_ns) {
        (Some(real), Some(inside)) => format!("{real} (virtual {inside})"),
        (Some(real), None) => real.to_string(),
        (None, _) => packet.outcome.name().to_string(),
    };
    format!("[{secs}.{micros:06}] ({}) {}: {latency}", sequence(packet), packet.direction.name())
}

fn sequence(packet: &Packet) -> u32 {
    let carried = || u32::from_str_radix(packet.payload.as_deref()?.get(..8)?, 16).ok();
    packet.seq.or(packet.tcp_seq).or_else(carried).unwrap_or(0)
}

/// Formats a packet of the namespace called `name` as one line of JSON.
pub fn json_line(packet: &Packet, name: &str, wall_offset: u64) -> String {
    let mut value = serde_json::to_value(packet).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("namespace".into(), name.into());
        let wall = packet.outer_ns.saturating_add(wall_offset);
        object.insert("wall_ns".into(), wall.into());
    }
    value.to_string()
}

/// Returns the statistics of a namespace as JSON. With `histogram`, also the number of latencies up to 1, 2, 4 ... ns.
pub fn aggregate(watched: &Watched, counters: Counters, histogram: bool) -> Value {
    let rows = watched
        .statistics
        .seen()
        .into_iter()
        .map(|(protocol, direction)| row(&watched.statistics, protocol, direction, histogram));
    json!({
        "namespace": watched.namespace.name,
        "inode": watched.namespace.inode,
        "on": watched.on,
        "rows": rows.collect::<Vec<_>>(),
        "dropped": counters.dropped,
        "full": counters.full,
        "unclaimed": counters.unclaimed,
        "inside": counters.inside,
    })
}

fn row(
    statistics: &LatencyStatistics,
    protocol: Protocol,
    direction: Direction,
    histogram: bool,
) -> Value {
    let latencies = statistics.latencies(protocol, direction);
    let quantile = |share| latencies.and_then(|latencies| latencies.quantile(share));
    let outcomes = statistics.outcomes().filter(|o| (o.0, o.1) == (protocol, direction));
    let outcomes: serde_json::Map<String, Value> =
        outcomes.map(|(_, _, outcome, count)| (outcome.name().into(), count.into())).collect();
    let mut row = json!({
        "protocol": protocol,
        "direction": direction,
        "count": latencies.map_or(0, |latencies| latencies.count()),
        "median_ns": quantile(0.5),
        "p95_ns": quantile(0.95),
        "p99_ns": quantile(0.99),
        "misses": statistics.misses(protocol, direction),
        "outcomes": outcomes,
    });
    if let (true, Some(latencies), Some(row)) = (histogram, latencies, row.as_object_mut()) {
        let buckets = latencies.powers_of_two().into_iter();
        let buckets = buckets.map(|(up_to, count)| json!({ "up_to_ns": up_to, "count": count }));
        row.insert("histogram".into(), buckets.collect());
    }
    row
}

/// Formats the statistics of `all` for Prometheus: histograms whose buckets are powers of two ns, and counters.
pub fn prometheus(all: &[(&Watched, Counters)]) -> String {
    let mut text = String::from(
        "# HELP lorentz_latency_ns What the container's network stack added to a packet, in ns.\n\
         # TYPE lorentz_latency_ns histogram\n",
    );
    for (watched, _) in all {
        for (protocol, direction) in watched.statistics.seen() {
            histogram(&mut text, watched, protocol, direction);
        }
    }
    text += "# HELP lorentz_latency_packets_total Packets by what became of them.\n\
             # TYPE lorentz_latency_packets_total counter\n";
    for (watched, _) in all {
        for (protocol, direction, outcome, count) in watched.statistics.outcomes() {
            let labels = labels(watched, protocol, direction);
            let outcome = outcome.name();
            let _ = writeln!(
                text,
                "lorentz_latency_packets_total{{{labels},outcome=\"{outcome}\"}} {count}"
            );
        }
    }
    text += "# HELP lorentz_latency_kernel_total What the BPF programs counted themselves.\n\
             # TYPE lorentz_latency_kernel_total counter\n";
    for (watched, counters) in all {
        let name = escape(&watched.namespace.name);
        for (what, count) in [
            ("dropped", counters.dropped),
            ("full", counters.full),
            ("unclaimed", counters.unclaimed),
            ("inside", counters.inside),
        ] {
            let _ = writeln!(
                text,
                "lorentz_latency_kernel_total{{namespace=\"{name}\",what=\"{what}\"}} {count}"
            );
        }
    }
    text
}

fn histogram(text: &mut String, watched: &Watched, protocol: Protocol, direction: Direction) {
    let Some(latencies) = watched.statistics.latencies(protocol, direction) else { return };
    let labels = labels(watched, protocol, direction);
    for (up_to, count) in latencies.powers_of_two() {
        let _ = writeln!(text, "lorentz_latency_ns_bucket{{{labels},le=\"{up_to}\"}} {count}");
    }
    let count = latencies.count();
    let _ = writeln!(text, "lorentz_latency_ns_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "lorentz_latency_ns_sum{{{labels}}} {}", latencies.sum());
    let _ = writeln!(text, "lorentz_latency_ns_count{{{labels}}} {count}");
}

fn labels(watched: &Watched, protocol: Protocol, direction: Direction) -> String {
    let name = escape(&watched.namespace.name);
    let (protocol, direction) = (protocol.name(), direction.name());
    format!("namespace=\"{name}\",protocol=\"{protocol}\",direction=\"{direction}\"")
}

/// Escapes a label's value for the exposition format.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RECORD_LEN;

    fn echo(flags: u8) -> Packet {
        let mut record = [0; RECORD_LEN];
        record[0..8].copy_from_slice(&2_000_001_500_u64.to_ne_bytes());
        record[8..16].copy_from_slice(&2_000_000_000_u64.to_ne_bytes());
        (record[38], record[39]) = (1, flags);
        record[40..48].copy_from_slice(&[8, 0, 0, 0, 0, 1, 0, 42]);
        Packet::parse(&record).unwrap()
    }

    #[test]
    fn a_line_is_as_that_of_mace() {
        assert_eq!(line(&echo(0), 1_000_000_000), "[3.000001] (42) egress: 1500");
        assert_eq!(line(&echo(6 << 4), 0), "[2.000001] (42) egress: lost");
        let inside = Packet { virtual_ns: Some(150), ..echo(0) };
        assert_eq!(line(&inside, 0), "[2.000001] (42) egress: 1500 (virtual 150)");
    }

    #[test]
    fn json_holds_integers() {
        let value: Value = serde_json::from_str(&json_line(&echo(0), "web", 5)).unwrap();
        assert_eq!(value["latency_ns"], 1500);
        assert_eq!(value["wall_ns"], 2_000_001_505_u64);
        assert_eq!((&value["namespace"], &value["direction"]), (&"web".into(), &"egress".into()));
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
