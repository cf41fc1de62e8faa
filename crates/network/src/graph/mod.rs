//! A picture of a network, as SVG. Nodes are where the file puts them, else where a force layout does (`layout`). Links show
//! their impairments.

mod layout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use lorentz_emulator::impair::Impairments;

use crate::plan::{Endpoint, NetworkPlan};
use crate::protocol::NetworkStatus;
use layout::{Point, Rect};

const MARGIN: f64 = 30.0;
const BOX_HEIGHT: f64 = 34.0;
const LABEL_HEIGHT: f64 = 13.0;
/// Width of a character, as part of the font size, at most: for names of wide letters too.
const CHARACTER_WIDTH: f64 = 0.65;
const STYLE: &str = "text{font:13px sans-serif;text-anchor:middle}.l{fill:#555;font-size:11px}\
    line{stroke:#789;stroke-width:2}.down{stroke:#c33;stroke-dasharray:6 5}\
    .node{fill:#e8f1fb;stroke:#346}.switch{fill:#f5efdc;stroke:#853}";

/// Content of the drawing.
struct Picture {
    title: String,
    /// Nodes, switches and hubs.
    boxes: Vec<NodeBox>,
    links: Vec<LinkLine>,
}

struct NodeBox {
    name: String,
    is_switch: bool,
    given: Option<Point>,
}

struct LinkLine {
    ends: [Endpoint; 2],
    impairments: [Impairments; 2],
    is_up: bool,
}

/// Draws the network with state `status`.
pub fn svg(status: &NetworkStatus) -> String {
    let links = status.links.iter().map(|link| LinkLine {
        ends: link.directions.each_ref().map(|way| way.from.clone()),
        impairments: link.directions.each_ref().map(|way| way.impairments.clone()),
        is_up: link.up,
    });
    let nodes = status.nodes.iter().map(|node| &node.name);
    let boxes = boxes(nodes, status.switches.keys(), &status.positions);
    draw(&Picture { title: status.name.clone(), boxes, links: links.collect() })
}

/// Draws the network of `plan`, which need not exist.
pub fn svg_of_plan(plan: &NetworkPlan) -> String {
    let links = plan.links.iter().map(|link| LinkLine {
        ends: link.ends.clone(),
        impairments: link.impairments.clone(),
        is_up: link.is_up,
    });
    let nodes = plan.nodes.iter().map(|node| &node.name);
    let boxes = boxes(nodes, plan.switches.iter().map(|(name, _)| name), &plan.positions);
    draw(&Picture { title: plan.name.clone(), boxes, links: links.collect() })
}

fn boxes<'a>(
    nodes: impl Iterator<Item = &'a String>,
    switches: impl Iterator<Item = &'a String>,
    positions: &BTreeMap<String, [f64; 2]>,
) -> Vec<NodeBox> {
    let all = nodes.map(|name| (name, false)).chain(switches.map(|name| (name, true)));
    let given = |name: &String| positions.get(name).map(|[x, y]| Point { x: *x, y: *y });
    all.map(|(name, is_switch)| NodeBox { name: name.clone(), is_switch, given: given(name) })
        .collect()
}

fn draw(picture: &Picture) -> String {
    let sizes: Vec<Point> = picture.boxes.iter().map(|one| box_size(&one.name)).collect();
    let given: Vec<Option<Point>> = picture.boxes.iter().map(|one| one.given).collect();
    let index: HashMap<&str, usize> =
        picture.boxes.iter().enumerate().map(|(at, one)| (one.name.as_str(), at)).collect();
    let find = |link: &LinkLine, side: usize| index.get(link.ends[side].node.as_str()).copied();
    let joined: Vec<(&LinkLine, (usize, usize))> = picture
        .links
        .iter()
        .filter_map(|link| Some((link, (find(link, 0)?, find(link, 1)?))))
        .collect();
    let pairs: Vec<(usize, usize)> = joined.iter().map(|(_, pair)| *pair).collect();
    let centers = layout::place(&sizes, &given, &pairs);
    let rects: Vec<Rect> = centers
        .iter()
        .zip(&sizes)
        .map(|(center, size)| Rect { center: *center, size: *size })
        .collect();

    let mut body = String::new();
    let mut labels = Labels { taken: rects.clone(), text: String::new() };
    let mut drawn: HashMap<(usize, usize), usize> = HashMap::new();
    for (link, (a, b)) in joined {
        // Several links between the same two nodes lie side by side.
        let number = drawn.entry((a.min(b), a.max(b))).or_default();
        let line = Line::between(centers[a], centers[b], *number, a < b);
        *number += 1;
        draw_link(&mut body, &mut labels, link, &line);
    }
    body += &labels.text;
    for (one, rect) in picture.boxes.iter().zip(&rects) {
        draw_box(&mut body, one, rect);
    }
    let (corner, size) = extent(&labels.taken);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{:.0} {:.0} {:.0} {:.0}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <rect x=\"{0:.0}\" y=\"{1:.0}\" width=\"{2:.0}\" height=\"{3:.0}\" fill=\"white\"/>\n{body}</svg>\n",
        corner.x, corner.y, size.x, size.y, escaped(&picture.title),
    )
}

fn box_size(name: &str) -> Point {
    let width = name.chars().count() as f64 * 13.0 * CHARACTER_WIDTH + 16.0;
    Point { x: width.max(84.0), y: BOX_HEIGHT }
}

