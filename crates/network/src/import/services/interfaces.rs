//! The interfaces of a node, for the configurations of its services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::import::draft::Draft;

/// An interface that a link leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub name: String,
    pub ipv4: Option<(Ipv4Addr, u8)>,
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Whether the other end of its link is a node, and no switch or hub.
    pub is_point_to_point: bool,
}

impl Interface {
    /// Its IPv4 address with the prefix length.
    pub fn ipv4_text(&self) -> Option<String> {
        self.ipv4.map(|(address, length)| format!("{address}/{length}"))
    }
}

/// Returns the interfaces of `node`, sorted: eth2 before eth10.
pub(super) fn of(draft: &Draft, node: &str) -> Vec<Interface> {
    let mut found = Vec::new();
    for link in &draft.file.topology.links {
        let link = &link.value;
        for (side, end) in link.endpoints.iter().enumerate() {
            let Some((_, name)) = end.value.split_once(':').filter(|(of, _)| *of == node) else {
                continue;
            };
            let other = link.endpoints.get(1 - side.min(1));
            let other = other.and_then(|end| end.value.split(':').next());
            let given = |all: &[Option<serde_saphyr::Spanned<String>>]| {
                all.get(side).cloned().flatten().and_then(|text| address(&text.value))
            };
            found.push(Interface {
                name: name.to_string(),
                ipv4: match given(&link.ipv4) {
                    Some((IpAddr::V4(address), length)) => Some((address, length)),
                    _ => None,
                },
                ipv6: match given(&link.ipv6) {
                    Some((IpAddr::V6(address), length)) => Some((address, length)),
                    _ => None,
                },
                is_point_to_point: !other.is_some_and(|other| draft.is_switch(other)),
            });
        }
    }
    found.sort_by(|one, other| (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name)));
    found
}

/// Parses an address with its prefix length.
fn address(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// Returns the network and its mask.
pub(super) fn network_of((address, length): (Ipv4Addr, u8)) -> (Ipv4Addr, Ipv4Addr) {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    (Ipv4Addr::from(u32::from(address) & mask), Ipv4Addr::from(mask))
}
