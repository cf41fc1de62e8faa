//! Networks in virtual time: nodes joined by links that keep the time of the programs they join.
//!
//! A network is a file ([`topology`]), which is checked completely ([`check`]) before anything is made ([`plan`]). [`up`] makes the
//! network: the emulator's process, and one virtual clock for all nodes. For each end of a link it makes a TAP device in the node's
//! network namespace. The emulator's calendar ([`lorentz_emulator`]) applies the impairments of links ([`lorentz_emulator::impair`]) to frames. The calendar
//! is pure logic: virtual instants in, virtual instants out. Therefore frames on their way stand still while the clock is frozen,
//! and a delay of 5 ms is 5 ms inside at every rate.
//!
//! - [`Network`]: a running network, to look at and to change;
//! - [`down`]: the end of a network, whatever state it is in;
//! - [`enter_node`]: the way into a node's namespaces;
//! - [`graph`]: a picture of a network;
//! - [`neighbours`]: whether the kernel's neighbour table has room for the nodes;
//! - [`import`], [`export`]: topology files from scenarios of other emulators, and scenarios of theirs from topology files.
//!
//! ```
//! use lorentz_network::{check, topology};
//!
//! let text = "\
//! name: lab
//! tdf: 10
//! topology:
//!   nodes: {a: {}, b: {}}
//!   links:
//!     - {endpoints: ['a:eth0', 'b:eth0'], rate: 10mbit, delay: 5ms}
//! ";
//! let plan = check::plan_from_text("lab.yaml", text)?;
//! assert_eq!(plan.links[0].impairments[0].delay.unwrap().to_string(), "5ms");
//!
//! let wrong = check::plan_from_text("lab.yaml", &text.replace("5ms", "fast")).unwrap_err();
//! assert_eq!((wrong.line, wrong.column), (6, 62));
//! # Ok::<(), topology::TopologyError>(())
//! ```

mod capture;
pub mod check;
mod client;
mod create;
mod destroy;
mod directory;
mod edit;
mod exec;
pub mod export;
mod file_systems;
#[cfg(test)]
mod fuzz;
pub mod graph;
mod image;
pub mod import;
mod kernel_timers;
mod lateness;
mod lines;
pub mod mobility;
mod namespace_timers;
pub mod neighbours;
mod node;
mod ns2;
pub mod plan;
mod private;
mod protocol;
mod serve;
mod steps;
mod tap;
mod timestamps;
pub mod topology;

pub use client::Network;
pub use create::{enter_node, up};
pub use destroy::down;
pub use edit::{
    add_link, add_node, parse_change, read_schedule, remove_link, remove_node, schedule,
    schedule_of, topology_of, update, ClockSchedule, NewNode, NewSchedule,
};
pub use exec::FailedLine;
pub use image::pull_missing;
pub use lines::shut_down;
pub use private::layer_space;
pub use protocol::{
    DirectionStatus, FrameLateness, LinkChange, LinkStatus, NetworkAnswer, NetworkRequest,
    NetworkStatus, NodeStatus, RoundsStatus, ScheduledChange, WlanStatus,
};
pub use steps::{ExecPolicy, Step};

/// The reason why a request about a network is refused. All of these are wrong input.
#[derive(Debug, thiserror::Error)]
pub enum NetworkRefusal {
    /// The file cannot be read.
    #[error("{0}: {1}; expected a topology file")]
    File(String, std::io::Error),
    /// There is no network of that name.
    #[error("{0}: no such network; expected one that 'lorentz inspect' shows")]
    Unknown(String),
    /// The name belongs to a network that exists.
    #[error("name: {0}: in use by a network; 'lorentz down {0}' ends it")]
    NameInUse(String),
    /// No network was named, and there is none.
    #[error("there is no network; 'lorentz up FILE' creates one")]
    NoNetwork,
    /// No network was named, and there are several.
    #[error("name a network, for there are several; expected one of: {0}")]
    WhichNetwork(String),
    /// The emulator of the network has ended.
    #[error(
        "{0}: its emulator has ended and its links are down; 'lorentz down {0}' clears the rest"
    )]
    Dead(String),
    /// No process supervises the node any more.
    #[error("{0}: has ended; expected a node that runs, of 'lorentz inspect'")]
    NodeEnded(String),
    /// The command cannot be run.
    #[error("node {node}: command: {command}: not found; expected a program on PATH, or its path")]
    NoCommand {
        /// The node.
        node: String,
        /// Its command.
        command: String,
    },
    /// Podman cannot be asked for the image.
    #[error("node {node}: image: {image}: {why}; expected podman, which has images")]
    NoImage {
        /// The node.
        node: String,
        /// The image.
        image: String,
        /// The reason, as podman reports it.
        why: String,
    },
    /// Podman does not have these images.
    #[error("images that podman does not have: {missing}; 'podman pull {names}' gets them, as does 'lorentz up --pull'")]
    MissingImages {
        /// The images, each with its nodes.
        missing: String,
        /// Their full names, as words of a command.
        names: String,
    },
    /// The directory or file does not exist on the host.
    #[error("node {node}: {key}: {path}: not there; expected {expected}")]
    NoFile {
        /// The node.
        node: String,
        /// The key that names it.
        key: &'static str,
        /// Its path.
        path: String,
        /// The kind of file that is expected.
        expected: &'static str,
    },
    /// The network does not take the setting.
    #[error("{0}")]
    Setting(String),
    /// The caller is not root.
    #[error("networks need root: interfaces and network namespaces are made")]
    NotRoot,
}
