//! Latencies on the terminal.

use lorentz_packets::{Counters, Direction, PacketOutcome, Protocol, Watched};

use crate::print::{row, table};

/// All that is known of some namespaces, for people; with how many needed up to 1, 2, 4 ... ns where `histogram` is asked for.
pub fn namespaces(all: &[(&Watched, Counters)], histogram: bool) -> String {
    let mut text = String::new();
    for (watched, counters) in all {
        let state = if watched.on { "" } else { " (off)" };
        text += &format!("{}{state}\n", watched.namespace.name);
        text += &latencies(watched);
        text += &kernel(*counters);
        if histogram {
            text += &histograms(watched);
        }
    }
    text
}

fn latencies(watched: &Watched) -> String {
    let head = ["", "protocol", "", "packets", "median", "p95", "p99", "missed", "not counted"];
    let mut rows = vec![row(head)];
    for (protocol, direction) in watched.statistics.seen() {
        let latencies = watched.statistics.latencies(protocol, direction);
        let quantile = |share| latencies.and_then(|latencies| latencies.quantile(share));
        let time = |share| quantile(share).map_or("-".into(), micros);
        rows.push(row([
            "",
            protocol.name(),
            direction.name(),
            &latencies.map_or(0, |latencies| latencies.count()).to_string(),
            &time(0.5),
            &time(0.95),
            &time(0.99),
            &watched.statistics.misses(protocol, direction).to_string(),
            &others(watched, protocol, direction),
        ]));
    }
    if rows.len() == 1 {
        return "  no packets yet\n".into();
    }
    let mut text = table(&rows);
    if let Some(rows) = virtual_rows(watched) {
        text += "  in the container's own time:\n";
        text += &table(&rows);
    }
    text
}

/// Medians as the container's virtual clock would measure them now, where it has one.
fn virtual_rows(watched: &Watched) -> Option<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for (protocol, direction) in watched.statistics.seen() {
        let latencies = watched.statistics.latencies(protocol, direction);
        let time = |share| -> Option<String> {
            Some(micros(watched.in_virtual_time(latencies?.quantile(share)?)?))
        };
        let (median, p95, p99) = (time(0.5)?, time(0.95)?, time(0.99)?);
        rows.push(row(["", protocol.name(), direction.name(), &median, &p95, &p99]));
    }
    (!rows.is_empty()).then_some(rows)
}

/// Misses by their reasons, and packets that are nobody's alone.
fn others(watched: &Watched, protocol: Protocol, direction: Direction) -> String {
    let of = watched.statistics.outcomes().filter(|o| (o.0, o.1) == (protocol, direction));
    let misses = of.filter(|(_, _, outcome, _)| *outcome != PacketOutcome::Matched);
    let shown: Vec<String> =
        misses.map(|(_, _, outcome, count)| format!("{} {count}", outcome.name())).collect();
    shown.join(", ")
}

fn kernel(counters: Counters) -> String {
    let all = [
        ("dropped for lack of room in the ring", counters.dropped),
        ("not followed for lack of room in a table", counters.full),
        ("left outside any send call", counters.unclaimed),
        ("came from inside the host", counters.inside),
    ];
    let counted = all.iter().filter(|(_, count)| *count > 0);
    counted.map(|(what, count)| format!("  {count} {what}\n")).collect()
}

fn histograms(watched: &Watched) -> String {
    const WIDTH: u64 = 40;
    let mut text = String::new();
    for (protocol, direction) in watched.statistics.seen() {
        let Some(latencies) = watched.statistics.latencies(protocol, direction) else { continue };
        text += &format!("  {} {}\n", protocol.name(), direction.name());
        let mut below = 0;
        let mut rows = Vec::new();
        for (up_to, count) in latencies.powers_of_two() {
            let here = count - below;
            below = count;
            if count > 0 {
                let bar = "#".repeat((here * WIDTH).div_ceil(latencies.count().max(1)) as usize);
                rows.push(row(["", "up to", &micros(up_to), &here.to_string(), &bar]));
            }
        }
        text += &table(&rows);
    }
    text
}

/// `12.345 us`.
fn micros(nanos: u64) -> String {
    format!("{}.{:03} us", nanos / 1_000, nanos % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_the_nanosecond() {
        assert_eq!(micros(12_045), "12.045 us");
        assert_eq!(micros(7), "0.007 us");
    }
}
