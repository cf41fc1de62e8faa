//! The spanning tree protocol of IEEE 802.1D (1998), in virtual time: switches block ports until no loop is left.
//!
//! A switch sends its BPDUs as frames over its links. They take the links' delay and suffer their loss, and a bridge in a node that
//! speaks the protocol takes part in it. Names are the standard's: chapters 8 and 9.

use lorentz_clock::{Span, VirtualInstant};

use super::queue::Frame;

/// Interval between the root's BPDUs.
const HELLO_TIME: Span = Span::from_secs(2);
/// How long a port keeps what the last BPDU said.
const MAX_AGE: Span = Span::from_secs(20);
/// How long a port listens, and then learns, before it forwards.
pub(super) const FORWARD_DELAY: Span = Span::from_secs(15);
/// How long the root tells of a change.
const TOPOLOGY_CHANGE_TIME: Span = Span::from_secs(35);
/// Increment of a configuration BPDU's message age at each switch.
const MESSAGE_AGE_INCREMENT: Span = Span::from_secs(1);
/// Least time between two BPDUs from one port.
const HOLD_TIME: Span = Span::from_secs(1);
/// How often a switch looks at its timers.
pub(super) const TICK: Span = Span::from_secs(1);

/// The destination of BPDUs: group address of the bridges.
const GROUP_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
/// Priority of each switch. Of equal priorities the lower address is the better one.
const BRIDGE_PRIORITY: u16 = 0x8000;
const PORT_PRIORITY: u16 = 0x80;

const CONFIGURATION: u8 = 0x00;
const TOPOLOGY_CHANGE_NOTIFICATION: u8 = 0x80;
const FLAG_CHANGE: u8 = 0x01;
const FLAG_ACKNOWLEDGED: u8 = 0x80;

/// Priority and address of a switch.
type BridgeId = u64;

/// Priority vector of a configuration BPDU: the sender's path to the root. The lesser vector is the better one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Offer {
    root: BridgeId,
    cost: u32,
    bridge: BridgeId,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PortState {
    /// The link is down.
    Disabled,
    Blocking,
    Listening,
    Learning,
    Forwarding,
}

#[derive(Debug)]
struct Port {
    id: u16,
    cost: u32,
    state: PortState,
    /// The best offer on this port's LAN.
    offer: Offer,
    /// When the offer of another switch is too old.
    expires: Option<VirtualInstant>,
    /// When a listening or learning port goes on to the next state.
    moves_on: VirtualInstant,
    last_sent: Option<VirtualInstant>,
    /// A BPDU waits for the hold time.
    is_pending: bool,
    /// The next BPDU acknowledges a notification.
    acknowledges: bool,
}

/// A frame, and the port from which it goes.
pub(super) type Sent = (usize, Frame);

/// The spanning tree of one switch.
#[derive(Debug)]
pub(super) struct Bridge {
    id: BridgeId,
    ports: Vec<Port>,
    root: BridgeId,
    root_cost: u32,
    root_port: Option<usize>,
    next_hello: VirtualInstant,
    /// The root: until when its BPDUs tell of a change. Others: while the root's do.
    change_until: Option<VirtualInstant>,
    is_change_flagged: bool,
    /// A notification goes to the root with each hello, until it is acknowledged.
    notifies: bool,
}

impl Bridge {
    /// Makes switch number `number` without ports.
    pub fn new(number: usize) -> Bridge {
        let id = u64::from(BRIDGE_PRIORITY) << 48 | bridge_address(number);
        Bridge {
            id,
            ports: Vec::new(),
            root: id,
            root_cost: 0,
            root_port: None,
            next_hello: VirtualInstant(0),
            change_until: None,
            is_change_flagged: false,
            notifies: false,
        }
    }

    /// Adds a port to a link with this path cost.
    pub fn add_port(&mut self, cost: u32) {
        let id = PORT_PRIORITY << 8 | (self.ports.len() as u16 + 1);
        let offer = Offer { root: self.id, cost: 0, bridge: self.id, port: id };
        self.ports.push(Port {
            id,
            cost,
            state: PortState::Forwarding,
            offer,
            expires: None,
            moves_on: VirtualInstant(0),
            last_sent: None,
            is_pending: false,
            acknowledges: false,
        });
    }

    /// Whether frames that come in at a port go on.
    pub fn forwards(&self, port: usize) -> bool {
        self.ports[port].state == PortState::Forwarding
    }

    /// Whether the switch remembers from which port a frame came.
    pub fn learns(&self, port: usize) -> bool {
        matches!(self.ports[port].state, PortState::Forwarding | PortState::Learning)
    }

