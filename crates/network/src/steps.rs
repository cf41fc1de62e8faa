//! Steps of making a network, for those who wait for it, and what becomes of the network if one fails.

use crate::exec::FailedLine;

/// The fate of a network if a line of `exec` fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecPolicy {
    /// The network is not made.
    Strict,
    /// The other lines run, and the network stays.
    KeepGoing,
}

/// A step of making a network, for those who wait for it.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// This many nodes are made.
    Nodes(usize),
    /// All nodes are made, and time runs.
    Started,
    /// This many lines of `exec` have run.
    ExecLines(usize),
    /// A line of `exec` has failed, and the others go on.
    Failed(&'a FailedLine),
}
