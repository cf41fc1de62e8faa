//! The link emulator: computes when and where frames arrive, in virtual time and nothing else.
//!
//! The emulator makes no system call and reads no clock. Its owner tells it the time, hands it frames, and takes them where they
//! arrive. One calendar holds all future events, ordered by virtual instants. Each event is computed at its own instant, however
//! late the owner advances the emulator, so that lateness never adds up.

mod ecn;
pub mod impair;
#[cfg(test)]
mod loop_tests;
mod medium;
mod pipe;
pub mod position;
mod queue;
mod rng;
mod spanning_tree;
mod switch;
#[cfg(test)]
mod tests;
pub mod units;
#[cfg(test)]
mod wlan_tests;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use lorentz_clock::{Span, VirtualInstant};

pub use pipe::{Counts, Pipe};
pub use queue::Frame;
pub use rng::LinkRng;
pub use switch::SwitchKind;

use medium::Medium;
use pipe::Arrival;
use spanning_tree::{Bridge, Sent, FORWARD_DELAY, TICK};
use switch::{Forwarding, Switch};

use crate::impair::Impairments;
use crate::position::Point;

/// Least delay where there are no links.
const LEAST_DELAY_WITHOUT_LINKS: Span = Span(10_000_000);

/// An interface of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StationId(pub usize);

/// A switch or a hub.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchId(pub usize);

/// A link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LinkId(pub usize);

/// One direction of a link: from its first end, or from its second.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Side {
    /// From the first end to the second.
    First,
    /// From the second end to the first.
    Second,
}

impl Side {
    /// Both directions.
    pub const BOTH: [Side; 2] = [Side::First, Side::Second];

    /// The other direction.
    pub fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// The object at an end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// An interface of a node; each takes one link.
    Station(StationId),
    /// A switch or a hub; each takes any number of links.
    Switch(SwitchId),
}

/// The object at an end of a link, as the emulator keeps it.
#[derive(Clone, Copy, Debug)]
enum LinkEnd {
    Station(StationId),
    Switch(SwitchId, usize),
}

/// A link: a pipe in each direction.
#[derive(Debug)]
struct Link {
    ends: [LinkEnd; 2],
    pipes: [Pipe; 2],
    /// Number of cuts. Frames that were on their way before a cut do not arrive.
    cuts: u32,
    /// Whether it was removed. Its number is not used again.
    is_gone: bool,
}

#[derive(Debug)]
struct SwitchAndPorts {
    switch: Switch,
    bridge: Option<Bridge>,
    /// Of a wlan: which of its ports hear each other.
    medium: Option<Medium>,
    ports: Vec<(LinkId, Side)>,
}

#[derive(Debug)]
enum EventKind {
    /// The frame on the wire has been sent.
    Sent(Way),
    /// A frame arrives at the other end.
    Arrives(Way, Frame),
    /// A switch looks at the timers of its spanning tree.
    Tick(SwitchId),
}

/// One direction of a link, as long as nothing cuts it.
#[derive(Clone, Copy, Debug)]
struct Way {
    link: LinkId,
    side: Side,
    cuts: u32,
}

#[derive(Debug)]
struct Event {
    due: VirtualInstant,
    number: u64,
    kind: EventKind,
}

// BinaryHeap gives the greatest first. With this order, that is the event due first; of several due together, the one scheduled
// first.
impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

/// Links, switches, and the frames on their way.
#[derive(Debug)]
pub struct Emulator {
    seed: u64,
    links: Vec<Link>,
    switches: Vec<SwitchAndPorts>,
    stations: Vec<Option<(LinkId, Side)>>,
    calendar: BinaryHeap<Event>,
    scheduled: u64,
    arrivals: Vec<Arrival>,
}

impl Emulator {
    /// Makes an emulator without links. The same `seed` and the same frames at the same instants give the same result.
    pub fn new(seed: u64) -> Emulator {
        Emulator {
            seed,
            links: Vec::new(),
            switches: Vec::new(),
            stations: Vec::new(),
            calendar: BinaryHeap::new(),
            scheduled: 0,
            arrivals: Vec::new(),
        }
    }

    /// Adds an interface.
    pub fn add_station(&mut self) -> StationId {
        self.stations.push(None);
        StationId(self.stations.len() - 1)
    }

    /// Adds a switch, a hub or a wlan.
    pub fn add_switch(&mut self, kind: SwitchKind) -> SwitchId {
        let learns = matches!(kind, SwitchKind::Learning | SwitchKind::SpanningTree);
        let switch = if learns { Switch::learning() } else { Switch::hub() };
        let number = self.switches.len();
        let bridge = (kind == SwitchKind::SpanningTree).then(|| Bridge::new(number));
        let medium = match kind {
            SwitchKind::Wlan { range } => Some(Medium::new(range)),
            _ => None,
        };
        self.switches.push(SwitchAndPorts { switch, bridge, medium, ports: Vec::new() });
        SwitchId(number)
    }

