//! The topology file: nodes, links and a schedule, as a user writes them.
//!
//! Its shape is containerlab's; a link also has impairments beside its ends. Every name keeps its line and column, so that an error
//! can point to it. [`crate::check`] checks the content.

mod changes;
mod faults;
mod schedule;

use std::collections::BTreeMap;
use std::path::Path;

use lorentz_control::with_clock_options;
use lorentz_emulator::impair::{Impairments, JitterOption, LossOption, Queue};
use lorentz_emulator::units::{BitRate, Delay, Probability};
use schedule::is_default;
pub use schedule::{
    ChosenClocks, FaultModel, Faults, LeapSecondFault, Names, ScheduledChange, State, Strobe,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
pub use serde_saphyr::{Location, Spanned};
use thiserror::Error;

/// An error in a topology file, with its place.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct TopologyError {
    /// The file, as it was named.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// The column in it, from 1.
    pub column: u64,
    /// The error, and the accepted values.
    pub what: String,
}

/// A clock option that a file gives: its name in the table, and its value.
pub(crate) type ClockKey<'a> = (&'static str, &'a Spanned<String>);

// The rows are those of the table of clock options.
macro_rules! define_file {
    ($(
        $(#[$field_doc:meta])*
        $name:literal => $field:ident: $type:ty [$parse:expr, $show:expr] { $($entry:tt)* }
        $(topology { $key:ident: $shape:tt, $of_network:literal, $of_node:literal, })?
    )*) => {
        /// A network: its clock, its nodes and links
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct TopologyFile {
            /// Its name: letters, digits, '.', '_', '-'; the containers of its nodes are called NAME.NODE
            #[schemars(with = "String")]
            pub name: Spanned<String>,
            $($(
                #[doc = $of_network]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schemars(with = $shape)]
                pub $key: Option<Spanned<String>>,
            )?)*
            /// Nodes advance in rounds, each on its own clock: frames arrive at their exact instants, whatever the machine does
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = false))]
            pub rounds: bool,
            /// Whether computing takes its nodes time, in rounds, where they do not say [default: real]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Compute>")]
            pub compute: Option<Spanned<String>>,
            /// How its nodes are separated from the host, where they do not say
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = "host"))]
            pub isolation: Isolation,
            /// Seed of random decisions: the same seed and the same frames at the same instants give the same result
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = 0))]
            pub seed: u64,
            /// Nodes and links.
            pub topology: Topology,
            /// Changes of links, and of positions of nodes, at virtual instants
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<ScheduledChange>")]
            pub schedule: Vec<Spanned<ScheduledChange>>,
            /// Random faults of clocks, in rounds; each seed gives a schedule of its own
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Faults>")]
            pub faults: Option<Spanned<Faults>>,
            /// How nodes move: the steps of walks, and mobility scripts
            #[serde(default, skip_serializing_if = "is_default")]
            pub mobility: Mobility,
        }

        /// A node
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Node {
            /// Kind of node [default: process]
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = "process"))]
            pub kind: NodeKind,
            /// A switch only: it takes part in a spanning tree (IEEE 802.1D), so that its links may form loops
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = false))]
            pub stp: bool,
            /// A wlan only: which of its members hear each other, and what happens to the frames that they receive
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Radio>")]
            pub radio: Option<Spanned<Radio>>,
            $($(
                #[doc = $of_node]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schemars(with = $shape)]
                pub $key: Option<Spanned<String>>,
            )?)*
            /// Whether computing takes it time, in rounds [default: the network's]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<Compute>")]
            pub compute: Option<Spanned<String>>,
            /// Number of processors that it runs on at once, in rounds [default: 1]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<u32>")]
            pub parallel: Option<Spanned<u32>>,
            /// How it is separated from the host [default: the network's]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub isolation: Option<Isolation>,
            /// Command to run: a list of words, or a line for /bin/sh [default: its image's command; else only what exec starts]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub command: Option<NodeCommand>,
            /// Arguments of its image's entrypoint, in place of its image's command; without an image they are the command
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub args: Vec<String>,
            /// Node whose network it shares: it has that node's interfaces, and no links of its own
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<String>")]
            pub network_of: Option<Spanned<String>>,
            /// Shell for exec, as bash; /bin/sh where it is not there [default: /bin/sh]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<String>")]
            pub shell: Option<Spanned<String>>,
            /// Lines for the shell, run one after the other when the network is complete
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<String>")]
            pub exec: Vec<Spanned<String>>,
            /// Lines for the shell, run one after the other when the network goes down, within 10s of real time each
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<String>")]
            pub shutdown: Vec<Spanned<String>>,
            /// Files from which imported scripts of exec and shutdown come, by the scripts
            #[serde(skip)]
            pub script_files: BTreeMap<String, String>,
            /// Environment variables, in addition to those of its image
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub env: BTreeMap<String, String>,
            /// Settings of its network namespace, as net.ipv4.ip_forward: 1
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            #[schemars(with = "BTreeMap<String, NumberOrText>")]
            pub sysctls: BTreeMap<String, Spanned<String>>,
            /// File for its output [default: one in the network's directory]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub output: Option<String>,
            /// Image in podman's storage, used as its root file system; a layer above takes its writes and goes with the node
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<String>")]
            pub image: Option<Spanned<String>>,
            /// User of its programs, USER or USER:GROUP; needs an image or rootfs [default: the image's, or root]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<String>")]
            pub user: Option<Spanned<String>>,
            /// Root file system, a directory, without image; a layer above takes its writes and goes with the node [default: the host's]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rootfs: Option<String>,
            /// Files and directories of the host in its root file system: SOURCE:TARGET, with :ro to read, with :O for a layer of its own
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<String>")]
            pub binds: Vec<Spanned<String>>,
            /// Directory whose files are copied into its root file system; needs isolation: private
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub files: Option<String>,
            /// Its place in a picture and in its wlan, in any unit: to the right, and down
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub position: Option<[f64; 2]>,
        }

        impl TopologyFile {
            /// A network of this name without nodes.
            pub(crate) fn new(name: Spanned<String>) -> TopologyFile {
                TopologyFile {
                    name,
                    $($($key: None,)?)*
                    rounds: false,
                    compute: None,
                    isolation: Isolation::default(),
                    seed: 0,
                    topology: Topology::default(),
                    schedule: Vec::new(),
                    faults: None,
                    mobility: Mobility::default(),
                }
            }

            /// Returns the options of the network's clock.
            pub(crate) fn clock_keys(&self) -> Vec<ClockKey<'_>> {
                let all = [$($(($name, &self.$key),)?)*];
                all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect()
            }
        }

        impl Node {
            /// Returns the options of the node's own clock.
            pub(crate) fn clock_keys(&self) -> Vec<ClockKey<'_>> {
                let all = [$($(($name, &self.$key),)?)*];
                all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect()
            }
        }
    };
}
with_clock_options!(define_file);

