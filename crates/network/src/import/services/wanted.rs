//! A node's services, as a scenario configures them.

use std::collections::BTreeMap;

use serde_saphyr::Spanned;

use super::interfaces::Interface;
use crate::import::draft::Position;

/// Texts of files with their places in the scenario, by their paths in the node.
pub(crate) type Files = BTreeMap<String, Spanned<String>>;

/// A service that a scenario gives to a node.
pub(crate) struct Wanted {
    pub at: Position,
    pub name: String,
    /// Its files in the scenario.
    pub files: Files,
    /// Its commands in the scenario. `None` if the scenario does not say.
    pub startups: Option<Vec<Spanned<String>>>,
}

impl Wanted {
    /// A service as the emulator would configure it.
    pub fn plain(at: Position, name: &str) -> Wanted {
        Wanted { at, name: name.into(), files: Files::new(), startups: None }
    }
}

/// A node, as its services see it.
pub(super) struct Host<'a> {
    pub name: &'a str,
    pub interfaces: &'a [Interface],
    /// Files of the scenario, which replace those of the service.
    pub files: Files,
}

/// Facts for the routing daemons of a node that its services do not say.
pub(crate) struct Routing {
    pub style: Style,
    /// The number of its autonomous system in a generated configuration.
    pub system: u32,
    /// Lines of a routing daemon's configuration that are not a service's file, and where they stand.
    pub text: Option<Spanned<String>>,
}

/// The emulator whose configuration is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// CORE: a hello each 2 s.
    Core,
    /// IMUNES: OSPF's own intervals, and routes of each protocol in the others.
    Imunes,
}