/// Returns the upper left corner and the size of a picture that shows all of `rects`.
fn extent(rects: &[Rect]) -> (Point, Point) {
    let fold = |value: &dyn Fn(&Rect) -> f64| rects.iter().map(value).fold(f64::MIN, f64::max);
    let right = fold(&|one| one.center.x + one.size.x / 2.0) + MARGIN;
    let bottom = fold(&|one| one.center.y + one.size.y / 2.0) + MARGIN;
    let left = -fold(&|one| one.size.x / 2.0 - one.center.x) - MARGIN;
    let top = -fold(&|one| one.size.y / 2.0 - one.center.y) - MARGIN;
    (Point { x: left, y: top }, Point { x: right - left, y: bottom - top })
}

/// The line of a link.
struct Line {
    from: Point,
    to: Point,
}

impl Line {
    /// Makes the line number `number`, from 0, between two points. Lines of one pair have the same `is_forward` or the opposite one
    /// by their direction, so that they do not cross.
    fn between(from: Point, to: Point, number: usize, is_forward: bool) -> Line {
        const APART: f64 = 12.0;
        let (x, y) = (to.x - from.x, to.y - from.y);
        let length = x.hypot(y).max(1.0);
        // 0, 1, -1, 2, -2 ...
        let steps = number.div_ceil(2) as f64 * if number % 2 == 1 { 1.0 } else { -1.0 };
        let offset = APART * steps * if is_forward { 1.0 } else { -1.0 };
        let (right, down) = (-y / length * offset, x / length * offset);
        let moved = |point: Point| Point { x: point.x + right, y: point.y + down };
        Line { from: moved(from), to: moved(to) }
    }

    fn at(&self, part: f64) -> Point {
        Point {
            x: self.from.x + (self.to.x - self.from.x) * part,
            y: self.from.y + (self.to.y - self.from.y) * part,
        }
    }
}

/// Labels of links, none of which lies upon another or upon a box.
struct Labels {
    taken: Vec<Rect>,
    text: String,
}

impl Labels {
    /// Draws a label near `part` of the line, where there is room, or nowhere: the line's own title has the text too.
    fn add(&mut self, line: &Line, part: f64, text: &str) {
        if text.is_empty() {
            return;
        }
        let width = text.chars().count() as f64 * 11.0 * CHARACTER_WIDTH;
        let size = Point { x: width, y: LABEL_HEIGHT };
        let parts = [0.0, 0.05, -0.05, 0.1, -0.1, 0.15, -0.15].map(|step| part + step);
        for above in [8.0, -10.0, 22.0, -24.0] {
            for part in parts.into_iter().filter(|part| (0.0..=1.0).contains(part)) {
                let point = line.at(part);
                let center = Point { x: point.x, y: point.y - above };
                let rect = Rect { center, size };
                if self.taken.iter().any(|other| rect.overlap(other).is_some()) {
                    continue;
                }
                let _ = writeln!(
                    self.text,
                    "<text class=\"l\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                    center.x,
                    center.y + 4.0,
                    escaped(text)
                );
                self.taken.push(rect);
                return;
            }
        }
    }
}

fn draw_box(svg: &mut String, one: &NodeBox, rect: &Rect) {
    let kind = if one.is_switch { "switch" } else { "node" };
    let (Point { x, y }, Point { x: width, y: height }) = (rect.center, rect.size);
    let _ = writeln!(
        svg,
        "<g><rect class=\"{kind}\" x=\"{:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\"/>\
         <text x=\"{x:.0}\" y=\"{:.0}\">{}</text></g>",
        x - width / 2.0,
        y - height / 2.0,
        y + 5.0,
        escaped(&one.name)
    );
}

fn draw_link(svg: &mut String, labels: &mut Labels, link: &LinkLine, line: &Line) {
    let class = if link.is_up { "" } else { " class=\"down\"" };
    let [there, back] = link.impairments.each_ref().map(describe);
    let title = format!("{} - {}: {there} / {back}", link.ends[0], link.ends[1]);
    let (Point { x: x1, y: y1 }, Point { x: x2, y: y2 }) = (line.from, line.to);
    let _ = writeln!(
        svg,
        "<line{class} x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\"><title>{}</title></line>",
        escaped(&title)
    );
    if there == back {
        labels.add(line, 0.5, &there);
    } else {
        labels.add(line, 0.42, &format!("{there} \u{2192}"));
        labels.add(line, 0.58, &format!("\u{2190} {back}"));
    }
    labels.add(line, 0.28, &link.ends[0].interface);
    labels.add(line, 0.72, &link.ends[1].interface);
}
/// Describes the impairments in a few words.
pub fn describe(impairments: &Impairments) -> String {
    let jitter = impairments.jitter().spread;
    let all = [
        impairments.rate.map(|rate| rate.to_string()),
        impairments.delay.map(|delay| delay.to_string()),
        impairments.jitter.map(|_| format!("\u{b1}{jitter}")),
        impairments.loss.map(|_| match impairments.loss() {
            bursts if bursts.enter.billionths() > 0 => "loss in bursts".to_string(),
            each => format!("loss {}", each.in_good),
        }),
        impairments.duplicate.map(|p| format!("duplicate {p}")),
        impairments.reorder.map(|p| format!("reorder {p}")),
        impairments.corrupt.map(|p| format!("corrupt {p}")),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
