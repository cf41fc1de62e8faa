//! Switches and hubs: the ports to which a frame goes on.

use std::collections::HashMap;

use lorentz_clock::{Span, VirtualInstant};

/// How long a switch remembers an address that sends nothing, as bridges do.
pub(super) const MAX_AGE: Span = Span::from_secs(300);
/// Most addresses that one switch remembers.
const MAX_ADDRESSES: usize = 8_192;

/// Kind of a switch, by the ports to which it sends a frame.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SwitchKind {
    /// It sends each frame to all other ports: a hub.
    Hub,
    /// It learns the ports of addresses.
    Learning,
    /// It learns, and takes part in a spanning tree.
    SpanningTree,
    /// It sends each frame to the ports within a distance of the sender's: a wireless LAN.
    Wlan {
        /// Greatest distance, in the unit of positions.
        range: f64,
    },
}

/// A switch, which learns the ports of addresses, or a hub, which does not.
#[derive(Debug)]
pub struct Switch {
    learns: bool,
    table: HashMap<[u8; 6], (usize, VirtualInstant)>,
    max_age: Span,
}

/// The ports to which a frame goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// One port.
    To(usize),
    /// All ports but the one at which it came in.
    Flood,
    /// No port: the destination is behind the port at which it came in.
    Nowhere,
}

impl Switch {
    /// Makes a learning switch.
    pub fn learning() -> Switch {
        Switch { learns: true, table: HashMap::new(), max_age: MAX_AGE }
    }

    /// Makes a hub.
    pub fn hub() -> Switch {
        Switch { learns: false, table: HashMap::new(), max_age: MAX_AGE }
    }

    /// Sets how long it remembers an address that sends nothing. Those that it has forgotten by `now` do not come back.
    pub fn set_max_age(&mut self, max_age: Span, now: VirtualInstant) {
        if max_age > self.max_age {
            self.forget_expired(now);
        }
        self.max_age = max_age;
    }

    fn forget_expired(&mut self, now: VirtualInstant) {
        let max_age = self.max_age;
        self.table.retain(|_, (_, heard)| now.since(*heard) <= max_age);
    }

    /// Learns the sender of a frame that goes no further.
    pub fn learn_only(&mut self, frame: &[u8], port: usize, now: VirtualInstant) {
        let from = frame.get(6..12).and_then(|from| <[u8; 6]>::try_from(from).ok());
        if let Some(from) = from.filter(|from| !is_group(*from)) {
            self.learn(from, port, now);
        }
    }

    /// Forgets the addresses behind a port, whose link has gone down.
    pub fn forget(&mut self, port: usize) {
        self.table.retain(|_, (behind, _)| *behind != port);
    }

    /// Returns where a frame goes that came in at `port` at `now`.
    pub fn forward(&mut self, frame: &[u8], port: usize, now: VirtualInstant) -> Forwarding {
        let address = |at: usize| <[u8; 6]>::try_from(frame.get(at..at + 6)?).ok();
        let (Some(to), Some(from)) = (address(0), address(6)) else { return Forwarding::Nowhere };
        if !self.learns {
            return Forwarding::Flood;
        }
        if !is_group(from) {
            self.learn(from, port, now);
        }
        match self.table.get(&to) {
            _ if is_group(to) => Forwarding::Flood,
            Some((_, heard)) if now.since(*heard) > self.max_age => Forwarding::Flood,
            Some((behind, _)) if *behind == port => Forwarding::Nowhere,
            Some((behind, _)) => Forwarding::To(*behind),
            None => Forwarding::Flood,
        }
    }

    fn learn(&mut self, from: [u8; 6], port: usize, now: VirtualInstant) {
        if self.table.len() >= MAX_ADDRESSES && !self.table.contains_key(&from) {
            self.forget_expired(now);
            if self.table.len() >= MAX_ADDRESSES {
                return;
            }
        }
        self.table.insert(from, (port, now));
    }
}

fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, from: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[5] = to;
        frame[11] = from;
        frame
    }

    #[test]
    fn a_switch_learns_and_forgets() {
        let (now, mut switch) = (VirtualInstant(0), Switch::learning());
        assert_eq!(switch.forward(&frame(2, 1), 0, now), Forwarding::Flood);
        assert_eq!(switch.forward(&frame(1, 2), 1, now), Forwarding::To(0));
        assert_eq!(switch.forward(&frame(2, 1), 0, now), Forwarding::To(1));
        assert_eq!(switch.forward(&frame(1, 3), 0, now), Forwarding::Nowhere);
        let later = now.plus(Span::from_secs(301));
        assert_eq!(switch.forward(&frame(2, 9), 0, later), Forwarding::Flood);
        switch.forget(0);
        assert_eq!(switch.forward(&frame(9, 2), 1, later), Forwarding::Flood);
    }

    #[test]
    fn an_address_that_has_expired_does_not_come_back() {
        let (at, mut switch) = (VirtualInstant(0), Switch::learning());
        let after = |secs| at.plus(Span::from_secs(secs));
        switch.forward(&frame(9, 2), 0, at);
        switch.forward(&frame(9, 3), 0, after(40));
        // The tree changes, and nobody sends until long after.
        switch.set_max_age(Span::from_secs(15), after(20));
        switch.set_max_age(MAX_AGE, after(50));
        assert_eq!(switch.forward(&frame(2, 1), 0, after(90)), Forwarding::Flood);
        assert_eq!(switch.forward(&frame(3, 1), 0, after(90)), Forwarding::Nowhere);
    }

    #[test]
    fn groups_and_hubs_flood() {
        let (now, mut switch) = (VirtualInstant(0), Switch::learning());
        let mut broadcast = frame(0, 1);
        broadcast[..6].fill(0xff);
        assert_eq!(switch.forward(&broadcast, 0, now), Forwarding::Flood);
        let mut hub = Switch::hub();
        hub.forward(&frame(2, 1), 0, now);
        assert_eq!(hub.forward(&frame(1, 2), 1, now), Forwarding::Flood);
        assert_eq!(switch.forward(&[0; 5], 0, now), Forwarding::Nowhere);
    }

    #[test]
    fn the_table_does_not_grow_for_ever() {
        let mut switch = Switch::learning();
        for number in 0..20_000_u32 {
            let mut frame = frame(1, 0);
            frame[8..12].copy_from_slice(&number.to_be_bytes());
            switch.forward(&frame, 0, VirtualInstant(0));
        }
        assert_eq!(switch.table.len(), MAX_ADDRESSES);
    }
}