    /// Whether a change of the tree has made what the switch has learnt age sooner.
    pub fn is_changing(&self) -> bool {
        self.is_change_flagged
    }

    /// Handles a link that goes up or down.
    pub fn set_link(&mut self, port: usize, is_up: bool, now: VirtualInstant) -> Vec<Sent> {
        let mut out = Vec::new();
        let was_up = self.ports[port].state != PortState::Disabled;
        if was_up == is_up {
            return out;
        }
        self.become_designated(port);
        let was_root = self.is_root();
        if is_up {
            self.ports[port].state = PortState::Blocking;
        } else {
            let was_active = self.learns(port);
            self.ports[port].state = PortState::Disabled;
            if was_active {
                self.detect_change(now, &mut out);
            }
        }
        self.update(now, was_root, &mut out);
        out
    }

    /// Handles a BPDU. Returns nothing if the frame is none, else what the switch sends in turn.
    pub fn receive(&mut self, port: usize, frame: &[u8], now: VirtualInstant) -> Option<Vec<Sent>> {
        if frame.get(..6) != Some(&GROUP_ADDRESS) {
            return None;
        }
        let mut out = Vec::new();
        if self.ports[port].state == PortState::Disabled {
            return Some(out);
        }
        match Bpdu::parse(frame) {
            Some(Bpdu::Configuration { offer, age, flags }) => {
                self.receive_configuration(port, offer, age, flags, now, &mut out);
            }
            Some(Bpdu::Notification) if self.is_designated(port) => {
                self.detect_change(now, &mut out);
                self.ports[port].acknowledges = true;
                self.send_configuration(port, now, &mut out);
            }
            Some(Bpdu::Notification) | None => {}
        }
        Some(out)
    }

    fn receive_configuration(
        &mut self,
        port: usize,
        offer: Offer,
        age: Span,
        flags: u8,
        now: VirtualInstant,
        out: &mut Vec<Sent>,
    ) {
        let held = self.ports[port].offer;
        let same_sender = (offer.bridge, offer.port) == (held.bridge, held.port);
        let supersedes = offer < held || same_sender;
        if !supersedes || age >= MAX_AGE {
            if self.is_designated(port) {
                self.send_configuration(port, now, out);
            }
            return;
        }
        let was_root = self.is_root();
        let remaining = Span(MAX_AGE.0 - age.0);
        self.ports[port].offer = offer;
        self.ports[port].expires = Some(now.plus(remaining));
        self.update(now, was_root, out);
        if self.root_port == Some(port) {
            self.is_change_flagged = flags & FLAG_CHANGE != 0;
            if flags & FLAG_ACKNOWLEDGED != 0 {
                self.notifies = false;
            }
            for port in 0..self.ports.len() {
                if self.is_designated(port) {
                    self.send_configuration(port, now, out);
                }
            }
        }
    }

    /// Looks at all timers. Call this every [`TICK`].
    pub fn tick(&mut self, now: VirtualInstant) -> Vec<Sent> {
        let mut out = Vec::new();
        let was_root = self.is_root();
        let mut is_expired = false;
        for port in 0..self.ports.len() {
            if self.ports[port].expires.is_some_and(|at| at <= now) {
                self.become_designated(port);
                is_expired = true;
            }
        }
        if is_expired {
            self.update(now, was_root, &mut out);
        }
        for port in 0..self.ports.len() {
            self.move_on(port, now, &mut out);
        }
        if self.change_until.is_some_and(|until| until <= now) {
            self.change_until = None;
            self.is_change_flagged = false;
        }
        let is_hello = self.next_hello <= now;
        if is_hello {
            self.next_hello = now.plus(HELLO_TIME);
        }
        if is_hello && self.notifies {
            self.send_notification(&mut out);
        }
        for port in 0..self.ports.len() {
            let is_due = is_hello && self.is_root() || self.ports[port].is_pending;
            if is_due && self.is_designated(port) {
                self.send_configuration(port, now, &mut out);
            }
        }
        out
    }

    /// Moves a listening port on to learning, and a learning one to forwarding, when its time has come.
    fn move_on(&mut self, port: usize, now: VirtualInstant, out: &mut Vec<Sent>) {
        if self.ports[port].moves_on > now {
            return;
        }
        match self.ports[port].state {
            PortState::Listening => {
                self.ports[port].state = PortState::Learning;
                self.ports[port].moves_on = now.plus(FORWARD_DELAY);
            }
            PortState::Learning => {
                self.ports[port].state = PortState::Forwarding;
                let is_designated = |port: &Port| port.offer.bridge == self.id;
                if self.ports.iter().any(is_designated) {
                    self.detect_change(now, out);
                }
            }
            _ => {}
        }
    }

