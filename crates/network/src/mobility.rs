//! Positions of nodes over virtual time: jumps, and walks in a straight line at a speed, by scripts.
//!
//! A walk begins at its exact instant. The position then changes in steps, at each multiple of the refresh time since the network's
//! start. The first step at or after the arrival is at the destination. So positions depend on virtual time alone, and all nodes that
//! walk take their steps together.

use std::collections::BTreeMap;

use lorentz_clock::{Span, NANOS_PER_SEC};
use lorentz_emulator::position::Point;

/// Default time between two steps of a walk; CORE's.
pub const DEFAULT_REFRESH: Span = Span(50_000_000);
/// A change of a node's position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Movement {
    /// To the right or left at once, to this coordinate.
    JumpX(f64),
    /// Up or down at once, to this coordinate.
    JumpY(f64),
    /// To a point at once.
    Jump(Point),
    /// To a point in a straight line.
    Walk {
        /// The destination.
        to: Point,
        /// Units of distance per virtual second, above 0.
        speed: f64,
    },
}

/// A change of a node's position at an instant of its script.
#[derive(Clone, PartialEq, Debug)]
pub struct Waypoint {
    /// Virtual time since the script began.
    pub at: Span,
    /// The node.
    pub node: String,
    /// The change.
    pub movement: Movement,
}

/// Waypoints that begin together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MobilityScript {
    /// Virtual time from the network's start to the script's.
    pub start: Span,
    /// Whether it begins anew when all its walks have arrived.
    pub repeats: bool,
    /// Its waypoints, sorted by their instants.
    pub waypoints: Vec<Waypoint>,
}

/// Movements of all nodes of a network.
#[derive(Clone, PartialEq, Debug)]
pub struct MobilityPlan {
    /// Time between two steps of a walk, above 0.
    pub refresh: Span,
    /// Scripts. Where several move a node at one instant, the last one counts.
    pub scripts: Vec<MobilityScript>,
}

#[derive(Debug)]
struct Walk {
    script: usize,
    from: Point,
    to: Point,
    began: Span,
    /// How long it takes, ns.
    nanos: f64,
    arrives: Span,
}

impl Walk {
    fn position_at(&self, now: Span) -> Point {
        if now >= self.arrives {
            return self.to;
        }
        let share = (now.0 - self.began.0) as f64 / self.nanos;
        let between = |from: f64, to: f64| from + (to - from) * share;
        Point { x: between(self.from.x, self.to.x), y: between(self.from.y, self.to.y) }
    }
}

/// Where a script is.
#[derive(Debug)]
struct Progress {
    /// When it began, or will begin. `None` after its end.
    began: Option<Span>,
    /// The next waypoint.
    next: usize,
}

/// The positions of nodes, as they change. Instants are virtual time since the network's start.
#[derive(Debug)]
pub struct Motion {
    plan: MobilityPlan,
    progress: Vec<Progress>,
    positions: BTreeMap<String, Point>,
    walks: BTreeMap<String, Walk>,
    now: Span,
}

impl Motion {
    /// Starts the scripts of `plan`, with nodes at `positions`.
    pub fn new(plan: MobilityPlan, positions: BTreeMap<String, Point>) -> Motion {
        let begin = |script: &MobilityScript| Progress {
            began: (!script.waypoints.is_empty()).then_some(script.start),
            next: 0,
        };
        let progress = plan.scripts.iter().map(begin).collect();
        Motion { plan, progress, positions, walks: BTreeMap::new(), now: Span(-1) }
    }

    /// The present positions.
    pub fn positions(&self) -> &BTreeMap<String, Point> {
        &self.positions
    }

    /// The number of waypoints to come, of scripts that do not repeat.
    pub fn waypoints_to_come(&self) -> usize {
        let left = |(script, progress): (&MobilityScript, &Progress)| match progress.began {
            Some(_) if !script.repeats => script.waypoints.len() - progress.next,
            _ => 0,
        };
        self.plan.scripts.iter().zip(&self.progress).map(left).sum()
    }

