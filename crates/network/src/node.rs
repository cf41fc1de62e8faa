//! Parts of a node that those on the host's files and private ones have in common.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lorentz_container::{Container, MonitorKind, StateDir};
use lorentz_control::ClockOptions;
use lorentz_experiment::{Experiment, Joining};
use nix::sched::{setns, CloneFlags};

use crate::directory::{container_of, NetworkDir};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};
use crate::protocol::NodeStatus;
use crate::tap::{self, Tap};
use crate::NetworkRefusal;

/// The timeline of all nodes, in rounds.
pub(crate) const TIMELINE: u32 = 1;

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
        timeline: Some(TIMELINE),
        own_wall: node.clock.at.is_some(),
        parallel: node.parallel,
        compute: Some(node.compute),
        ..Joining::new(container, node.clock.or(&plan.clock).rate_or_tdf())
    })
}

/// Makes the interface at an end of `link`, which is the emulator's station `station`, in this thread's network namespace.
pub(crate) fn make_interface(link: &LinkPlan, side: usize, station: usize) -> anyhow::Result<Tap> {
    let name = &link.ends[side].interface;
    let wanted = tap::InterfaceOptions {
        name,
        mac: link.macs[side].unwrap_or(generated_mac(station)),
        mtu: link.mtu,
        addresses: &link.addresses[side],
    };
    Tap::make(&wanted).with_context(|| format!("interface {name}"))
}

/// A hardware address that no card has, the same in every run.
fn generated_mac(station: usize) -> [u8; 6] {
    let [a, b, c, d] = (station as u32 + 1).to_be_bytes();
    [0x02, 0x4c, a, b, c, d]
}

/// A node as the status shows it.
pub(crate) fn node_status(
    plan: &NetworkPlan,
    directory: &NetworkDir,
    node: &NodePlan,
) -> NodeStatus {
    NodeStatus {
        name: node.name.clone(),
        container: container_of(&plan.name, &node.name),
        output: output(directory, node).display().to_string(),
    }
}

/// Opens a file for output, which may be there.
pub(crate) fn open_log(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("output: {}", path.display()))
}

/// Moves this process into the namespaces of a node.
pub(crate) fn enter(node: &Container) -> anyhow::Result<()> {
    let pid = inhabitant(node).ok_or_else(|| NetworkRefusal::NodeEnded(node.name().to_string()))?;
    let here = std::env::current_dir();
    for kind in ["uts", "net", "mnt"] {
        let namespace = File::open(format!("/proc/{pid}/ns/{kind}"))?;
        setns(namespace, CloneFlags::empty())
            .with_context(|| format!("entering {}", node.name()))?;
    }
    // A process begins at the root of its new mount namespace.
    if let Ok(here) = here {
        let _ = std::env::set_current_dir(here);
    }
    set_no_new_privs()?;
    Ok(())
}

/// The network namespace of a node, as a path.
pub(crate) fn network_namespace(node: &Container) -> anyhow::Result<PathBuf> {
    let pid = inhabitant(node).ok_or_else(|| NetworkRefusal::NodeEnded(node.name().to_string()))?;
    Ok(format!("/proc/{pid}/ns/net").into())
}

/// Returns a process in the namespaces of a node: a monitor, or the first program of a monitor that has adopted it from outside.
fn inhabitant(node: &Container) -> Option<u32> {
    let alive = node.record().monitors.iter().filter(|monitor| monitor.is_alive());
    let inside = alive.clone().find(|monitor| monitor.kind != MonitorKind::Adopt);
    let first = alive.filter_map(|monitor| monitor.program).next();
    let any = || Some(node.processes().ok()?.first()?.pid);
    inside.map(|monitor| monitor.pid).or(first).or_else(any)
}

/// Promises the kernel that this process gains no rights by set-user-id programs (PR_SET_NO_NEW_PRIVS). The shim installs its
/// filter for packet timestamps only when the program asks for them. If the program has given its rights up by then, as ping does,
/// the kernel accepts a filter only with this promise.
pub(crate) fn set_no_new_privs() -> io::Result<()> {
    // SAFETY: plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
