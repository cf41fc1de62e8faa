//! Links of an `.imn` file.

use lorentz_emulator::impair::Impairments;
use serde_saphyr::Spanned;

use super::station::Station;
use crate::import::draft::{link, Draft, Numbers, Position, Read};
use crate::import::tcl::{pairs, short, value_of, words, Word};
use crate::topology::Link;

pub(super) fn read_link(
    draft: &mut Draft,
    name: &Word,
    body: &Word,
    stations: &mut [Station],
) -> Read<()> {
    let settings = pairs(draft, body)?;
    let nodes = settings.iter().find(|(key, _)| key.text == "nodes");
    let Some((_, nodes)) = nodes else {
        return draft.error(name.at, format!("link {}: expected nodes", name.text));
    };
    let ids = words(draft, nodes)?;
    let [one, other] = &ids[..] else {
        return draft.error(nodes.at, format!("nodes: {}: expected two", nodes.text));
    };
    let find = |id: &str| stations.iter().position(|station| station.id == id);
    let (Some(first), Some(second)) = (find(one.text), find(other.text)) else {
        let what = format!("link {}: {} - {}", name.text, one.text, other.text);
        draft.leave_out(name.at, format!("{what}: an end is not there"));
        return Ok(());
    };
    let named = value_of(&settings, "ifaces").map(|named| words(draft, named)).transpose()?;
    let named = |side: usize| named.as_ref().and_then(|all| all.get(side)).map(|one| one.text);
    let first = take_end(draft, name.text, [one, other], named(0), &mut stations[first])?;
    let second = take_end(draft, name.text, [other, one], named(1), &mut stations[second])?;
    let lines = [first.lines, second.lines];
    let mut made = link([first.name, second.name]);
    let ends = made.endpoints.clone();
    made.ipv4 = addresses(draft, &ends, &lines, "ip address ");
    made.ipv6 = addresses(draft, &ends, &lines, "ipv6 address ");
    made.mac = addresses(draft, &ends, &lines, "mac address ");
    let impairments_of_ends = impairments_of_ends(draft, name, &settings)?;
    set_impairments_of_ends(&mut made, name.at, impairments_of_ends);
    draft.add_link(name.at, made);
    Ok(())
}

/// An end of a link: its name, and the lines about it in its node's configuration.
struct LinkEnd<'a> {
    name: Spanned<String>,
    lines: Vec<&'a str>,
}

/// Returns the interface of `station` that leads to the peer: the one that the link names, or else the next one.
fn take_end<'a>(
    draft: &Draft,
    link: &str,
    [own, peer]: [&Word; 2],
    named: Option<&str>,
    station: &mut Station<'a>,
) -> Read<LinkEnd<'a>> {
    let leading = station.peers.iter().filter(|(_, to)| *to == peer.text);
    let mut unused: Vec<&str> = leading.map(|(interface, _)| *interface).collect();
    unused.retain(|interface| !station.taken.contains(interface));
    let is_named = |interface: &&&str| Some(**interface) == named;
    let Some(&interface) = unused.iter().find(is_named).or(unused.first()) else {
        let what = format!("link {link}: {}: has no interface-peer for {}", own.text, peer.text);
        return draft.error(own.at, what);
    };
    station.taken.push(interface);
    let configured = station.interfaces.iter().filter(|(name, _)| *name == interface);
    let lines = match draft.is_switch(&station.name) {
        true => Vec::new(),
        false => configured.flat_map(|(_, lines)| lines.clone()).collect(),
    };
    Ok(LinkEnd { name: own.at.of(format!("{}:{interface}", station.name)), lines })
}

/// Reads the impairments of frames from each end. Notes the other settings of the link as left out.
fn impairments_of_ends(
    draft: &mut Draft,
    name: &Word,
    settings: &[(Word, Word)],
) -> Read<[Impairments; 2]> {
    const OTHERS: [&str; 4] = ["nodes", "ifaces", "color", "width"];
    let mut impairments_of_ends = [Impairments::default(), Impairments::default()];
    for (key, value) in settings {
        // One value for both ends, or one for each.
        let values = words(draft, value)?;
        let mut is_known = OTHERS.contains(&key.text);
        for (side, impairments) in impairments_of_ends.iter_mut().enumerate() {
            let Some(text) = values.get(side).or(values.first()) else { continue };
            is_known |=
                set_impairment(&Numbers { draft, at: text.at }, key.text, text.text, impairments)?;
        }
        if !is_known && value.text != "0" {
            let what = format!("link {}: {} {}", name.text, key.text, short(value.text));
            draft.leave_out(key.at, what);
        }
    }
    Ok(impairments_of_ends)
}

/// Sets an impairment. Returns false if `key` is none.
fn set_impairment(
    numbers: &Numbers,
    key: &str,
    text: &str,
    impairments: &mut Impairments,
) -> Read<bool> {
    match key {
        "bandwidth" => impairments.rate = numbers.rate(key, text)?,
        "delay" => impairments.delay = numbers.delay(key, text)?,
        "jitter" => impairments.jitter = numbers.jitter(key, text)?,
        "loss" => impairments.loss = numbers.loss(key, text)?,
        "duplicate" => impairments.duplicate = numbers.percent(key, text)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets the impairments for both directions if they are the same, else for each.
fn set_impairments_of_ends(made: &mut Link, at: Position, impairments_of_ends: [Impairments; 2]) {
    if impairments_of_ends[0] == impairments_of_ends[1] {
        let [impairments, _] = impairments_of_ends;
        return made.set_impairments(&impairments);
    }
    let names: Vec<String> = made.endpoints.iter().map(|end| end.value.clone()).collect();
    made.from =
        names.into_iter().zip(impairments_of_ends.map(|impairments| at.of(impairments))).collect();
}

/// Returns the addresses in the lines of each end that begin with `start`. The first one is the interface's. The others are noted
/// as left out.
fn addresses(
    draft: &mut Draft,
    ends: &[Spanned<String>],
    lines: &[Vec<&str>; 2],
    start: &str,
) -> Vec<Option<Spanned<String>>> {
    let mut both = Vec::new();
    for (end, lines) in ends.iter().zip(lines) {
        let at = Position::from_location(end.defined);
        let mut given = lines.iter().filter_map(|line| line.strip_prefix(start));
        both.push(given.next().map(|text| at.of(text.trim().to_string())));
        for more in given {
            let what = format!("interface {}: {start}{more}: expected one", end.value);
            draft.leave_out(at, what);
        }
    }
    if both.iter().all(Option::is_none) {
        Vec::new()
    } else {
        both
    }
}
