//! The link emulator: computes when and where frames arrive, in virtual time and nothing else.
//!
//! The emulator makes no system call and reads no clock. Its owner tells it the time, hands it frames, and takes them where they
//! arrive. One calendar holds all future events, ordered by virtual instants. Each event is computed at its own instant, however
//! late the owner advances the emulator, so that lateness never adds up.

mod pipe;
mod queue;
mod rng;
mod switch;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use lorentz_clock::{Span, VirtualInstant};

pub use pipe::{Counts, Pipe};
pub use queue::Frame;
pub use rng::LinkRng;

use pipe::Arrival;
use switch::{Forwarding, Switch};

use crate::impair::Impairments;

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
}

#[derive(Debug)]
struct SwitchAndPorts {
    switch: Switch,
    ports: Vec<(LinkId, Side)>,
}

#[derive(Debug)]
enum EventKind {
    /// The frame on the wire has been sent.
    Sent,
    /// A frame arrives at the other end.
    Arrives(Frame),
}

#[derive(Debug)]
struct Event {
    due: VirtualInstant,
    number: u64,
    link: LinkId,
    side: Side,
    cuts: u32,
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

    /// Adds a switch, which learns, or a hub, which does not.
    pub fn add_switch(&mut self, learns: bool) -> SwitchId {
        let switch = if learns { Switch::learning() } else { Switch::hub() };
        self.switches.push(SwitchAndPorts { switch, ports: Vec::new() });
        SwitchId(self.switches.len() - 1)
    }

    /// Joins two objects by a link, with `impairments` from the first end and from the second.
    pub fn connect(
        &mut self,
        attachments: [Attachment; 2],
        impairments: [&Impairments; 2],
    ) -> LinkId {
        let id = LinkId(self.links.len());
        let ends = [0, 1].map(|at| self.attach(attachments[at], (id, Side::BOTH[at])));
        let stream = |at: u64| LinkRng::new(self.seed, id.0 as u64 * 2 + at);
        let pipes = [Pipe::new(impairments[0], stream(0)), Pipe::new(impairments[1], stream(1))];
        self.links.push(Link { ends, pipes, cuts: 0 });
        id
    }

    fn attach(&mut self, attachment: Attachment, attached_to: (LinkId, Side)) -> LinkEnd {
        match attachment {
            Attachment::Station(station) => {
                debug_assert!(self.stations[station.0].is_none(), "one link for each interface");
                self.stations[station.0] = Some(attached_to);
                LinkEnd::Station(station)
            }
            Attachment::Switch(switch) => {
                let ports = &mut self.switches[switch.0].ports;
                ports.push(attached_to);
                LinkEnd::Switch(switch, ports.len() - 1)
            }
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

    /// Cuts a link or restores it, in both directions. A cut drops all frames on their way. Call [`Emulator::advance`] to this
    /// instant first.
    pub fn set_up(&mut self, link: LinkId, is_up: bool) {
        let changed = &mut self.links[link.0];
        changed.pipes.iter_mut().for_each(|pipe| pipe.set_up(is_up));
        if is_up {
            return;
        }
        changed.cuts += 1;
        for end in changed.ends {
            if let LinkEnd::Switch(switch, port) = end {
                self.switches[switch.0].switch.forget(port);
            }
        }
    }

    /// The instant of the next event; `None` if there is none.
    pub fn next_due(&self) -> Option<VirtualInstant> {
        self.calendar.peek().map(|event| event.due)
    }

    /// The next arrival of a frame at a node; only frames that are on their last link count.
    pub fn next_delivery(&self) -> Option<VirtualInstant> {
        let is_last = |event: &&Event| {
            let end = self.links[event.link.0].ends[event.side.other() as usize];
            matches!((&event.kind, end), (EventKind::Arrives(_), LinkEnd::Station(_)))
        };
        self.calendar.iter().filter(is_last).map(|event| event.due).min()
    }

    /// The least delay of any frame over any of the links.
    pub fn least_delay(&self) -> Span {
        let pipes = self.links.iter().flat_map(|link| &link.pipes);
        pipes
            .map(|pipe| pipe.impairments().least_delay())
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
            let link = &mut self.links[event.link.0];
            if event.cuts != link.cuts {
                continue;
            }
            match event.kind {
                EventKind::Sent => self.sent(event.link, event.side, event.due),
                EventKind::Arrives(frame) => {
                    link.pipes[event.side as usize].delivered(frame.len());
                    match link.ends[event.side.other() as usize] {
                        LinkEnd::Station(station) => deliver(station, event.due, frame),
                        LinkEnd::Switch(switch, port) => {
                            self.switch(switch, port, frame, event.due)
                        }
                    }
                }
            }
        }
    }

    fn transmit(&mut self, link: LinkId, side: Side, frame: Frame, now: VirtualInstant) {
        if let Some(done) = self.links[link.0].pipes[side as usize].send(frame, now) {
            self.schedule(done, link, side, EventKind::Sent);
        }
    }

    fn sent(&mut self, link: LinkId, side: Side, now: VirtualInstant) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let next = self.links[link.0].pipes[side as usize].sent(now, &mut arrivals);
        for arrival in arrivals.drain(..) {
            self.schedule(arrival.due, link, side, EventKind::Arrives(arrival.frame));
        }
        self.arrivals = arrivals;
        if let Some(done) = next {
            self.schedule(done, link, side, EventKind::Sent);
        }
    }

    fn switch(&mut self, id: SwitchId, port: usize, frame: Frame, now: VirtualInstant) {
        let here = &mut self.switches[id.0];
        match here.switch.forward(&frame, port, now) {
            Forwarding::Nowhere => {}
            Forwarding::To(out) => {
                let (link, side) = here.ports[out];
                self.transmit(link, side, frame, now);
            }
            Forwarding::Flood => {
                for out in 0..here.ports.len() {
                    let (link, side) = self.switches[id.0].ports[out];
                    if out != port {
                        self.transmit(link, side, frame.clone(), now);
                    }
                }
            }
        }
    }

    fn schedule(&mut self, due: VirtualInstant, link: LinkId, side: Side, kind: EventKind) {
        self.scheduled += 1;
        let cuts = self.links[link.0].cuts;
        self.calendar.push(Event { due, number: self.scheduled, link, side, cuts, kind });
    }
}
