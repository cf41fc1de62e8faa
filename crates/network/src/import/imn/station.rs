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