    /// Joins two objects by a link, with `impairments` from the first end and from the second.
    pub fn connect(
        &mut self,
        attachments: [Attachment; 2],
        impairments: [&Impairments; 2],
    ) -> LinkId {
        let id = LinkId(self.links.len());
        let ends = [0, 1].map(|at| {
            let cost = path_cost(impairments[at]);
            self.attach(attachments[at], (id, Side::BOTH[at]), cost)
        });
        let stream = |at: u64| LinkRng::new(self.seed, id.0 as u64 * 2 + at);
        let pipes = [Pipe::new(impairments[0], stream(0)), Pipe::new(impairments[1], stream(1))];
        self.links.push(Link { ends, pipes, cuts: 0, is_gone: false });
        id
    }

    /// Joins two objects at `now`, while frames are on their way elsewhere. A spanning tree takes the link as one that comes up. Call
    /// [`Emulator::advance`] to this instant first.
    pub fn connect_at(
        &mut self,
        attachments: [Attachment; 2],
        impairments: [&Impairments; 2],
        now: VirtualInstant,
    ) -> LinkId {
        let link = self.connect(attachments, impairments);
        self.set_up(link, false, now);
        self.set_up(link, true, now);
        link
    }

    /// Removes a link at `now`, with the frames on their way. Its number stays its own. Call [`Emulator::advance`] to this instant
    /// first.
    pub fn disconnect(&mut self, link: LinkId, now: VirtualInstant) {
        self.set_up(link, false, now);
        self.links[link.0].is_gone = true;
        for end in self.links[link.0].ends {
            if let LinkEnd::Station(station) = end {
                self.stations[station.0] = None;
            }
        }
    }

    /// Starts the spanning tree of a switch that was added at `now`, after [`Emulator::start`].
    pub fn start_switch(&mut self, switch: SwitchId, now: VirtualInstant) {
        if self.switches[switch.0].bridge.is_some() {
            self.schedule(now, EventKind::Tick(switch));
        }
    }

    fn attach(
        &mut self,
        attachment: Attachment,
        attached_to: (LinkId, Side),
        cost: u32,
    ) -> LinkEnd {
        match attachment {
            Attachment::Station(station) => {
                debug_assert!(self.stations[station.0].is_none(), "one link for each interface");
                self.stations[station.0] = Some(attached_to);
                LinkEnd::Station(station)
            }
            Attachment::Switch(switch) => {
                let here = &mut self.switches[switch.0];
                here.ports.push(attached_to);
                if let Some(medium) = &mut here.medium {
                    medium.add_port();
                }
                if let Some(bridge) = &mut here.bridge {
                    bridge.add_port(cost);
                }
                LinkEnd::Switch(switch, here.ports.len() - 1)
            }
        }
    }

    /// Moves an interface that is linked to a wlan; without effect for others. Call [`Emulator::advance`] to this instant first.
    pub fn set_position(&mut self, station: StationId, position: Point) {
        if let Some((wlan, port)) = self.wlan_port(station) {
            if let Some(medium) = &mut self.switches[wlan.0].medium {
                medium.set_position(port, position);
            }
        }
    }

    /// Whether frames that `from` sends reach `to` through a wlan.
    pub fn is_in_range(&self, from: StationId, to: StationId) -> bool {
        match (self.wlan_port(from), self.wlan_port(to)) {
            (Some((wlan, from)), Some((other, to))) if wlan == other => {
                self.switches[wlan.0].medium.as_ref().is_some_and(|medium| medium.hears(from, to))
            }
            _ => false,
        }
    }

    /// Returns the wlan, and its port, to which an interface is linked.
    fn wlan_port(&self, station: StationId) -> Option<(SwitchId, usize)> {
        let (link, side) = self.stations[station.0]?;
        match self.links[link.0].ends[side.other() as usize] {
            LinkEnd::Switch(switch, port) if self.switches[switch.0].medium.is_some() => {
                Some((switch, port))
            }
            _ => None,
        }
    }

    /// Returns one direction of a link.
    pub fn pipe(&self, link: LinkId, side: Side) -> &Pipe {
        &self.links[link.0].pipes[side as usize]
    }

    /// Applies `impairments` to a direction from now on. Call [`Emulator::advance`] to this instant first.
    pub fn set(&mut self, link: LinkId, side: Side, impairments: &Impairments) {
        self.links[link.0].pipes[side as usize].set(impairments);
    }

