//! Where the boxes of a picture go.
//!
//! Nodes with a position of their own keep their arrangement. The others follow from a force layout: links pull, all nodes push
//! (Fruchterman and Reingold, 1991). At the end overlapping boxes move apart. The same network always gives the same picture.

/// A point, or a size.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
}

/// A rectangle around its center.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub center: Point,
    pub size: Point,
}

impl Rect {
    /// How far the rectangles reach into one another in each direction. `None` if they do not touch.
    pub fn overlap(&self, other: &Rect) -> Option<Point> {
        let reach = |a: f64, b: f64, between: f64| (a + b) / 2.0 - between.abs();
        let x = reach(self.size.x, other.size.x, self.center.x - other.center.x);
        let y = reach(self.size.y, other.size.y, self.center.y - other.center.y);
        (x > 0.0 && y > 0.0).then_some(Point { x, y })
    }
}

/// Length of a link that is neither stretched nor pressed. Its labels have room on it.
const LINK_LENGTH: f64 = 190.0;
/// Free space around each box.
const GAP: f64 = 24.0;
const FORCE_STEPS: usize = 300;
/// Most nodes for which each step looks at all pairs. More nodes get fewer steps.
const FULL_STEPS_NODES: usize = 200;
const SEPARATION_STEPS: usize = 400;

/// Returns the centers of boxes with these `sizes`. `given` has the positions from the file, in any unit; `links` joins boxes by
/// their indices.
pub(super) fn place(
    sizes: &[Point],
    given: &[Option<Point>],
    links: &[(usize, usize)],
) -> Vec<Point> {
    let count = sizes.len();
    let mut points = start(given);
    let linked = |at: usize| links.iter().any(|(a, b)| *a == at || *b == at);
    let is_aside: Vec<bool> = (0..count).map(|at| given[at].is_none() && !linked(at)).collect();
    scale_given(&mut points, given, links);
    let moving: Vec<usize> =
        (0..count).filter(|at| given[*at].is_none() && !is_aside[*at]).collect();
    let drawn: Vec<usize> = (0..count).filter(|at| !is_aside[*at]).collect();
    apply_forces(&mut points, &moving, &drawn, links);
    separate(&mut points, sizes, &drawn);
    put_aside(&mut points, sizes, &is_aside);
    points
}

/// Returns the positions from the file, and points on a spiral for the other nodes.
fn start(given: &[Option<Point>]) -> Vec<Point> {
    // The golden angle spreads successive points evenly.
    const TURN: f64 = 2.399_963;
    let spiral = |at: usize| {
        let (radius, angle) = (LINK_LENGTH * (at as f64 + 0.5).sqrt() * 0.7, TURN * at as f64);
        Point { x: radius * angle.cos(), y: radius * angle.sin() }
    };
    given.iter().enumerate().map(|(at, one)| one.unwrap_or_else(|| spiral(at))).collect()
}

/// Scales the positions from the file, by one factor, so that links between them have about the length [`LINK_LENGTH`], and moves
/// their middle to the origin.
fn scale_given(points: &mut [Point], given: &[Option<Point>], links: &[(usize, usize)]) {
    let has_place = |at: &usize| given[*at].is_some();
    let all: Vec<usize> = (0..points.len()).filter(has_place).collect();
    if all.is_empty() {
        return;
    }
    let between = links.iter().filter(|(a, b)| has_place(a) && has_place(b));
    let mut lengths: Vec<f64> = between
        .map(|(a, b)| (points[*a].x - points[*b].x).hypot(points[*a].y - points[*b].y))
        .filter(|length| *length > 0.0)
        .collect();
    lengths.sort_by(f64::total_cmp);
    let extent = all.iter().map(|at| points[*at].x.abs().max(points[*at].y.abs()));
    let extent = extent.fold(0.0, f64::max);
    let length = lengths.get(lengths.len() / 2).copied().unwrap_or(extent);
    let factor = if length > 0.0 { LINK_LENGTH / length } else { 1.0 };
    let count = all.len() as f64;
    let middle = Point {
        x: all.iter().map(|at| points[*at].x).sum::<f64>() / count,
        y: all.iter().map(|at| points[*at].y).sum::<f64>() / count,
    };
    for at in all {
        points[at].x = (points[at].x - middle.x) * factor;
        points[at].y = (points[at].y - middle.y) * factor;
    }
}