    /// The instant of the next change. `None` if there is none.
    pub fn next_due(&self) -> Option<Span> {
        let waypoints = (0..self.progress.len()).filter_map(|script| self.next_waypoint(script));
        let step = (!self.walks.is_empty()).then(|| {
            let refresh = self.plan.refresh.0;
            Span((self.now.0.div_euclid(refresh) + 1) * refresh)
        });
        waypoints.chain(step).min()
    }

    fn next_waypoint(&self, script: usize) -> Option<Span> {
        let Progress { began, next } = self.progress[script];
        Some(Span(began?.0 + self.plan.scripts[script].waypoints.get(next)?.at.0))
    }

    /// Makes the changes at `now`, which is [`Motion::next_due`]. Returns the nodes that have moved.
    pub fn advance(&mut self, now: Span) -> Vec<String> {
        self.now = now;
        let mut moved = Vec::new();
        if now.0 % self.plan.refresh.0 == 0 {
            for (node, walk) in &self.walks {
                self.positions.insert(node.clone(), walk.position_at(now));
                moved.push(node.clone());
            }
            self.walks.retain(|_, walk| walk.arrives > now);
        }
        for script in 0..self.progress.len() {
            self.end_or_repeat(script, now);
            // A script that begins anew now is due twice.
            while self.next_waypoint(script).is_some_and(|due| due <= now) {
                let next = self.progress[script].next;
                self.progress[script].next += 1;
                let Waypoint { node, movement, .. } =
                    self.plan.scripts[script].waypoints[next].clone();
                self.move_node(script, &node, movement, now);
                moved.push(node);
                self.end_or_repeat(script, now);
            }
        }
        // A later script may have ended the last walk of an earlier one.
        (0..self.progress.len()).for_each(|script| self.end_or_repeat(script, now));
        moved
    }

    fn move_node(&mut self, script: usize, node: &str, movement: Movement, now: Span) {
        let walk = self.walks.remove(node);
        let shown = self.positions.get(node).copied().unwrap_or(Point { x: 0.0, y: 0.0 });
        let here = walk.map_or(shown, |walk| walk.position_at(now));
        let there = match movement {
            Movement::JumpX(x) => Point { x, ..here },
            Movement::JumpY(y) => Point { y, ..here },
            Movement::Jump(to) => to,
            Movement::Walk { to, speed } => {
                let nanos = here.distance(to) / speed * NANOS_PER_SEC as f64;
                // The conversion saturates: a walk that takes centuries takes the longest span.
                let arrives = Span(now.0.saturating_add(nanos.ceil() as i64));
                if arrives > now {
                    let walk = Walk { script, from: here, to, began: now, nanos, arrives };
                    self.walks.insert(node.to_string(), walk);
                }
                here
            }
        };
        self.positions.insert(node.to_string(), there);
    }

