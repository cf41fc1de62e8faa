//! Positions of nodes.

/// Greatest distance of a coordinate from 0. Distances below it are exact enough as `f64`.
pub const MAX_COORDINATE: f64 = 1e9;

/// A position: to the right and down, in the unit of the file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
}

impl Point {
    /// Makes a point, if both coordinates are numbers within [`MAX_COORDINATE`].
    pub fn new([x, y]: [f64; 2]) -> Option<Point> {
        let is_good = |value: f64| value.abs() <= MAX_COORDINATE;
        (is_good(x) && is_good(y)).then_some(Point { x, y })
    }

    /// The coordinates.
    pub fn coordinates(self) -> [f64; 2] {
        [self.x, self.y]
    }

    /// The distance to `other`.
    pub fn distance(self, other: Point) -> f64 {
        ((self.x - other.x).powi(2) + (self.y - other.y).powi(2)).sqrt()
    }
}