    /// Starts the spanning trees at `now`, with the links up or down as they are. Call this once, after all links are there.
    pub fn start(&mut self, now: VirtualInstant) {
        let indices: Vec<usize> =
            (0..self.switches.len()).filter(|at| self.switches[*at].bridge.is_some()).collect();
        let reached: HashMap<(usize, usize), Vec<(usize, usize)>> = indices
            .iter()
            .flat_map(|at| (0..self.switches[*at].ports.len()).map(move |port| (*at, port)))
            .map(|(at, port)| ((at, port), self.bridges_reached(at, port)))
            .collect();
        // Positions in the list of bridges, not of switches.
        let place: HashMap<usize, usize> =
            indices.iter().enumerate().map(|(place, at)| (*at, place)).collect();
        let mut bridges: Vec<&mut Bridge> =
            self.switches.iter_mut().filter_map(|one| one.bridge.as_mut()).collect();
        spanning_tree::converge(&mut bridges, now, |from, port| {
            let found = reached.get(&(indices[from], port)).into_iter().flatten();
            found.filter_map(|(at, port)| Some((*place.get(at)?, *port))).collect()
        });
        for at in indices {
            self.schedule(now, EventKind::Tick(SwitchId(at)));
        }
    }

    /// Returns the ports of bridges that a BPDU from a port reaches: at the other end of its link, or behind hubs and switches
    /// without a spanning tree.
    fn bridges_reached(&self, switch: usize, port: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.switches.len()];
        let mut left = vec![(switch, port)];
        while let Some((at, port)) = left.pop() {
            let (link, side) = self.switches[at].ports[port];
            let link = &self.links[link.0];
            let LinkEnd::Switch(next, entry) = link.ends[side.other() as usize] else { continue };
            if !link.pipes[side as usize].is_up() {
                continue;
            }
            let there = &self.switches[next.0];
            if there.bridge.is_some() {
                found.push((next.0, entry));
            } else if !std::mem::replace(&mut seen[next.0], true) {
                let others = (0..there.ports.len()).filter(|out| *out != entry);
                left.extend(others.map(|out| (next.0, out)));
            }
        }
        found
    }

    /// Cuts a link or restores it, in both directions, at `now`. A cut drops all frames on their way. Call [`Emulator::advance`] to
    /// this instant first.
    pub fn set_up(&mut self, link: LinkId, is_up: bool, now: VirtualInstant) {
        let changed = &mut self.links[link.0];
        changed.pipes.iter_mut().for_each(|pipe| pipe.set_up(is_up));
        if !is_up {
            changed.cuts += 1;
        }
        for end in changed.ends {
            let LinkEnd::Switch(switch, port) = end else { continue };
            let here = &mut self.switches[switch.0];
            if !is_up {
                here.switch.forget(port);
            }
            let sent = here.bridge.as_mut().map(|bridge| bridge.set_link(port, is_up, now));
            self.transmit_all(switch, sent.unwrap_or_default(), now);
        }
    }

    /// The instant of the next event; `None` if there is none.
    pub fn next_due(&self) -> Option<VirtualInstant> {
        self.calendar.peek().map(|event| event.due)
    }

    /// The next arrival of a frame at a node; only frames that are on their last link count.
    pub fn next_delivery(&self) -> Option<VirtualInstant> {
        let is_last = |event: &&Event| {
            let EventKind::Arrives(way, _) = &event.kind else { return false };
            matches!(self.links[way.link.0].ends[way.side.other() as usize], LinkEnd::Station(_))
        };
        self.calendar.iter().filter(is_last).map(|event| event.due).min()
    }

    /// The least delay of any frame over any of the links. Links into a wlan need none: all delays of a wlan are behind it.
    pub fn least_delay(&self) -> Span {
        let leads_to_wlan = |link: &Link, side: Side| match link.ends[side.other() as usize] {
            LinkEnd::Switch(switch, _) => self.switches[switch.0].medium.is_some(),
            LinkEnd::Station(_) => false,
        };
        let present = self.links.iter().filter(|link| !link.is_gone);
        let pipes = present.flat_map(|link| Side::BOTH.map(|side| (link, side)));
        pipes
            .filter(|(link, side)| !leads_to_wlan(link, *side))
            .map(|(link, side)| link.pipes[side as usize].impairments().least_delay())
            .min()
            .unwrap_or(LEAST_DELAY_WITHOUT_LINKS)
    }

    /// Takes a frame that `station` sends at `now`. Call [`Emulator::advance`] to this instant first, and again after it for events
    /// that happen at once.
    pub fn send(&mut self, station: StationId, frame: Frame, now: VirtualInstant) {
        if let Some((link, side)) = self.stations[station.0] {
            self.transmit(link, side, frame, now);
        }
    }

    /// Handles all events that are due up to `now`, in order. Calls `deliver` for each frame that arrives at a station, with the
    /// instant at which it was due.
    pub fn advance(
        &mut self,
        now: VirtualInstant,
        deliver: &mut impl FnMut(StationId, VirtualInstant, Frame),
    ) {
        while self.calendar.peek().is_some_and(|event| event.due <= now) {
            let Some(event) = self.calendar.pop() else { return };
            let due = event.due;
            match event.kind {
                EventKind::Sent(way) if self.is_whole(way) => self.sent(way, due),
                EventKind::Arrives(way, frame) if self.is_whole(way) => {
                    let link = &mut self.links[way.link.0];
                    link.pipes[way.side as usize].delivered(frame.len());
                    match link.ends[way.side.other() as usize] {
                        LinkEnd::Station(station) => deliver(station, due, frame),
                        LinkEnd::Switch(switch, port) => self.switch(switch, port, frame, due),
                    }
                }
                EventKind::Sent(_) | EventKind::Arrives(..) => {}
                EventKind::Tick(switch) => self.tick(switch, due),
            }
        }
    }

    /// Whether nothing has cut the link meanwhile.
    fn is_whole(&self, way: Way) -> bool {
        self.links[way.link.0].cuts == way.cuts
    }

    fn way(&self, link: LinkId, side: Side) -> Way {
        Way { link, side, cuts: self.links[link.0].cuts }
    }

    fn tick(&mut self, switch: SwitchId, now: VirtualInstant) {
        let here = &mut self.switches[switch.0];
        let Some(bridge) = &mut here.bridge else { return };
        let sent = bridge.tick(now);
        let is_changing = bridge.is_changing();
        let max_age = if is_changing { FORWARD_DELAY } else { switch::MAX_AGE };
        here.switch.set_max_age(max_age, now);
        self.transmit_all(switch, sent, now);
        self.schedule(now.plus(TICK), EventKind::Tick(switch));
    }

    /// Sends frames from ports of a switch.
    fn transmit_all(&mut self, switch: SwitchId, frames: Vec<Sent>, now: VirtualInstant) {
        for (port, frame) in frames {
            let (link, side) = self.switches[switch.0].ports[port];
            self.transmit(link, side, frame, now);
        }
    }

    fn transmit(&mut self, link: LinkId, side: Side, frame: Frame, now: VirtualInstant) {
        if let Some(done) = self.links[link.0].pipes[side as usize].send(frame, now) {
            self.schedule(done, EventKind::Sent(self.way(link, side)));
        }
    }

    fn sent(&mut self, way: Way, now: VirtualInstant) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let next = self.links[way.link.0].pipes[way.side as usize].sent(now, &mut arrivals);
        for arrival in arrivals.drain(..) {
            self.schedule(arrival.due, EventKind::Arrives(way, arrival.frame));
        }
        self.arrivals = arrivals;
        if let Some(done) = next {
            self.schedule(done, EventKind::Sent(way));
        }
    }

    fn switch(&mut self, id: SwitchId, port: usize, frame: Frame, now: VirtualInstant) {
        let here = &mut self.switches[id.0];
        if let Some(bridge) = &mut here.bridge {
            if let Some(sent) = bridge.receive(port, &frame, now) {
                return self.transmit_all(id, sent, now);
            }
            if !bridge.forwards(port) {
                if bridge.learns(port) {
                    here.switch.learn_only(&frame, port, now);
                }
                return;
            }
        }
        let is_open = |bridge: &Option<Bridge>, out: usize| {
            bridge.as_ref().is_none_or(|bridge| bridge.forwards(out))
        };
        match here.switch.forward(&frame, port, now) {
            Forwarding::Nowhere => {}
            Forwarding::To(out) => {
                let (link, side) = here.ports[out];
                if is_open(&here.bridge, out) {
                    self.transmit(link, side, frame, now);
                }
            }
            Forwarding::Flood => {
                for out in 0..here.ports.len() {
                    let here = &self.switches[id.0];
                    let (link, side) = here.ports[out];
                    let hears = here.medium.as_ref().is_none_or(|medium| medium.hears(port, out));
                    if out != port && hears && is_open(&here.bridge, out) {
                        self.transmit(link, side, frame.clone(), now);
                    }
                }
            }
        }
    }

    fn schedule(&mut self, due: VirtualInstant, kind: EventKind) {
        self.scheduled += 1;
        self.calendar.push(Event { due, number: self.scheduled, kind });
    }
}

/// Path cost of a link by its rate, as IEEE 802.1D-1998 recommends it. A link without a rate counts as one of 1 Gbit/s.
fn path_cost(impairments: &Impairments) -> u32 {
    const COSTS: [(u64, u32); 4] =
        [(10_000_000_000, 2), (1_000_000_000, 4), (100_000_000, 19), (10_000_000, 100)];
    let rate = impairments.rate.map_or(1_000_000_000, |rate| rate.limit().unwrap_or(u64::MAX));
    let found = COSTS.iter().find(|(least, _)| rate >= *least);
    found.map_or(250, |(_, cost)| *cost)
}
