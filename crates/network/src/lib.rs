//! Networks in virtual time: nodes joined by links that keep the time of the programs they join.
//!
//! A network is a file ([`topology`]), checked whole before anything is made ([`plan`]). [`up`] makes it: a process, the emulator,
//! with one TAP device in each node's network namespace for each of its links, and one virtual clock that all nodes are on.
//! What a link does to frames ([`impair`]) happens in the emulator's calendar ([`emulator`]), which is pure logic: virtual
//! instants in, virtual instants out. So frames on their way stand still while the clock is frozen, and a delay of 5 ms
//! is 5 ms inside at every rate.
//!
//! - [`Network`]: a running one, to look at and to change;
//! - [`down`]: the end of one, whatever state it is in;
//! - [`enter_node`]: into a node's namespaces;
//! - [`graph`]: a picture of one;
//! - [`neighbours`]: whether the kernel has room for whom nodes talk to;
//! - [`import`]: scenarios of other emulators, as topology files.
//!
//! ```
//! use lorentz_network::topology;
//!
//! let text = "\
//! name: lab
//! tdf: 10
//! topology:
//!   nodes: {a: {}, b: {}}
//!   links:
//!     - {endpoints: ['a:eth0', 'b:eth0'], rate: 10mbit, delay: 5ms}
//! ";
//! let plan = topology::read("lab.yaml", text)?;
//! assert_eq!(plan.links[0].asked[0].delay.unwrap().to_string(), "5ms");
//!
//! let wrong = topology::read("lab.yaml", &text.replace("5ms", "fast")).unwrap_err();
//! assert_eq!((wrong.line, wrong.column), (6, 62));
//! # Ok::<(), topology::WrongTopology>(())
//! ```

mod capture;
mod client;
pub mod emulator;
#[cfg(test)]
mod fuzz;
pub mod graph;
mod image;
pub mod impair;
pub mod import;
mod lateness;
mod lower;
pub mod neighbours;
mod place;
pub mod plan;
mod protocol;
mod raise;
mod root;
mod serve;
mod stamps;
mod tap;
mod timers;
pub mod topology;
pub mod units;

pub use client::Network;
pub use lower::down;
pub use protocol::{
    Answer, DirectionStatus, Lateness, LinkStatus, NodeStatus, Request, RoundsStatus, Setting,
    Status,
};
pub use raise::{enter_node, up};

/// Why something asked of networks is refused. All of these are wrong input.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A file that cannot be read.
    #[error("{0}: {1}; expected a topology file")]
    File(String, std::io::Error),
    /// There is no network of that name.
    #[error("{0}: no such network; expected one that 'lorentz inspect' shows")]
    Unknown(String),
    /// The name belongs to a network that is there.
    #[error("name: {0}: in use by a network; 'lorentz down {0}' ends it")]
    NameInUse(String),
    /// None was named, and there is not exactly one.
    #[error("a network has to be named, there is not exactly one; expected one of: {0}")]
    WhichNetwork(String),
    /// Its emulator has ended.
    #[error(
        "{0}: its emulator has ended and its links are down; 'lorentz down {0}' clears the rest"
    )]
    Dead(String),
    /// A node without anybody who looks after it.
    #[error("{0}: has ended; expected a node that runs, of 'lorentz inspect'")]
    NodeEnded(String),
    /// A command that cannot be run.
    #[error("node {node}: command: {command}: not found; expected a program on PATH, or its path")]
    NoCommand {
        /// The node.
        node: String,
        /// Its command.
        command: String,
    },
    /// An image that is not to be had.
    #[error("node {node}: image: {image}: {why}; expected one that 'podman pull' has fetched")]
    NoImage {
        /// The node.
        node: String,
        /// The image.
        image: String,
        /// Why, as podman says.
        why: String,
    },
    /// A directory or file of the host that is not there.
    #[error("node {node}: {key}: {path}: not there; expected {expected}")]
    NoFile {
        /// The node.
        node: String,
        /// What names it.
        key: &'static str,
        /// What it names.
        path: String,
        /// What there should be.
        expected: &'static str,
    },
    /// A setting that a network would not take.
    #[error("{0}")]
    Setting(String),
    /// Not root.
    #[error("networks need root: interfaces and network namespaces are made")]
    NotRoot,
}