/// A number or a text, in the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

/// Whether computing takes a node time
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code)]
enum Compute {
    /// Its clock runs while its programs run
    Real,
    /// Its clock stands while its programs run, and goes to the next deadline when all of them wait
    None,
}

/// Nodes and links
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Topology {
    /// Nodes by name
    #[schemars(with = "BTreeMap<String, Node>")]
    pub nodes: BTreeMap<String, Spanned<Node>>,
    /// Links between nodes
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Link>")]
    pub links: Vec<Spanned<Link>>,
}

/// Kind of a node
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A program in a network namespace of its own, on the network's clock
    #[default]
    Process,
    /// A learning switch
    Switch,
    /// A hub: sends each frame to all other ports
    Hub,
    /// A wireless LAN: sends each frame to the members within a distance of the sender
    Wlan,
}

/// How nodes are separated from the host
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Nodes see the host's files, processes and services; what they write stays
    #[default]
    Host,
    /// Nodes are containers: processes of their own, few capabilities, and a layer above the files that goes with the node
    Private,
}

/// A command
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of words, or a line for /bin/sh")]
pub enum NodeCommand {
    /// A line for /bin/sh.
    Line(String),
    /// The program and its arguments.
    Words(Vec<String>),
}

// The rows are those of [`lorentz_emulator::impair`].
macro_rules! define_link {
    ($($key:ident: $type:ty, $in_link:literal, $rest:literal, [$($flag:expr),*];)*) => {
        /// A link, and its impairments in each direction
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Link {
            /// Its two ends, NODE:INTERFACE each
            #[schemars(with = "[String; 2]")]
            pub endpoints: Vec<Spanned<String>>,
            /// IPv4 addresses of the ends, as 10.0.0.1/24; null for none
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<Option<String>>")]
            pub ipv4: Vec<Option<Spanned<String>>>,
            /// IPv6 addresses of the ends, as fd00::1/64; null for none
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<Option<String>>")]
            pub ipv6: Vec<Option<Spanned<String>>>,
            /// Hardware addresses of the ends, as 02:00:00:00:00:01; null for a generated one
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(with = "Vec<Option<String>>")]
            pub mac: Vec<Option<Spanned<String>>>,
            /// MTU of its interfaces, from 68 to 65521 [default: 1500]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "Option<u32>", range(min = 68, max = 65521), extend("default" = 1500))]
            pub mtu: Option<Spanned<u32>>,
            /// Whether it is up at the start [default: up]
            #[serde(default, skip_serializing_if = "is_default")]
            #[schemars(extend("default" = "up"))]
            pub state: State,
            $(
                #[doc = $in_link]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
            /// Different impairments for frames that one end sends, by the name of that end
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            #[schemars(with = "BTreeMap<String, Impairments>")]
            pub from: BTreeMap<String, Spanned<Impairments>>,
        }

        impl Link {
            /// Returns its impairments for both directions, which `from` may override.
            pub fn impairments(&self) -> Impairments {
                Impairments { $($key: self.$key,)* }
            }

            /// Gives both directions the impairments `set`, and no others.
            pub fn set_impairments(&mut self, set: &Impairments) {
                $(self.$key = set.$key;)*
            }
        }
    };
}
lorentz_emulator::with_impairments!(define_link);

