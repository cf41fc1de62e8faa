//! Networks: their state by the emulators' sockets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use lorentz_clock::Span;
use lorentz_container::StateDir;
use lorentz_emulator::impair::Impairments;
use lorentz_network as network;
use lorentz_network::{graph, DirectionStatus, LinkStatus, NetworkRefusal, NetworkStatus};
use serde::Serialize;
use serde_json::Value;

use super::clocks::{self, virtual_at};
use super::containers::Containers;
use super::experiments::is_timeout;
use super::pace::{limit_wait, Growth, Pace};
use super::verdict::NetworkLoad;
use crate::types::{
    Clock, DirectionCounts, EmulatorLoad, Experiment, Lateness, LinkDirection, LinkImpairments,
    Nanos, Network, NetworkLink, NetworkNode, NetworkSwitch, Rounds, ScheduledChange, Verdict,
};

/// Lengths of outputs are read so often.
const OUTPUT_INTERVAL: Duration = Duration::from_secs(2);

/// All networks.
#[derive(Default)]
pub struct Networks {
    all: BTreeMap<String, Watched>,
}

#[derive(Default)]
struct Watched {
    connection: Option<network::Network>,
    status: Option<NetworkStatus>,
    /// The verdict that needs no figures: it has ended, or does not answer.
    verdict: Option<Verdict>,
    /// Lengths of the nodes' outputs, and when they were read.
    outputs: (Option<Instant>, Vec<u64>),
    pace: Pace,
    /// Bytes delivered, by direction.
    bytes: HashMap<(usize, usize), Growth>,
    rates: Vec<[Option<f64>; 2]>,
    emulator: Growth,
    emulator_share: Option<f64>,
    /// Changes of nodes' clocks to come, which the status does not list.
    clock_schedule: network::ClockSchedule,
    clock_changes: Vec<ScheduledChange>,
    /// The nodes' virtual time over the host's, and over the network's clock.
    nodes_pace: Growth,
    nodes_part: Option<f64>,
}

impl Networks {
    /// Looks at the networks in `state`.
    pub fn look(
        &mut self,
        state: &StateDir,
        thorough: bool,
        containers: &Containers,
        experiments: &[Experiment],
    ) -> Vec<Network> {
        let names = network::Network::list(state).unwrap_or_default();
        self.all.retain(|name, _| names.contains(name));
        let mut shown = Vec::new();
        for name in names {
            let watched = self.all.entry(name.clone()).or_default();
            if thorough || watched.pace.is_due() {
                let begin = Instant::now();
                watched.look(state, &name, containers.clock(&name));
                watched.pace.has_read(begin);
            }
            let experiment = experiments.iter().find(|one| one.name == name);
            shown.push(watched.show(&name, containers, experiment));
        }
        shown
    }
}

impl Watched {
    fn look(&mut self, state: &StateDir, name: &str, clock: Option<&Clock>) {
        self.verdict = None;
        if self.connection.is_none() {
            match network::Network::open(state, name) {
                Ok(connection) => {
                    limit_wait(&connection);
                    self.connection = Some(connection);
                }
                Err(error) => {
                    let ended = matches!(error.downcast_ref(), Some(NetworkRefusal::Dead(_)));
                    self.has_ended(ended);
                    return;
                }
            }
        }
        let Some(connection) = &mut self.connection else { return };
        match connection.status() {
            Ok(status) => {
                self.clock_changes = self.changes_of_clocks(state, name, &status);
                self.take(status, clock);
            }
            Err(error) => {
                self.connection = None;
                // Its client takes each failure of the socket for the emulator's end.
                let asks_again = network::Network::open(state, name).is_ok();
                match is_timeout(&error) || asks_again {
                    true => self.verdict = Some(Verdict::no_answer()),
                    false => self.has_ended(true),
                }
            }
        }
    }

    fn changes_of_clocks(
        &mut self,
        state: &StateDir,
        name: &str,
        status: &NetworkStatus,
    ) -> Vec<ScheduledChange> {
        if status.changes_to_come == status.schedule.len() {
            return Vec::new();
        }
        match self.clock_schedule.to_come(state, name, Span(status.virtual_ns)) {
            Ok(changes) => {
                let shown = changes.take(NetworkStatus::SCHEDULE);
                shown.map(|one| of_clocks(one.at.span(), one)).collect()
            }
            // The network has ended meanwhile.
            Err(_) => Vec::new(),
        }
    }

    fn has_ended(&mut self, is_known: bool) {
        self.status = None;
        let text = match is_known {
            true => {
                "its emulator has ended, and its links are down; 'lorentz down' clears the rest"
            }
            false => "it is being made, or cannot be reached",
        };
        self.verdict = Some(Verdict::ended(text));
    }

