//! The basic range model and the mobility scripts of CORE, as its XML and its `.imn` configure them for a wlan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lorentz_clock::Span;
use lorentz_emulator::impair::Impairments;
use lorentz_emulator::units::{BitRate, Delay};

use super::draft::{Draft, Numbers, Position, Read};
use crate::check::script_text;
use crate::ns2;
use crate::topology::{Radio, ScriptFile};

/// Keys of the basic range model, in the order in which the oldest files give their values.
pub(super) const BASIC_RANGE: [&str; 5] = ["range", "bandwidth", "jitter", "delay", "error"];

/// A range that all positions are in.
const EVERYWHERE: &str = "1000000000";

/// A setting: its key, its value, and its place.
pub(super) type Setting<'a> = (&'a str, &'a str, Position);

/// The radio of a wlan that has no settings: range 275, 54 Mbit/s, 5 ms.
pub(super) fn default_radio() -> Radio {
    let (rate, delay) = (BitRate::new(54_000_000), Delay::new(Span(5_000_000)));
    Radio { rate, delay, ..Radio::new(275.0) }
}

/// Gives the wlan `name` the settings of its basic range model.
pub(super) fn basic_range(draft: &mut Draft, name: &str, settings: &[Setting]) -> Read<()> {
    let Some(radio) = draft.node(name).and_then(|node| node.radio.clone()) else { return Ok(()) };
    let mut radio = radio;
    for (key, value, at) in settings.iter().filter(|(_, value, _)| !value.is_empty()) {
        let numbers = Numbers { draft, at: *at };
        let to = &mut radio.value;
        match *key {
            "range" => match value.parse::<f64>() {
                Ok(range) if range > 0.0 => to.range = range,
                _ => return numbers.expected(key, value, "a distance above 0"),
            },
            "bandwidth" => to.rate = numbers.rate(key, value)?,
            "jitter" => to.jitter = numbers.jitter(key, value)?,
            "delay" => to.delay = numbers.delay(key, value)?,
            "error" => to.loss = numbers.loss(key, value)?,
            // Every frame reaches all in range here. The kernel of a node drops what is not for it.
            "promiscuous" => {}
            _ => draft.leave_out(*at, format!("wlan {name}: {key} {value}")),
        }
    }
    if let Some(node) = draft.node(name) {
        node.radio = Some(radio);
    }
    Ok(())
}

/// Gives the wlan `name` the settings of CORE's wireless network. There a pair of members has a loss that grows with their distance
/// from `loss-range` on. Here all frames have the same, which is noted as left out.
pub(super) fn wireless(draft: &mut Draft, name: &str, settings: &[Setting]) -> Read<()> {
    let mut model = Vec::new();
    for (key, value, at) in settings {
        match *key {
            "max-range" => model.push(("range", *value, *at)),
            // Its links do not follow positions.
            "movement" if *value == "0" => model.push(("range", EVERYWHERE, *at)),
            "movement" | "loss-factor" => {}
            "loss" => model.push(("error", *value, *at)),
            "loss-range" => {
                let number = |key: &str| {
                    let found = settings.iter().find(|(one, _, _)| *one == key);
                    found.and_then(|(_, value, _)| value.parse::<f64>().ok())
                };
                let grows = number("loss-range") < number("max-range");
                if grows && number("loss-factor") != Some(0.0) {
                    let what =
                        format!("wlan {name}: loss that grows from a distance of {value} on");
                    draft.leave_out(*at, what);
                }
            }
            _ => model.push((*key, *value, *at)),
        }
    }
    // The last of two ranges counts.
    model.sort_by_key(|(key, value, _)| (*key == "range", *value == EVERYWHERE));
    basic_range(draft, name, &model)
}