    fn is_root(&self) -> bool {
        self.root == self.id
    }

    fn is_designated(&self, port: usize) -> bool {
        let port = &self.ports[port];
        port.state != PortState::Disabled
            && (port.offer.bridge, port.offer.port) == (self.id, port.id)
    }

    /// Returns the priority vector that this switch would send at a port.
    fn own_offer(&self, port: usize) -> Offer {
        Offer { root: self.root, cost: self.root_cost, bridge: self.id, port: self.ports[port].id }
    }

    fn become_designated(&mut self, port: usize) {
        self.ports[port].offer = self.own_offer(port);
        self.ports[port].expires = None;
    }

    /// Chooses root, root port and designated ports anew, and sets the ports' states.
    fn update(&mut self, now: VirtualInstant, was_root: bool, out: &mut Vec<Sent>) {
        self.choose_root();
        for port in 0..self.ports.len() {
            if self.ports[port].state == PortState::Disabled {
                continue;
            }
            if self.is_designated(port) || self.own_offer(port) < self.ports[port].offer {
                self.become_designated(port);
            }
        }
        for port in 0..self.ports.len() {
            let is_active = self.root_port == Some(port) || self.is_designated(port);
            let was_active = self.learns(port);
            match (is_active, self.ports[port].state) {
                (_, PortState::Disabled) => {}
                (true, PortState::Blocking) => {
                    self.ports[port].state = PortState::Listening;
                    self.ports[port].moves_on = now.plus(FORWARD_DELAY);
                }
                (false, state) if state != PortState::Blocking => {
                    self.ports[port].state = PortState::Blocking;
                    self.ports[port].acknowledges = false;
                    if was_active {
                        self.detect_change(now, out);
                    }
                }
                _ => {}
            }
        }
        if self.is_root() && !was_root {
            self.next_hello = now.plus(HELLO_TIME);
            self.notifies = false;
            for port in 0..self.ports.len() {
                if self.is_designated(port) {
                    self.send_configuration(port, now, out);
                }
            }
        }
    }

    fn choose_root(&mut self) {
        let mut best: Option<(Offer, u16, usize)> = None;
        for (at, port) in self.ports.iter().enumerate() {
            let is_own = (port.offer.bridge, port.offer.port) == (self.id, port.id);
            if port.state == PortState::Disabled || is_own || port.offer.root >= self.id {
                continue;
            }
            let through = Offer { cost: port.offer.cost.saturating_add(port.cost), ..port.offer };
            if best.is_none_or(|(offer, id, _)| (through, port.id) < (offer, id)) {
                best = Some((through, port.id, at));
            }
        }
        match best {
            Some((offer, _, at)) => {
                (self.root, self.root_cost, self.root_port) = (offer.root, offer.cost, Some(at));
            }
            None => (self.root, self.root_cost, self.root_port) = (self.id, 0, None),
        }
    }

    /// Sees to it that the root tells of a change of the tree.
    fn detect_change(&mut self, now: VirtualInstant, out: &mut Vec<Sent>) {
        if self.is_root() {
            self.change_until = Some(now.plus(TOPOLOGY_CHANGE_TIME));
            self.is_change_flagged = true;
        } else if !self.notifies {
            self.notifies = true;
            self.send_notification(out);
        }
    }

    fn send_notification(&mut self, out: &mut Vec<Sent>) {
        if let Some(port) = self.root_port {
            out.push((port, Bpdu::Notification.frame(self.id, self.ports[port].id)));
        }
    }

    fn send_configuration(&mut self, port: usize, now: VirtualInstant, out: &mut Vec<Sent>) {
        let offer = self.own_offer(port);
        // The age of what the root has said, and a little more.
        let age = match self.root_port.and_then(|root| self.ports[root].expires) {
            Some(expires) => {
                let age = MAX_AGE.0 - expires.since(now).0.max(0);
                Span(age + MESSAGE_AGE_INCREMENT.0)
            }
            None => Span(0),
        };
        if age >= MAX_AGE {
            return;
        }
        let sender = &mut self.ports[port];
        if sender.last_sent.is_some_and(|at| now.since(at) < HOLD_TIME) {
            sender.is_pending = true;
            return;
        }
        (sender.last_sent, sender.is_pending) = (Some(now), false);
        let mut flags = if self.is_change_flagged { FLAG_CHANGE } else { 0 };
        if std::mem::take(&mut sender.acknowledges) {
            flags |= FLAG_ACKNOWLEDGED;
        }
        let id = sender.id;
        out.push((port, Bpdu::Configuration { offer, age, flags }.frame(self.id, id)));
    }

