//! Wireless LANs: their radio, and their members.

use lorentz_emulator::SwitchKind;
use serde_saphyr::Location;
use serde_saphyr::Spanned;

use super::error::{refuse, PlanError};
use crate::plan::{LinkPlan, NetworkPlan};
use crate::topology::{Link, Node, NodeKind, TopologyFile};

/// Greatest range, in the unit of positions.
const MAX_RANGE: f64 = 1e9;

/// Checks the radio of the wlan `name`.
pub(super) fn kind(name: &str, at: Location, node: &Node) -> Result<SwitchKind, PlanError> {
    let Some(radio) = &node.radio else {
        return refuse(at, format!("node {name}: a wlan: expected 'radio: {{range: 250}}'"));
    };
    let (at, radio) = (radio.defined, &radio.value);
    let range = radio.range;
    // Also false for what is not a number.
    let is_good = range > 0.0 && range <= MAX_RANGE;
    if !is_good {
        let what = format!(
            "node {name}: radio: range: {range}: expected a distance above 0, at most {MAX_RANGE}"
        );
        return refuse(at, what);
    }
    let check = radio.impairments().check();
    check.or_else(|what| refuse(at, format!("node {name}: radio: {what}")))?;
    Ok(SwitchKind::Wlan { range })
}

/// Checks a link to a wlan, and gives the frames that the wlan sends over it the impairments of its radio.
pub(super) fn join(
    link: &Spanned<Link>,
    file: &TopologyFile,
    plan: &NetworkPlan,
    checked: &mut LinkPlan,
) -> Result<(), PlanError> {
    let Some(side) = (0..2).find(|side| plan.is_wlan(&checked.ends[*side].node)) else {
        return Ok(());
    };
    let node = |side: usize| &file.topology.nodes[&checked.ends[side].node].value;
    let (wlan, member) = (&checked.ends[side].node, &checked.ends[1 - side].node);
    if node(1 - side).kind != NodeKind::Process {
        let what = format!(
            "endpoints: {member}: a member of the wlan {wlan}; expected a node that runs programs"
        );
        return refuse(link.value.endpoints[1 - side].defined, what);
    }
    if !link.value.impairments().is_empty() || !link.value.from.is_empty() {
        let what =
            format!("link to the wlan {wlan}: has impairments; expected them in radio of {wlan}");
        return refuse(link.defined, what);
    }
    if node(1 - side).position.is_none() {
        let what = format!("node {member}: a member of the wlan {wlan}; expected a position");
        return refuse(file.topology.nodes[member].defined, what);
    }
    if let Some(radio) = &node(side).radio {
        checked.impairments[side] = radio.value.impairments();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::check::plan_from_text;
    use crate::mobility::{Movement, Waypoint};
    use lorentz_clock::Span;
    use lorentz_emulator::position::Point;
    use lorentz_emulator::SwitchKind;

    const WLAN: &str = "\
name: air
topology:
  nodes:
    a: {position: [0, 0]}
    b: {position: [100, 0]}
    w: {kind: wlan, radio: {range: 120, rate: 54mbit, delay: 5ms}}
  links:
    - {endpoints: ['a:eth0', 'w:a'], ipv4: [10.0.0.1/24, null]}
    - {endpoints: ['w:b', 'b:eth0'], ipv4: [null, 10.0.0.2/24]}
";

    #[test]
    fn receivers_have_the_impairments_of_the_radio() {
        for rounds in ["", "rounds: true\n"] {
            let plan = plan_from_text("x.yaml", &format!("{rounds}{WLAN}")).unwrap();
            assert_eq!(plan.switches, [("w".to_string(), SwitchKind::Wlan { range: 120.0 })]);
            for (link, from_wlan) in plan.links.iter().zip([1, 0]) {
                let radio = &link.impairments[from_wlan];
                assert_eq!(radio.delay.unwrap().to_string(), "5ms");
                assert!(link.impairments[1 - from_wlan].is_empty());
            }
        }
    }

    #[test]
    fn movements_are_in_the_plan() {
        let text = format!(
            "{WLAN}schedule:
  - {{at: 3s, node: b, position: [50, 0], speed: 10}}
  - {{at: 2s, node: a, position: [1, 2]}}
  - {{at: 1s, link: 'w:a', set: {{loss: 1%}}}}
mobility: {{refresh: 100ms}}
"
        );
        let plan = plan_from_text("x.yaml", &text).unwrap();
        assert_eq!((plan.schedule.len(), plan.mobility.refresh), (1, Span(100_000_000)));
        let to = Point { x: 50.0, y: 0.0 };
        let expected = [
            ("a", 2, Movement::Jump(Point { x: 1.0, y: 2.0 })),
            ("b", 3, Movement::Walk { to, speed: 10.0 }),
        ];
        let expected = expected.map(|(node, seconds, movement)| Waypoint {
            at: Span::from_secs(seconds),
            node: node.into(),
            movement,
        });
        assert_eq!(plan.mobility.scripts[0].waypoints, expected);
    }

    #[test]
    fn a_script_is_read_beside_the_topology_file() {
        let folder = std::env::temp_dir().join(format!("lorentz-ns2-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("x.yaml").display().to_string();
        let script = |text: &str| std::fs::write(folder.join("walk.ns2"), text).unwrap();
        let plan = |map: &str| {
            let text = format!("{WLAN}mobility: {{scripts: [{{file: walk.ns2, start: 1s, loop: true, map: {map}}}]}}\n");
            plan_from_text(&file, &text)
        };
        script("$node_(7) set X_ 1\n$ns_ at 2 \"$node_(8) setdest 1 2 3\"\n");
        let scripts = plan("{7: b}").unwrap().mobility.scripts;
        let waypoint =
            Waypoint { at: Span::ZERO, node: "b".into(), movement: Movement::JumpX(1.0) };
        assert_eq!(scripts[1].waypoints, [waypoint]);
        assert_eq!((scripts[1].start, scripts[1].repeats), (Span::from_secs(1), true));
        let refusals = [
            (
                "{}",
                "walk.ns2:1:1: node 7: no node is called 7 or n7; expected one of a, b, w, or map",
            ),
            ("{7: c}", "x.yaml:10:22: scripts: map: 7: c: no such node; expected one of a, b, w"),
            (
                "{x: a}",
                "x.yaml:10:22: scripts: map: x: expected the number of a node in the script",
            ),
        ];
        for (map, expected) in refusals {
            let wrong = plan(map).unwrap_err().to_string();
            assert!(wrong.ends_with(expected), "{wrong}");
        }
        script("$node_(7) set X_ far\n");
        assert!(plan("{7: b}").unwrap_err().to_string().contains("walk.ns2:1:18: \"far\""));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(plan("{7: b}").unwrap_err().what.contains("walk.ns2: "));
    }

    /// Each row: a text of [`WLAN`] and what stands in its place, the line and column of the error, and words of its message.
    #[test]
    fn what_is_wrong_is_pointed_at() {
        let radio = "radio: {range: 120, rate: 54mbit, delay: 5ms}";
        let cases = [
            (radio, "stp: true", (6, 8), "kind: switch"),
            (radio, "exec: [x]", (6, 8), "runs nothing"),
            (radio, "", (6, 8), "radio: {range"),
            (radio, "radio: {rate: 1mbit}", (6, 29), "range"),
            (radio, "radio: {range: 0}", (6, 28), "above 0"),
            (radio, "radio: {range: .nan}", (6, 28), "above 0"),
            (radio, "radio: {range: 1, reorder: 1%}", (6, 28), "radio: reorder"),
            ("kind: wlan", "kind: switch", (6, 30), "kind: wlan"),
            ("b: {position: [100, 0]}", "b: {}", (5, 8), "expected a position"),
            ("b: {position: [100, 0]}", "b: {position: [.inf, 0]}", (5, 8), "position: "),
            (
                "'a:eth0', 'w:a'], ipv4: [10.0.0.1/24, null]",
                "'w:c', 'w:a']",
                (8, 27),
                "runs programs",
            ),
            ("10.0.0.1/24, null]", "10.0.0.1/24, null], delay: 1ms", (8, 7), "radio of w"),
        ];
        for (from, to, place, words) in cases {
            let wrong = plan_from_text("x.yaml", &WLAN.replace(from, to)).unwrap_err();
            let good = (wrong.line, wrong.column) == place && wrong.what.contains(words);
            assert!(good && !wrong.what.contains('\n'), "{to}: {wrong}; expected {place:?}");
        }
    }

    #[test]
    fn wrong_movements_are_pointed_at() {
        let cases = [
            ("{at: 1s}", (11, 5), "expected link with set"),
            ("{at: 1s, node: a, link: 'a:eth0', state: up}", (11, 5), "expected link with set"),
            ("{at: 1s, node: a}", (11, 5), "expected a position"),
            ("{at: 1s, node: c, position: [1, 2]}", (11, 20), "expected one of a, b, w"),
            ("{at: 1s, node: w, position: [1, 2]}", (11, 20), "expected a node that runs programs"),
            ("{at: 1s, node: a, position: [1, .inf]}", (11, 5), "position"),
            ("{at: 1s, node: a, position: [1, 2], speed: 0}", (11, 5), "speed: 0"),
            ("{at: 1s, node: a, position: [1]}", (11, 23), "length 2"),
        ];
        for (change, place, words) in cases {
            let text = format!("{WLAN}schedule:\n  - {change}\n");
            let wrong = plan_from_text("x.yaml", &text).unwrap_err();
            let good = (wrong.line, wrong.column) == place && wrong.what.contains(words);
            assert!(good && !wrong.what.contains('\n'), "{change}: {wrong}; expected {place:?}");
        }
        let text = format!("{WLAN}mobility: {{refresh: 0}}\n");
        let wrong = plan_from_text("x.yaml", &text).unwrap_err();
        assert!(wrong.what.contains("refresh: 0s: expected a duration of 1ms or more"), "{wrong}");
    }
}