    fn take(&mut self, status: NetworkStatus, clock: Option<&Clock>) {
        let virt = status.virtual_ns as f64;
        self.rates = Vec::with_capacity(status.links.len());
        for (at, link) in status.links.iter().enumerate() {
            let rate = |side: usize| {
                let bytes = link.directions[side].counts.delivered_bytes as f64;
                self.bytes.entry((at, side)).or_default().add(virt, bytes)
            };
            self.rates.push([0, 1].map(rate));
        }
        let real = clocks::now().real_ns.0;
        self.emulator_share =
            cpu_time(status.pid).and_then(|used| self.emulator.add(real as f64, used)).map(percent);
        if self.outputs.0.is_none_or(|then| then.elapsed() >= OUTPUT_INTERVAL) {
            let length = |path: &String| std::fs::metadata(path).map_or(0, |file| file.len());
            let lengths = status.nodes.iter().map(|node| length(&node.output)).collect();
            self.outputs = (Some(Instant::now()), lengths);
        }
        // By the network's clock: pauses of it are no overload.
        let shown = clock.map(|clock| virtual_at(clock, real) as f64);
        self.nodes_part = shown.and_then(|shown| self.nodes_pace.add(shown, virt));
        self.status = Some(status);
    }

    fn show(
        &self,
        name: &str,
        containers: &Containers,
        experiment: Option<&Experiment>,
    ) -> Network {
        let Some(status) = &self.status else { return self.show_ended(name) };
        let clock = containers.clock(name);
        let now = clocks::now().real_ns.0;
        let network_now = clock.map(|clock| virtual_at(clock, now));
        let nodes = status.nodes.iter().enumerate().map(|(at, node)| {
            let own = containers.clock(&node.container);
            let member = experiment
                .and_then(|all| all.containers.iter().find(|one| one.name == node.container));
            let lag = network_now.zip(own).map(|(now_here, own)| now_here - virtual_at(own, now));
            NetworkNode {
                name: node.name.clone(),
                container: node.container.clone(),
                output_bytes: self.outputs.1.get(at).copied().unwrap_or(0),
                position: status.positions.get(&node.name).copied(),
                clock: own.cloned().filter(|_| containers.runs(&node.container)),
                tdf: member.map(|one| one.tdf),
                lag_ns: lag.filter(|_| status.rounds.is_some()),
                cpu_share: member.and_then(|one| one.cpu_share),
            }
        });
        let nodes = nodes.collect();
        let switches = status.switches.iter().map(|(name, kind)| NetworkSwitch {
            name: name.clone(),
            kind: kind.clone(),
            position: status.positions.get(name).copied(),
        });
        let links = status.links.iter().enumerate();
        let links = links.map(|(at, link)| show_link(link, self.rates.get(at))).collect();
        let lateness = &status.lateness;
        Network {
            name: name.to_string(),
            clock: clock.cloned(),
            rounds: status.rounds.as_ref().map(|rounds| Rounds {
                count: rounds.count,
                behind_ns: rounds.behind_ns,
                ended: rounds.ended.clone(),
            }),
            started_ns: Some(Nanos(status.started_ns)),
            virtual_ns: Nanos(status.virtual_ns),
            nodes,
            switches: switches.collect(),
            links,
            lateness: Lateness {
                count: lateness.count,
                median_ns: lateness.median_ns,
                p99_ns: lateness.p99_ns,
                max_ns: lateness.max_ns,
            },
            emulator: Some(EmulatorLoad { pid: status.pid, cpu_share: self.emulator_share }),
            verdict: self.verdict(status, clock),
            changes_to_come: status.changes_to_come as u64,
            schedule: self.schedule(status),
        }
    }

    /// The changes to come, the earliest first.
    fn schedule(&self, status: &NetworkStatus) -> Vec<ScheduledChange> {
        let links = status.schedule.iter().map(scheduled);
        let mut all: Vec<ScheduledChange> =
            links.chain(self.clock_changes.iter().cloned()).collect();
        all.sort_by_key(|change| change.at_ns.0);
        all
    }

    fn verdict(&self, status: &NetworkStatus, clock: Option<&Clock>) -> Verdict {
        if let Some(known) = &self.verdict {
            return known.clone();
        }
        if let Some(why) = status.rounds.as_ref().and_then(|rounds| rounds.ended.as_ref()) {
            return Verdict::ended(&format!("there are no more rounds: {why}"));
        }
        let delays = status.links.iter().flat_map(|link| &link.directions);
        let delays = delays.map(|way| way.impairments.delay.map(|delay| delay.span().0));
        let shortest = delays.min().flatten().filter(|delay| *delay > 0);
        let tdf = clock.map_or(1.0, |clock| clock.rate[1] as f64 / clock.rate[0].max(1) as f64);
        Verdict::of_network(&NetworkLoad {
            is_frozen: clock.map_or(status.frozen, |clock| clock.frozen),
            frames: status.lateness.count,
            late_ns: status.lateness.p99_ns,
            shortest_delay_ns: shortest,
            tdf,
            rounds: status.rounds.as_ref().map(|rounds| (rounds.behind_ns, self.nodes_part)),
        })
    }