// The rows are those of [`lorentz_emulator::impair`].
macro_rules! define_radio {
    ($($key:ident: $type:ty, $in_link:literal, $rest:literal, [$($flag:expr),*];)*) => {
        /// The radio of a wlan: members within its range hear each other. Each member has the impairments for the frames that it
        /// receives
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Radio {
            /// Greatest distance between two members that hear each other, in the unit of positions
            pub range: f64,
            $(
                #[doc = concat!($in_link, $rest)]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
        }

        impl Radio {
            /// Makes a radio without impairments.
            pub fn new(range: f64) -> Radio {
                Radio { range, $($key: None,)* }
            }

            /// Returns the impairments of frames that a member receives.
            pub fn impairments(&self) -> Impairments {
                Impairments { $($key: self.$key,)* }
            }
        }
    };
}
lorentz_emulator::with_impairments!(define_radio);

/// How nodes move
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mobility {
    /// Time between two steps of a walk [default: 50ms]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Delay>", extend("default" = "50ms"))]
    pub refresh: Option<Spanned<Delay>>,
    /// Mobility scripts in the format of ns-2
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ScriptFile>")]
    pub scripts: Vec<Spanned<ScriptFile>>,
}

/// A mobility script
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScriptFile {
    /// The file, absolute or relative to the topology file
    pub file: String,
    /// Virtual time from the start of the network to the script's [default: 0]
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "0"))]
    pub start: Delay,
    /// It begins anew when all its walks have arrived
    #[serde(default, rename = "loop", skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub repeats: bool,
    /// Nodes by their numbers in the script; other numbers are ignored [default: number 3 is the node 3 or n3]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map: BTreeMap<String, String>,
}

/// Parses any YAML file `name` with the content `text`.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, TopologyError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        let message = error.without_snippet().to_string();
        error_at(name, location, without_position(&message))
    })
}

pub(crate) fn error_at(file: &str, at: Location, what: &str) -> TopologyError {
    TopologyError {
        file: file.to_string(),
        line: at.line().max(1),
        column: at.column().max(1),
        what: what.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Returns the parser's message without the place, which stands before it already.
fn without_position(message: &str) -> &str {
    let first = message.lines().next().unwrap_or_default();
    let place = first.rfind(" at line ").or_else(|| first.rfind(" (line "));
    place.map_or(first, |at| &first[..at])
}

/// Parses the topology file at `path`, without checking it.
///
/// # Errors
///
/// If the file cannot be read; or the error in the file, as [`TopologyError`].
pub fn read_file(path: &Path) -> anyhow::Result<TopologyFile> {
    Ok(parse(&path.display().to_string(), &text_of(path)?)?)
}

pub(crate) fn text_of(path: &Path) -> Result<String, crate::NetworkRefusal> {
    std::fs::read_to_string(path)
        .map_err(|error| crate::NetworkRefusal::File(path.display().to_string(), error))
}

/// Splits `:O`, a layer of the node's own, from the end of a bind. Returns the rest, and whether it was there.
pub(crate) fn without_layer(bind: &str) -> (&str, bool) {
    let read_only = || bind.strip_suffix(",O").filter(|rest| rest.ends_with(":ro"));
    match bind.strip_suffix(":O").or_else(read_only) {
        Some(rest) => (rest, true),
        None => (bind, false),
    }
}

impl TopologyFile {
    /// Returns the content as a topology file.
    ///
    /// # Errors
    ///
    /// If YAML cannot hold the content. No valid file leads to this.
    pub fn to_yaml(&self) -> anyhow::Result<String> {
        Ok(serde_saphyr::to_string(self)?)
    }
}

/// The JSON schema of topology files.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(TopologyFile).to_value();
    schema["title"] = "Lorentz network topology".into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Editors use `docs/network.schema.json`. `LORENTZ_WRITE_SCHEMA=1` writes it anew.
    #[test]
    fn the_published_schema_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.schema.json");
        let wanted = format!("{:#}\n", schema());
        if std::env::var_os("LORENTZ_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &wanted).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), wanted);
    }
}