/// Moves the nodes `moving` by the forces of all nodes `drawn` and of the links. Each step moves them less far than the one before.
fn apply_forces(points: &mut [Point], moving: &[usize], drawn: &[usize], links: &[(usize, usize)]) {
    let steps = match drawn.len() {
        few if few <= FULL_STEPS_NODES => FORCE_STEPS,
        many => (FORCE_STEPS * FULL_STEPS_NODES / many).max(20),
    };
    let mut is_moving = vec![false; points.len()];
    moving.iter().for_each(|at| is_moving[*at] = true);
    for step in 0..steps {
        let mut forces = vec![Point::default(); points.len()];
        for &at in moving {
            for &other in drawn.iter().filter(|other| **other != at) {
                let (x, y) = (points[at].x - points[other].x, points[at].y - points[other].y);
                let distance = x.hypot(y).max(1.0);
                let push = LINK_LENGTH * LINK_LENGTH / (distance * distance);
                forces[at].x += x * push;
                forces[at].y += y * push;
            }
            // Parts of the network that no link joins stay near one another.
            forces[at].x -= points[at].x * 0.05;
            forces[at].y -= points[at].y * 0.05;
        }
        for &(a, b) in links.iter().filter(|(a, b)| a != b) {
            let (x, y) = (points[a].x - points[b].x, points[a].y - points[b].y);
            let pull = x.hypot(y) / LINK_LENGTH;
            for (at, sign) in [(a, -1.0), (b, 1.0)] {
                forces[at].x += sign * x * pull;
                forces[at].y += sign * y * pull;
            }
        }
        let most = LINK_LENGTH * (1.0 - step as f64 / steps as f64);
        for at in (0..points.len()).filter(|at| is_moving[*at]) {
            let Point { x, y } = forces[at];
            let length = x.hypot(y);
            if length > 0.0 {
                let part = length.min(most) / length;
                points[at].x += x * part;
                points[at].y += y * part;
            }
        }
    }
}

/// Moves overlapping boxes apart until none overlap.
fn separate(points: &mut [Point], sizes: &[Point], drawn: &[usize]) {
    let rect = |points: &[Point], at: usize| Rect {
        center: points[at],
        size: Point { x: sizes[at].x + GAP, y: sizes[at].y + GAP },
    };
    for _ in 0..SEPARATION_STEPS {
        let mut is_clear = true;
        for (index, &a) in drawn.iter().enumerate() {
            for &b in &drawn[index + 1..] {
                let Some(overlap) = rect(points, a).overlap(&rect(points, b)) else { continue };
                is_clear = false;
                // Boxes in the same place move apart too. A little more than needed ends the loop sooner.
                if overlap.x < overlap.y {
                    let way = if points[a].x < points[b].x { -1.0 } else { 1.0 };
                    points[a].x += way * (overlap.x / 2.0 + 0.5);
                    points[b].x -= way * (overlap.x / 2.0 + 0.5);
                } else {
                    let way = if points[a].y < points[b].y { -1.0 } else { 1.0 };
                    points[a].y += way * (overlap.y / 2.0 + 0.5);
                    points[b].y -= way * (overlap.y / 2.0 + 0.5);
                }
            }
        }
        if is_clear {
            return;
        }
    }
}

/// Puts nodes without a link at the right side, in columns as high as the rest of the picture.
fn put_aside(points: &mut [Point], sizes: &[Point], is_aside: &[bool]) {
    let aside: Vec<usize> = (0..points.len()).filter(|at| is_aside[*at]).collect();
    let drawn = || (0..points.len()).filter(|at| !is_aside[*at]);
    let fold = |value: &dyn Fn(usize) -> f64| drawn().map(value).fold(f64::MIN, f64::max);
    let (mut right, mut top, mut bottom) = (
        fold(&|at| points[at].x + sizes[at].x / 2.0),
        -fold(&|at| sizes[at].y / 2.0 - points[at].y),
        fold(&|at| points[at].y + sizes[at].y / 2.0),
    );
    if drawn().next().is_none() {
        // Nothing has a link: about as many columns as rows fill a square, since boxes are wider than high.
        let rows = (aside.len() as f64 * 2.0).sqrt().ceil();
        (right, top, bottom) = (0.0, 0.0, rows * (sizes.first().map_or(0.0, |size| size.y) + GAP));
    }
    let (mut y, mut width) = (top, 0.0_f64);
    let mut left = right + GAP;
    for at in aside {
        if y > top && y + sizes[at].y > bottom {
            (left, y, width) = (left + width + GAP, top, 0.0);
        }
        points[at] = Point { x: left + sizes[at].x / 2.0, y: y + sizes[at].y / 2.0 };
        y += sizes[at].y + GAP;
        width = width.max(sizes[at].x);
    }
}
