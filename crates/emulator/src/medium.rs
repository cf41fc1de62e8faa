//! The medium of a wlan: which of its ports hear each other, by their distance.

use crate::position::Point;

/// Positions of a wlan's ports, and their range.
#[derive(Debug)]
pub(super) struct Medium {
    /// Greatest distance over which a frame is received.
    range: f64,
    /// By port. A port without a position hears nothing, and no port hears it.
    positions: Vec<Option<Point>>,
}

impl Medium {
    pub fn new(range: f64) -> Medium {
        Medium { range, positions: Vec::new() }
    }

    pub fn add_port(&mut self) {
        self.positions.push(None);
    }

    pub fn set_position(&mut self, port: usize, position: Point) {
        self.positions[port] = Some(position);
    }

    /// Whether the port `to` hears what `from` sends.
    pub fn hears(&self, from: usize, to: usize) -> bool {
        match (self.positions[from], self.positions[to]) {
            (Some(one), Some(other)) => from != to && one.distance(other) <= self.range,
            _ => false,
        }
    }
}
