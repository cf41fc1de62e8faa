//! Nodes and links to be added to a running network. The fields have the names of the flags of `lorentz node add` and
//! `lorentz link add`.

use serde::{Deserialize, Serialize};

use super::LinkImpairments;

/// A link to be added.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct NewLink {
    /// The network.
    pub network: String,
    /// One end, `NODE:INTERFACE`.
    pub end: String,
    /// The other end.
    pub other: String,
    /// IPv4 addresses of the ends with their prefix lengths; `null` for none.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub ipv4: Option<[Option<String>; 2]>,
    /// IPv6 addresses, likewise.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub ipv6: Option<[Option<String>; 2]>,
    /// Hardware addresses; `null` for a generated one.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub mac: Option<[Option<String>; 2]>,
    /// MTU of its interfaces.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub mtu: Option<u32>,
    /// Impairments of both directions.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub set: LinkImpairments,
    /// Whether the link is down at first.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub down: bool,
}

/// A node to be added.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct NewNode {
    /// The network.
    pub network: String,
    /// The node's name.
    pub name: String,
    /// Its kind; `process` by default.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub kind: Option<NewNodeKind>,
    /// A switch only: takes part in a spanning tree.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub stp: bool,
    /// Its links.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub link: Vec<OwnLink>,
    /// Impairments of its links.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub set: LinkImpairments,
    /// Image in podman's storage.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub image: Option<String>,
    /// Whether it is a container of its own.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub private: bool,
    /// Environment variables, `KEY=VALUE`.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub env: Vec<String>,
    /// Settings of its network namespace, `KEY=VALUE`.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub sysctl: Vec<String>,
    /// Lines for its shell.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub exec: Vec<String>,
    /// The program and its arguments: words as for a shell, with quotes. No shell sees them.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub command: String,
}

/// Kind of a node to be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NewNodeKind {
    /// It runs programs.
    Process,
    /// A learning switch.
    Switch,
    /// A hub.
    Hub,
}

/// A link of a node to be added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct OwnLink {
    /// Its interface.
    pub interface: String,
    /// The other end, `NODE:INTERFACE`.
    pub other: String,
    /// The address of its interface with the prefix length, IPv4 or IPv6.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub address: Option<String>,
}