    /// Ends the start: no port waits to forward.
    fn end_startup(&mut self, now: VirtualInstant) {
        self.next_hello = now;
        for port in &mut self.ports {
            if matches!(port.state, PortState::Listening | PortState::Learning) {
                port.state = PortState::Forwarding;
            }
            (port.last_sent, port.is_pending, port.acknowledges) = (None, false, false);
        }
        (self.change_until, self.is_change_flagged, self.notifies) = (None, false, false);
    }
}

/// A BPDU.
enum Bpdu {
    Configuration { offer: Offer, age: Span, flags: u8 },
    Notification,
}

impl Bpdu {
    /// Makes the frame that the port `port` of the switch `id` sends.
    fn frame(&self, id: BridgeId, port: u16) -> Frame {
        const LLC: [u8; 3] = [0x42, 0x42, 0x03];
        let mut body = LLC.to_vec();
        match self {
            Bpdu::Configuration { offer, age, flags } => {
                body.extend([0, 0, 0, CONFIGURATION, *flags]);
                body.extend(offer.root.to_be_bytes());
                body.extend(offer.cost.to_be_bytes());
                body.extend(offer.bridge.to_be_bytes());
                body.extend(offer.port.to_be_bytes());
                for time in [*age, MAX_AGE, HELLO_TIME, FORWARD_DELAY] {
                    body.extend(((time.0 * 256 / 1_000_000_000) as u16).to_be_bytes());
                }
            }
            Bpdu::Notification => body.extend([0, 0, 0, TOPOLOGY_CHANGE_NOTIFICATION]),
        }
        let address = (id & 0xffff_ffff_ffff) | u64::from(port & 0xff);
        let mut frame = GROUP_ADDRESS.to_vec();
        frame.extend(&address.to_be_bytes()[2..]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend(body);
        // The least length of a frame, without its checksum.
        frame.resize(frame.len().max(60), 0);
        frame.into()
    }

    fn parse(frame: &[u8]) -> Option<Bpdu> {
        let body = frame.get(14..)?;
        let is_ours = body.starts_with(&[0x42, 0x42, 0x03, 0, 0]);
        let number = |from: usize, length: usize| -> Option<u64> {
            let bytes = body.get(from..from + length)?;
            Some(bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        };
        match *body.get(6).filter(|_| is_ours)? {
            TOPOLOGY_CHANGE_NOTIFICATION => Some(Bpdu::Notification),
            CONFIGURATION => Some(Bpdu::Configuration {
                offer: Offer {
                    root: number(8, 8)?,
                    cost: number(16, 4)? as u32,
                    bridge: number(20, 8)?,
                    port: number(28, 2)? as u16,
                },
                age: Span((number(30, 2)? * 1_000_000_000 / 256) as i64),
                flags: *body.get(7)?,
            }),
            _ => None,
        }
    }
}

/// The address of switch number `number`. Its last byte is free for the port.
fn bridge_address(number: usize) -> u64 {
    0x0e00_0000_0000 | (number as u64 & 0xffff) << 8
}

/// Lets the switches exchange BPDUs at `now` until nothing changes any more: the network starts with its tree. `reach` returns the
/// switches, each with its port, that a frame from a port of a switch reaches.
pub(super) fn converge(
    bridges: &mut [&mut Bridge],
    now: VirtualInstant,
    reach: impl Fn(usize, usize) -> Vec<(usize, usize)>,
) {
    // Each round carries what is better one switch further.
    for _ in 0..bridges.len() + 1 {
        let mut sent: Vec<(usize, Sent)> = Vec::new();
        for (at, bridge) in bridges.iter_mut().enumerate() {
            bridge.ports.iter_mut().for_each(|port| port.last_sent = None);
            let mut out = Vec::new();
            for port in 0..bridge.ports.len() {
                if bridge.is_designated(port) {
                    bridge.send_configuration(port, now, &mut out);
                }
            }
            sent.extend(out.into_iter().map(|one| (at, one)));
        }
        for (from, (port, frame)) in sent {
            for (to, at) in reach(from, port) {
                bridges[to].receive(at, &frame, now);
            }
        }
    }
    bridges.iter_mut().for_each(|bridge| bridge.end_startup(now));
}