    fn show_ended(&self, name: &str) -> Network {
        let nothing = || Verdict::ended("it is being made, or cannot be reached");
        Network {
            name: name.to_string(),
            clock: None,
            rounds: None,
            started_ns: None,
            virtual_ns: Nanos(0),
            nodes: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            lateness: Lateness::default(),
            emulator: None,
            verdict: self.verdict.clone().unwrap_or_else(nothing),
            changes_to_come: 0,
            schedule: Vec::new(),
        }
    }
}

fn show_link(link: &LinkStatus, rates: Option<&[Option<f64>; 2]>) -> NetworkLink {
    let [first, second] = &link.directions;
    let rates = rates.copied().unwrap_or_default();
    NetworkLink {
        id: format!("{} - {}", first.from, second.from),
        up: link.up,
        mtu: link.mtu,
        directions: [show_direction(first, rates[0]), show_direction(second, rates[1])],
    }
}

/// `rate` is in bytes per virtual nanosecond.
fn show_direction(way: &DirectionStatus, rate: Option<f64>) -> LinkDirection {
    let bits_per_second = rate.map(|rate| rate * 8e9);
    let limit = way.impairments.rate.and_then(|rate| rate.limit());
    let counts = &way.counts;
    LinkDirection {
        from: way.from.to_string(),
        to: way.to.to_string(),
        impairments: show_impairments(&way.impairments),
        counts: DirectionCounts {
            sent: counts.sent,
            delivered: counts.delivered,
            lost: counts.lost,
            dropped: counts.dropped + counts.cut,
            bytes: counts.delivered_bytes,
        },
        utilisation: bits_per_second
            .zip(limit)
            .map(|(bits, limit)| percent((bits / limit as f64).clamp(0.0, 1.0))),
        bits_per_second: bits_per_second.map(f64::round),
        queued: way.queued as u64,
        in_flight: way.in_flight,
    }
}

/// Returns the impairments as people write them. Loss in bursts has no such form: it is told by its mean.
fn show_impairments(all: &Impairments) -> LinkImpairments {
    let loss = all.loss.map(|_| all.loss());
    LinkImpairments {
        rate: all.rate.map(|rate| rate.to_string()),
        delay: all.delay.map(|delay| delay.to_string()),
        jitter: all.jitter.map(|_| all.jitter().spread.to_string()),
        loss: loss.map(|loss| match loss.enter.billionths() {
            0 => loss.in_good.to_string(),
            _ => "in bursts".to_string(),
        }),
        duplicate: all.duplicate.map(|share| share.to_string()),
        reorder: all.reorder.map(|share| share.to_string()),
        corrupt: all.corrupt.map(|share| share.to_string()),
        queue_packets: all.queue.and_then(|queue| queue.packets).map(|count| count.to_string()),
        queue_bytes: all.queue.and_then(|queue| queue.bytes).map(|bytes| bytes.to_string()),
    }
}

fn scheduled(change: &network::ScheduledChange) -> ScheduledChange {
    let mut does = Vec::new();
    match change.up {
        Some(true) => does.push("up".to_string()),
        Some(false) => does.push("down".to_string()),
        None => {}
    }
    let impairments = graph::describe(&change.set);
    if !impairments.is_empty() {
        does.push(impairments);
    }
    let ways = if change.both { ", both ways" } else { "" };
    ScheduledChange {
        at_ns: Nanos(change.at_ns),
        what: format!("{}{ways}: {}", change.end, does.join(", ")),
        change: change.as_in_a_file().to_string(),
    }
}

/// A change of clocks. `change` is one of a topology file: `{at: 10s, clock: a, bump: +90s}`.
fn of_clocks(at: Span, change: &(impl Serialize + fmt::Display)) -> ScheduledChange {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let fields = serde_json::to_value(change).unwrap_or_default();
    let fields = fields.as_object().cloned().unwrap_or_default();
    let names = match fields.get("clock") {
        Some(Value::Array(names)) => names.iter().map(text).collect::<Vec<_>>().join(", "),
        name => name.map(text).unwrap_or_default(),
    };
    let does = fields.iter().filter(|(key, _)| !["at", "clock"].contains(&key.as_str()));
    let does = does.map(|(key, value)| match value {
        Value::Bool(true) => key.clone(),
        value => format!("{key} {}", text(value)),
    });
    let what = format!("clock of {names}: {}", does.collect::<Vec<_>>().join(", "));
    ScheduledChange { at_ns: Nanos(at.0), what, change: change.to_string() }
}

/// Rounds to whole hundredths: a smaller change is none to tell.
fn percent(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

/// Returns the CPU time of a process, ns.
fn cpu_time(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    // Of its first thread; the emulator has no other.
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_clocks_in_words() {
        let what = |text: &str| {
            let change = network::parse_change(text).unwrap();
            of_clocks(change.at.span(), &change).what
        };
        assert_eq!(
            what("{at: 1s, clock: a, bump: -90s, slew: 10s}"),
            "clock of a: bump -90s, slew 10s"
        );
        assert_eq!(what("{at: 1s, clock: [a, b], reset: true}"), "clock of a, b: reset");
    }
}
