use super::*;
use crate::check::plan_from_text;

/// The numbers of an attribute of all elements that `start` begins.
fn rects(svg: &str, start: &str) -> Vec<Rect> {
    let number = |line: &str, name: &str| -> f64 {
        let text = line.split(&format!(" {name}=\"")).nth(1).unwrap();
        text.split('"').next().unwrap().parse().unwrap()
    };
    let lines = svg.lines().filter(|line| line.contains(start));
    lines
        .map(|line| match start {
            "<text class=\"l\"" => {
                let text = line.split('>').nth(1).unwrap().split('<').next().unwrap();
                let width = text.chars().count() as f64 * 11.0 * CHARACTER_WIDTH;
                let center = Point { x: number(line, "x"), y: number(line, "y") - 4.0 };
                Rect { center, size: Point { x: width - 2.0, y: LABEL_HEIGHT - 2.0 } }
            }
            _ => {
                let size = Point { x: number(line, "width"), y: number(line, "height") };
                let corner = Point { x: number(line, "x"), y: number(line, "y") };
                let center = Point { x: corner.x + size.x / 2.0, y: corner.y + size.y / 2.0 };
                Rect { center, size }
            }
        })
        .collect()
}

fn drawing(text: &str) -> String {
    svg_of_plan(&plan_from_text("lab.yaml", text).unwrap())
}

/// Checks that nothing lies upon anything else, and that the boxes fill the picture.
fn check(svg: &str, nodes: usize) {
    let boxes = rects(svg, "<g><rect");
    assert_eq!(boxes.len(), nodes);
    let mut all = boxes.clone();
    all.extend(rects(svg, "<text class=\"l\""));
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_eq!(one.overlap(other), None, "{one:?} {other:?}");
        }
    }
    let (corner, size) = extent(&all);
    let view: Vec<f64> = svg
        .split("viewBox=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    for (is, wanted) in view.iter().zip([corner.x, corner.y, size.x, size.y]) {
        assert!((is - wanted).abs() < 5.0, "{view:?}: {corner:?} {size:?}");
    }
}

#[test]
fn boxes_and_labels_do_not_overlap() {
    let mut ring =
        String::from("name: ring\ntopology:\n  nodes:\n    alone: {}\n    also-alone: {}\n");
    let mut links = String::from("  links:\n");
    for at in 0..40 {
        ring += &format!("    a-long-name-of-a-router-{at}: {{}}\n");
        let next = (at + 1) % 40;
        links += &format!(
            "    - {{endpoints: ['a-long-name-of-a-router-{at}:right', 'a-long-name-of-a-router-{next}:left'], \
             rate: 10mbit, delay: {}ms}}\n",
            at + 1
        );
    }
    let svg = drawing(&(ring + &links));
    check(&svg, 42);
    let labels = rects(&svg, "<text class=\"l\"").len();
    assert!(labels >= 100, "most of 120 labels have room, not {labels}");
    // Elements without a link are right of all others.
    let name = |rect: &str| {
        svg.lines().find(|line| line.contains(&format!(">{rect}<"))).unwrap().to_string()
    };
    let alone = rects(&name("alone"), "<g><rect")[0].center.x;
    let ring = rects(&svg, "<g><rect");
    assert_eq!(ring.iter().filter(|rect| rect.center.x > alone + 60.0).count(), 0);
}

#[test]
fn given_positions_keep_their_arrangement() {
    let svg = drawing(
        "name: l\ntopology:\n  nodes:\n    a: {position: [0, 0]}\n    b: {position: [1, 0]}\n    \
         c: {position: [0, 1]}\n    d: {position: [0, 0.01]}\n  links:\n    \
         - {endpoints: ['a:e0', 'b:e0'], from: {'a:e0': {delay: 1ms}, 'b:e0': {delay: 2ms}}}\n    \
         - {endpoints: ['a:e1', 'b:e1'], state: down}\n    - {endpoints: ['a:e2', 'c:e0']}\n",
    );
    check(&svg, 4);
    let at = |name: &str| {
        let line = svg.lines().find(|line| line.contains(&format!(">{name}</text></g>"))).unwrap();
        rects(line, "<g><rect")[0].center
    };
    assert!(at("b").x > at("a").x + 100.0 && at("c").y > at("a").y + 100.0);
    assert!(svg.contains("class=\"down\"") && svg.contains("\u{2190} 2ms"));
}

#[test]
fn a_network_without_links_is_a_block() {
    let nodes: String = (0..30).map(|at| format!("n{at}: {{}}, ")).collect();
    let svg = drawing(&format!("name: l\ntopology: {{nodes: {{{nodes}}}}}\n"));
    check(&svg, 30);
    let (_, size) = extent(&rects(&svg, "<g><rect"));
    assert!(size.x < 2.0 * size.y && size.y < 2.0 * size.x, "{size:?}");
}
