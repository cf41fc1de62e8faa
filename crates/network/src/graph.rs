//! A picture of a network, as SVG. Nodes are where the file puts them, or else on a circle with the switches within. Links show
//! their impairments.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::impair::Impairments;
use crate::protocol::{LinkStatus, NetworkStatus};

const SIZE: f64 = 900.0;
const STYLE: &str = "text{font:13px sans-serif;text-anchor:middle}.l{fill:#555;font-size:11px}\
    line{stroke:#789;stroke-width:2}.down{stroke:#c33;stroke-dasharray:6 5}\
    .node{fill:#e8f1fb;stroke:#346}.switch{fill:#f5efdc;stroke:#853}";

/// Draws the network with state `status`.
pub fn svg(status: &NetworkStatus) -> String {
    let positions = positions(status);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n<rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"white\"/>\n",
        escaped(&status.name)
    );
    for link in &status.links {
        draw_link(&mut svg, link, &positions);
    }
    for (name, (x, y)) in &positions {
        let kind = if status.switches.contains_key(name) { "switch" } else { "node" };
        let _ = writeln!(
            svg,
            "<g><rect class=\"{kind}\" x=\"{:.0}\" y=\"{:.0}\" width=\"84\" height=\"34\" rx=\"6\"/>\
             <text x=\"{x:.0}\" y=\"{:.0}\">{}</text></g>",
            x - 42.0,
            y - 17.0,
            y + 5.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

fn positions(status: &NetworkStatus) -> BTreeMap<String, (f64, f64)> {
    let nodes = status.nodes.iter().map(|node| &node.name);
    let outer = circle(nodes.collect(), SIZE * 0.42);
    let inner = if status.switches.len() == 1 { 0.0 } else { SIZE * 0.2 };
    let drawn = outer.into_iter().chain(circle(status.switches.keys().collect(), inner));
    drawn.chain(fitted(&status.positions)).collect()
}

/// Moves and scales positions of any unit, by the same factor in both directions, so that all are in the picture.
fn fitted(positions: &BTreeMap<String, [f64; 2]>) -> Vec<(String, (f64, f64))> {
    const MARGIN: f64 = 70.0;
    let extent = |axis: usize| {
        let all = positions.values().map(|position| position[axis]);
        all.fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(one), most.max(one)))
    };
    let ((left, right), (top, bottom)) = (extent(0), extent(1));
    let scale = (SIZE - 2.0 * MARGIN) / (right - left).max(bottom - top).max(1.0);
    let position = |[x, y]: [f64; 2]| (MARGIN + (x - left) * scale, MARGIN + (y - top) * scale);
    positions.iter().map(|(name, at)| (name.clone(), position(*at))).collect()
}

fn circle(names: Vec<&String>, radius: f64) -> Vec<(String, (f64, f64))> {
    let count = names.len() as f64;
    let position = |(at, name): (usize, &String)| {
        let angle = std::f64::consts::TAU * at as f64 / count - std::f64::consts::FRAC_PI_2;
        let half = SIZE / 2.0;
        (name.clone(), (half + radius * angle.cos(), half + radius * angle.sin()))
    };
    names.into_iter().enumerate().map(position).collect()
}

fn draw_link(svg: &mut String, link: &LinkStatus, positions: &BTreeMap<String, (f64, f64)>) {
    let [there, back] = &link.directions;
    let (Some(&(x1, y1)), Some(&(x2, y2))) =
        (positions.get(&there.from.node), positions.get(&back.from.node))
    else {
        return;
    };
    let class = if link.up { "" } else { " class=\"down\"" };
    let _ =
        writeln!(svg, "<line{class} x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\"/>");
    let mut label = |part: f64, text: &str| {
        let (x, y) = (x1 + (x2 - x1) * part, y1 + (y2 - y1) * part);
        let _ = writeln!(
            svg,
            "<text class=\"l\" x=\"{x:.0}\" y=\"{:.0}\">{}</text>",
            y - 4.0,
            escaped(text)
        );
    };
    label(0.18, &there.from.interface);
    label(0.82, &back.from.interface);
    match (describe(&there.impairments), describe(&back.impairments)) {
        (one, other) if one == other => label(0.5, &one),
        (one, other) => {
            label(0.38, &format!("{one} \u{2192}"));
            label(0.62, &format!("\u{2190} {other}"));
        }
    }
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
