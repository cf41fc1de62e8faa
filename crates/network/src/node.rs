//! Parts of a node that those on the host's files and private ones have in common.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context;
use lorentz_container::StateDir;
use lorentz_control::ClockOptions;
use lorentz_experiment::{Experiment, Joining};

use crate::directory::NetworkDir;
use crate::plan::{NetworkPlan, NodePlan};
use crate::serve::TIMELINE;

/// Returns the file for the output of `node`.
pub(crate) fn output(directory: &NetworkDir, node: &NodePlan) -> PathBuf {
    let chosen =
        node.output.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    chosen.unwrap_or_else(|| directory.output(&node.name))
}

/// The same clock, which stands still at its start.
pub(crate) fn standing_still(options: &ClockOptions) -> ClockOptions {
    ClockOptions { frozen: true, ..options.clone() }
}

/// In rounds: adds the container of `node` to the network's experiment.
pub(crate) fn join_rounds(
    state: &StateDir,
    plan: &NetworkPlan,
    node: &NodePlan,
    container: &str,
) -> anyhow::Result<()> {
    if !plan.rounds {
        return Ok(());
    }
    Experiment::open(state, &plan.name)?.add_as(&Joining {
        container,
        rate: node.clock.or(&plan.clock).rate_or_tdf(),
        timeline: Some(TIMELINE),
        own_wall: node.clock.at.is_some(),
    })
}

/// Opens a file for output, which may be there.
pub(crate) fn open_log(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("output: {}", path.display()))
}