    /// Ends a script whose walks have arrived, or has it begin anew.
    fn end_or_repeat(&mut self, script: usize, now: Span) {
        let plan = &self.plan.scripts[script];
        let progress = &mut self.progress[script];
        let Some(began) = progress.began else { return };
        let is_walking = self.walks.values().any(|walk| walk.script == script);
        if progress.next < plan.waypoints.len() || is_walking {
            return;
        }
        // A script without walks takes one step.
        progress.began = plan.repeats.then(|| Span(now.0.max(began.0 + self.plan.refresh.0)));
        progress.next = if plan.repeats { 0 } else { progress.next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn point(x: f64, y: f64) -> Point {
        Point { x, y }
    }

    fn at(ms: i64, movement: Movement) -> Waypoint {
        Waypoint { at: Span(ms * MS), node: "a".into(), movement }
    }

    fn walk(x: f64, y: f64, speed: f64) -> Movement {
        Movement::Walk { to: point(x, y), speed }
    }

    fn motion(script: MobilityScript) -> Motion {
        let plan = MobilityPlan { refresh: DEFAULT_REFRESH, scripts: vec![script] };
        Motion::new(plan, BTreeMap::from([("a".into(), point(0.0, 0.0))]))
    }

    /// The instants, ms, and positions of the first `count` changes.
    fn changes(motion: &mut Motion, count: usize) -> Vec<(i64, f64, f64)> {
        let mut seen = Vec::new();
        while let Some(due) = motion.next_due().filter(|_| seen.len() < count) {
            assert!(due > motion.now, "{due:?}");
            assert_eq!(motion.advance(due).first().map(String::as_str), Some("a"));
            let Point { x, y } = motion.positions()["a"];
            seen.push((due.0 / MS, x, y));
        }
        seen
    }

    #[test]
    fn a_walk_goes_in_steps_of_the_refresh_time_and_ends_at_its_destination() {
        let waypoints = vec![at(120, walk(3.0, 4.0, 25.0))];
        let mut motion = motion(MobilityScript { waypoints, ..MobilityScript::default() });
        assert_eq!(motion.waypoints_to_come(), 1);
        // 5 units at 25 a second are 200 ms, from 120 to 320 ms.
        let expected = [
            (120, 0.0, 0.0),
            (150, 0.45, 0.6),
            (200, 1.2, 1.6),
            (250, 1.95, 2.6),
            (300, 2.7, 3.6),
            (350, 3.0, 4.0),
        ];
        let seen = changes(&mut motion, 10);
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
        for ((ms, x, y), (at, right, down)) in seen.into_iter().zip(expected) {
            assert_eq!(ms, at);
            assert!((x - right).abs() < 1e-9 && (y - down).abs() < 1e-9, "{ms}: {x} {y}");
        }
        assert_eq!((motion.next_due(), motion.waypoints_to_come()), (None, 0));
    }

    #[test]
    fn a_later_waypoint_ends_a_walk_where_it_is() {
        let waypoints = vec![
            at(0, walk(100.0, 0.0, 100.0)),
            at(75, walk(7.5, 10.0, 1_000.0)),
            at(90, Movement::JumpX(50.0)),
            at(90, Movement::JumpY(60.0)),
            at(95, Movement::Jump(point(1.0, 2.0))),
        ];
        let mut motion = motion(MobilityScript { waypoints, ..MobilityScript::default() });
        let seen = changes(&mut motion, 10);
        let expected =
            [(0, 0.0, 0.0), (50, 5.0, 0.0), (75, 7.5, 0.0), (90, 50.0, 60.0), (95, 1.0, 2.0)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_script_repeats_from_its_first_waypoint() {
        let waypoints = vec![at(0, Movement::Jump(point(0.0, 0.0))), at(0, walk(10.0, 0.0, 100.0))];
        let start = Span(1_000 * MS);
        let mut motion = motion(MobilityScript { start, repeats: true, waypoints });
        let seen: Vec<(i64, f64)> =
            changes(&mut motion, 5).into_iter().map(|(ms, x, _)| (ms, x)).collect();
        let expected = [(1_000, 0.0), (1_050, 5.0), (1_100, 0.0), (1_150, 5.0), (1_200, 0.0)];
        assert_eq!(seen, expected);
        assert_eq!(motion.waypoints_to_come(), 0);
    }

    #[test]
    fn a_script_without_walks_repeats_once_a_step() {
        let waypoints = vec![at(0, Movement::Jump(point(1.0, 1.0)))];
        let mut motion = motion(MobilityScript { repeats: true, waypoints, ..Default::default() });
        let seen: Vec<i64> = changes(&mut motion, 4).into_iter().map(|(ms, ..)| ms).collect();
        assert_eq!(seen, [0, 50, 100, 150]);
    }

    #[test]
    fn a_walk_without_distance_and_one_without_end_are_walks() {
        let waypoints = vec![at(10, walk(0.0, 0.0, 1.0)), at(20, walk(1e9, 1e9, 1e-300))];
        let mut motion = motion(MobilityScript { waypoints, ..MobilityScript::default() });
        let seen = changes(&mut motion, 3);
        assert_eq!(seen, [(10, 0.0, 0.0), (20, 0.0, 0.0), (50, seen[2].1, seen[2].2)]);
        assert!(seen[2].1 < 1e-9);
    }

    #[test]
    fn points_are_numbers() {
        assert!(Point::new([1e9, -1e9]).is_some());
        for wrong in [f64::NAN, f64::INFINITY, -1.1e9] {
            assert!(Point::new([wrong, 0.0]).is_none() && Point::new([0.0, wrong]).is_none());
        }
        assert_eq!(point(0.0, 0.0).distance(point(3.0, 4.0)), 5.0);
    }
}