/// Adds the mobility script of the wlan `name`. `nodes` has the names of nodes by their numbers.
pub(super) fn ns2script(
    draft: &mut Draft,
    name: &str,
    settings: &[Setting],
    nodes: &BTreeMap<u32, String>,
) -> Read<()> {
    let find = |key: &str| settings.iter().find(|(one, value, _)| *one == key && !value.is_empty());
    let Some((_, file, at)) = find("file") else { return Ok(()) };
    let Some((path, text)) = find_script(draft, file) else {
        draft.leave_out(
            *at,
            format!(
                "wlan {name}: mobility script {file}: not found; expected it beside the scenario"
            ),
        );
        return Ok(());
    };
    for key in ["script_start", "script_pause", "script_stop"] {
        if let Some((key, value, at)) = find(key) {
            draft.leave_out(*at, format!("wlan {name}: {key} {value}"));
        }
    }
    let start = find("autostart").map_or(Ok(Delay::default()), |setting| start(draft, setting))?;
    if let Some(setting) = find("refresh_ms") {
        set_refresh(draft, setting)?;
    }
    let repeats = find("loop").is_some_and(|(_, value, _)| !["0", "off", "false"].contains(value));
    let path = path.display().to_string();
    let mentioned: BTreeSet<u32> = ns2::parse(&path, &text)?.iter().map(|one| one.node).collect();
    let given = find("map").map(|(_, value, at)| mapped(draft, value, *at)).transpose()?;
    let mut map = BTreeMap::new();
    for number in mentioned {
        // CORE maps numbers of the script to those of its nodes.
        let node = given.as_ref().and_then(|map| map.get(&number)).unwrap_or(&number);
        match nodes.get(node) {
            Some(node) => {
                map.insert(number.to_string(), node.clone());
            }
            None => draft.leave_out(
                *at,
                format!("wlan {name}: mobility script {file}: node {number} is not there"),
            ),
        }
    }
    if !map.is_empty() {
        draft.file.mobility.scripts.push(at.of(ScriptFile { file: path, start, repeats, map }));
    }
    Ok(())
}

/// Reads when a script starts.
fn start(draft: &Draft, (key, value, at): &Setting) -> Read<Delay> {
    match value.parse() {
        Ok(start) => Ok(start),
        Err(_) => Numbers { draft, at: *at }.expected(key, value, "seconds, up to a day"),
    }
}

/// Reads how often the nodes of a script take a step. All walks take their steps together.
fn set_refresh(draft: &mut Draft, (key, value, at): &Setting) -> Read<()> {
    let numbers = Numbers { draft, at: *at };
    let millis = numbers.whole(key, value)?.and_then(|millis| i64::try_from(millis).ok());
    let Some(refresh) = millis.and_then(|n| Delay::new(Span(n.saturating_mul(1_000_000)))) else {
        return numbers.expected(key, value, "milliseconds from 1 to a day");
    };
    let known = draft.file.mobility.refresh.as_ref().map(|known| known.value);
    let least = known.map_or(refresh, |known| known.min(refresh));
    draft.file.mobility.refresh = Some(at.of(least));
    Ok(())
}

/// Reads CORE's map, as 0:1,1:2.
fn mapped(draft: &Draft, text: &str, at: Position) -> Read<BTreeMap<u32, u32>> {
    let pair = |pair: &str| {
        let (one, other) = pair.split_once(':')?;
        Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
    };
    let pairs: Option<BTreeMap<u32, u32>> = text.split(',').map(pair).collect();
    let numbers = Numbers { draft, at };
    pairs.map_or_else(|| numbers.expected("map", text, "pairs of numbers such as 0:1,1:2"), Ok)
}

/// Returns the path and the text of a mobility script. CORE keeps scripts in a directory of its own, and names some by a path on the
/// machine on which the scenario was written: they are expected beside the scenario, or in the directory `mobility` beside its own.
fn find_script(draft: &Draft, file: &str) -> Option<(PathBuf, String)> {
    let scenario = Path::new(&draft.name);
    let folder = scenario.parent()?;
    let named = Path::new(file).file_name()?;
    let beside = folder.join(named);
    let candidates = [folder.join(file), beside, folder.join("..").join("mobility").join(named)];
    let read = |path: &PathBuf| Some((path.canonicalize().ok()?, script_text(path).ok()?));
    candidates.iter().find_map(read)
}

