//! Nodes of an `.imn` file and their interfaces.

use serde_saphyr::Spanned;

use crate::import::draft::{Draft, Position, Read, OF_LOOPBACK};
use crate::import::services::Wanted;
use crate::import::wlan;
use crate::topology::NodeKind;

/// Facts about a node that links need.
pub(super) struct Station<'a> {
    pub name: String,
    pub id: &'a str,
    pub at: Position,
    /// Interface, and the id of the node to which it leads.
    pub peers: Vec<(&'a str, &'a str)>,
    /// Interface, and the lines of its configuration.
    pub interfaces: Vec<(&'a str, Vec<&'a str>)>,
    pub is_host: bool,
    pub taken: Vec<&'a str>,
    pub services: Vec<Wanted>,
    /// Lines of the routing daemons in its configuration, and where they begin.
    pub routing: Option<Spanned<String>>,
    /// Its TDF, in files of TimeKeeper's CORE.
    pub dilation: Option<Spanned<String>>,
    /// Of a wlan: settings of its radio.
    pub radio: Vec<wlan::Setting<'a>>,
    /// Of a wlan: settings of the scripts by which its members move.
    pub scripts: Vec<Vec<wlan::Setting<'a>>>,
}

/// Makes the interfaces of a node whose link is left out, and those without a link.
pub(super) fn make_dangling(draft: &mut Draft, station: &Station) -> Read<()> {
    let unlinked = station.peers.iter().filter(|(interface, _)| !station.taken.contains(interface));
    for (interface, _) in unlinked {
        let configured = station.interfaces.iter().filter(|(name, _)| name == interface);
        let lines: Vec<&str> = configured.flat_map(|(_, lines)| lines.clone()).collect();
        let first = |start: &str| {
            let found = lines.iter().find_map(|line| line.strip_prefix(start));
            found.map(|text| station.at.of(text.trim().to_string()))
        };
        let addresses = [first("ip address "), first("ipv6 address "), first("mac address ")];
        let end = station.at.of(format!("{}:{interface}", station.name));
        draft.add_dangling(end, addresses)?;
    }
    Ok(())
}

/// Gives the network the TDF of its nodes, if all have the same. TDFs that differ need rounds, which `up` is asked for.
pub(super) fn dilate(draft: &mut Draft, stations: &[Station]) {
    let mut programs = Vec::new();
    for station in stations {
        if draft.node(&station.name).is_some_and(|node| node.kind == NodeKind::Process) {
            programs.push(station);
        }
    }
    let tdf = |station: &&Station| station.dilation.as_ref().map(|tdf| tdf.value.clone());
    let first = programs.first().and_then(|station| station.dilation.clone());
    if programs.iter().all(|station| tdf(station) == first.as_ref().map(|tdf| tdf.value.clone())) {
        draft.file.tdf = first.filter(|tdf| !is_one(&tdf.value));
        return;
    }
    for station in programs {
        let Some(tdf) = station.dilation.as_ref().filter(|tdf| !is_one(&tdf.value)) else {
            continue;
        };
        let name = &station.name;
        let what = format!(
            "node {name}: dilation {0}: nodes have different TDFs; give --rounds --node-tdf {name}={0}",
            tdf.value
        );
        draft.leave_out(Position::from_location(tdf.defined), what);
    }
}

fn is_one(tdf: &str) -> bool {
    tdf.parse() == Ok(1.0)
}

/// Gives the loopback interface its addresses but the ones that it has anyway.
pub(super) fn add_loopback_addresses(draft: &mut Draft, station: &Station) {
    let loopback = station.interfaces.iter().filter(|(name, _)| name.starts_with("lo"));
    let address = |line: &&str| {
        let rest =
            ["ip address ", "ipv6 address "].iter().find_map(|start| line.strip_prefix(start));
        rest.map(|address| address.trim().to_string())
    };
    let addresses = loopback.flat_map(|(_, lines)| lines.iter().filter_map(address));
    let lines: Vec<_> = addresses
        .filter(|address| !OF_LOOPBACK.contains(&address.as_str()))
        .map(|address| station.at.of(format!("ip address replace {address} dev lo")))
        .collect();
    if let Some(node) = draft.node(&station.name).filter(|node| node.kind == NodeKind::Process) {
        node.exec.extend(lines);
    }
}