/// Gives members of wlans without a position one, and takes the impairments of their links away: the wlan's count.
pub(super) fn complete_members(draft: &mut Draft) {
    let links: Vec<(usize, String)> = (draft.file.topology.links.iter().enumerate())
        .filter_map(|(at, link)| {
            let nodes = link.value.endpoints.iter().filter_map(|end| end.value.split(':').next());
            let nodes: Vec<&str> = nodes.collect();
            let is_wlan = |name: &&str| draft.is_wlan(name);
            let member = nodes.iter().find(|name| !draft.is_wlan(name))?;
            nodes.iter().any(is_wlan).then(|| (at, member.to_string()))
        })
        .collect();
    let mut outside = Vec::new();
    for (at, member) in links {
        if draft.is_switch(&member) {
            outside.push(at);
            continue;
        }
        let link = &mut draft.file.topology.links[at].value;
        link.set_impairments(&Impairments::default());
        link.from.clear();
        let place = Position::from_location(draft.file.topology.links[at].defined);
        if draft.node(&member).is_some_and(|node| node.position.is_none()) {
            draft
                .leave_out(place, format!("node {member}: no position in its wlan; it is at 0, 0"));
            if let Some(node) = draft.node(&member) {
                node.position = Some([0.0, 0.0]);
            }
        }
    }
    for at in outside.into_iter().rev() {
        let link = draft.file.topology.links.remove(at);
        let ends: Vec<&str> = link.value.endpoints.iter().map(|end| end.value.as_str()).collect();
        let what = format!("link {}: a wlan takes nodes that run programs alone", ends.join(" - "));
        draft.leave_out(Position::from_location(link.defined), what);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::check::plan_from;
    use crate::import::{read_text, Format};
    use crate::mobility::Movement;
    use crate::plan::NetworkPlan;
    use lorentz_clock::Span;
    use lorentz_emulator::position::Point;
    use lorentz_emulator::SwitchKind;

    fn scenario(mobility: &str) -> String {
        format!(
            r#"<scenario><networks><network id="10" name="air" type="WIRELESS_LAN" model="basic_range" mobility="ns2script"><position x="1" y="1"/></network></networks>
<devices><device id="1" name="a" type="PC"><position x="10" y="20"/></device><device id="2" name="b" type="PC"><position x="30" y="40"/></device></devices>
<links><link node1="10" node2="1"><iface2 name="eth0" ip4="10.0.0.1" ip4_mask="32"/><options delay="50000" bandwidth="54000000"/></link>
<link node1="10" node2="2"><iface2 name="eth0"/></link></links>
<mobility_configurations>{mobility}</mobility_configurations></scenario>"#
        )
    }

    fn read(path: &Path, mobility: &str) -> (NetworkPlan, Vec<String>) {
        let imported = read_text(path, Format::Core, &scenario(mobility)).unwrap();
        let plan = plan_from(&imported.name, &imported.topology).unwrap();
        (plan, imported.left_out.into_iter().map(|one| one.what).collect())
    }

    #[test]
    fn a_wlan_has_the_settings_of_its_model_or_cores() {
        let path = Path::new("/nowhere/x.xml");
        let (plan, left_out) = read(path, "");
        assert_eq!(plan.switches, [("air".to_string(), SwitchKind::Wlan { range: 275.0 })]);
        let radio = &plan.links[0].impairments[0];
        assert_eq!(radio.rate.unwrap().to_string(), "54mbit");
        assert_eq!(radio.delay.unwrap().to_string(), "5ms");
        // The options of the link are CORE's copy of the wlan's.
        assert!(plan.links[0].impairments[1].is_empty() && left_out.is_empty(), "{left_out:?}");
        let (plan, left_out) = read(
            path,
            r#"<mobility_configuration node="10" model="basic_range"><configuration name="range" value="240"/>
            <configuration name="bandwidth" value="1000000"/><configuration name="jitter" value="100"/>
            <configuration name="delay" value="2000"/><configuration name="error" value="0.5"/>
            <configuration name="promiscuous" value="0"/></mobility_configuration>
            <mobility_configuration node="10" model="ns2script"><configuration name="file" value="gone.scen"/></mobility_configuration>"#,
        );
        let radio = &plan.links[1].impairments[0];
        assert_eq!(plan.switches[0].1, SwitchKind::Wlan { range: 240.0 });
        assert_eq!(radio.rate.unwrap().to_string(), "1mbit");
        assert_eq!(radio.delay.unwrap().to_string(), "2ms");
        assert_eq!(radio.jitter().spread.to_string(), "100us");
        assert!(radio.loss.is_some());
        assert_eq!(left_out.len(), 1);
        assert!(left_out[0].contains("gone.scen: not found"), "{left_out:?}");
    }

    #[test]
    fn members_move_by_the_script_beside_the_scenario() {
        let folder = std::env::temp_dir().join(format!("lorentz-scen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.xml");
        let text = "$node_(1) set X_ 5\n$ns_ at 1 \"$node_(2) setdest 1 2 3\"\n$ns_ at 1 \"$node_(9) setdest 1 2 3\"\n";
        std::fs::write(folder.join("walk.scen"), text).unwrap();
        let mobility = |map: &str| {
            format!(
                r#"<mobility_configuration node="10" model="ns2script"><configuration name="file" value="/home/developer/walk.scen"/>
                <configuration name="refresh_ms" value="20"/><configuration name="loop" value="1"/>
                <configuration name="autostart" value="5"/><configuration name="map" value="{map}"/></mobility_configuration>"#
            )
        };
        let (plan, left_out) = read(&path, &mobility(""));
        assert_eq!(plan.mobility.refresh, Span(20_000_000));
        let script = &plan.mobility.scripts[1];
        assert_eq!((script.start, script.repeats), (Span::from_secs(5), true));
        let to = Point { x: 1.0, y: 2.0 };
        let seen: Vec<_> =
            script.waypoints.iter().map(|one| (one.node.as_str(), one.movement)).collect();
        assert_eq!(seen, [("a", Movement::JumpX(5.0)), ("b", Movement::Walk { to, speed: 3.0 })]);
        assert_eq!(left_out.len(), 1);
        assert!(left_out[0].contains("node 9 is not there"), "{left_out:?}");
        let (plan, _) = read(&path, &mobility("1:2,9:1"));
        let nodes = plan.mobility.scripts[1].waypoints.iter().map(|one| one.node.as_str());
        assert_eq!(nodes.collect::<Vec<_>>(), ["b", "b", "a"]);
        let wrong = |text: &str| read_text(&path, Format::Core, &scenario(text)).unwrap_err();
        assert!(wrong(&mobility("1")).to_string().contains("map: \"1\": expected pairs"));
        std::fs::write(folder.join("walk.scen"), "$node_(1) set X_ far\n").unwrap();
        assert!(wrong(&mobility("")).to_string().contains("walk.scen:1:18: \"far\""));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// CORE 4's files: the newer ones with keys, the oldest with values alone.
    #[test]
    fn models_of_imn_are_read() {
        for config in ["range=240\n\tdelay=2000", "240\n\t54000000\n\t0\n\t2000\n\t0"] {
            let text = format!(
                "node n1 {{\n type router\n iconcoords {{1 2}}\n interface-peer {{eth0 n2}}\n}}\n\
                 node n2 {{\n type wlan\n network-config {{\n\thostname air\n\t!\n\tmobmodel\n\tcoreapi\n\tbasic_range\n\t!\n }}\n \
                 interface-peer {{e0 n1}}\n custom-config {{\n\tcustom-config-id basic_range\n\tconfig {{\n\t{config}\n\t}}\n }}\n}}\n\
                 link l1 {{\n nodes {{n2 n1}}\n bandwidth 54000000\n}}\n"
            );
            let imported = read_text(Path::new("/nowhere/x.imn"), Format::Imn, &text).unwrap();
            let plan = plan_from(&imported.name, &imported.topology).unwrap();
            assert_eq!(plan.switches, [("air".to_string(), SwitchKind::Wlan { range: 240.0 })]);
            let radio = &plan.links[0].impairments[0];
            assert_eq!(radio.delay.unwrap().to_string(), "2ms");
            assert!(imported.left_out.is_empty(), "{:?}", imported.left_out);
            let emane = text.replace("\tbasic_range\n\t!", "\temane_rfpipe\n\t!");
            let imported = read_text(Path::new("/nowhere/x.imn"), Format::Imn, &emane).unwrap();
            assert!(imported.left_out[0].what.contains("emane_rfpipe, and its links"));
        }
    }
}
