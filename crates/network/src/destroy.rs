//! Destroying a network, whatever state it is in.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_container::{self as container, Container, StateDir};
use lorentz_control::Cgroup;
use lorentz_experiment::{self as experiment, Experiment};
use nix::sys::wait::{waitpid, WaitPidFlag};

use crate::directory::{container_of, NetworkDir, NetworkRecord};
use crate::image;
use crate::private;
use crate::NetworkRefusal;

/// Takes the network `name` down, whatever state it is in: its emulator, its nodes, its clock. Returns the number of programs that
/// were killed.
///
/// # Errors
///
/// If there is no such network, or the file system refuses.
pub fn down(state: &StateDir, name: &str) -> anyhow::Result<usize> {
    let directory = NetworkDir::of(state, name)?;
    if !directory.exists() {
        return Err(NetworkRefusal::Unknown(name.to_string()).into());
    }
    let mut record = directory.record();
    record.iter().try_for_each(end_emulator)?;
    directory.wait_for_makers()?;
    if record.is_none() {
        // An emulator that had not noted itself yet was not ended, and has made its nodes meanwhile.
        record = directory.record();
        record.iter().try_for_each(end_emulator)?;
    }
    let record = record.unwrap_or_default();
    let nodes = &record.nodes;
    let mut ended = private::delete_all(&directory, name, nodes)?;
    let containers =
        nodes.iter().filter_map(|node| state.container(&container_of(name, node)).ok());
    let ours: Vec<Container> = containers.filter(|found| is_ours(found, name, &record)).collect();
    let groups: Vec<Cgroup> = ours.iter().filter_map(Container::cgroup).collect();
    for cleared in container::clear_all(state, &ours.iter().collect::<Vec<_>>(), true)? {
        ended += cleared?;
    }
    groups.iter().for_each(remove_cgroup);
    state.clear_unfinished()?;
    end_experiment(state, name)?;
    image::unmount_all(&directory);
    if let Ok(owner) = state.container(name) {
        ended += container::clear(&owner, true)?;
    }
    // It goes last: without it no later call would find what one that was killed has left.
    directory.remove();
    // The state directory goes with the lock, if nothing else is in it.
    state.clear_unfinished()?;
    Ok(ended)
}

/// Ends the node `node` of the network at `directory`, which goes on without it. Returns the number of programs that were killed.
pub(crate) fn end_node(
    state: &StateDir,
    directory: &NetworkDir,
    network: &str,
    node: &str,
) -> anyhow::Result<usize> {
    let mut record = directory.record().unwrap_or_default();
    let mut ended = private::delete_all(directory, network, &[node.to_string()])?;
    if let Ok(found) = state.container(&container_of(network, node)) {
        if is_ours(&found, network, &record) {
            let group = found.cgroup();
            ended += container::clear(&found, true)?;
            group.iter().for_each(remove_cgroup);
        }
    }
    state.clear_unfinished()?;
    record.nodes.retain(|one| one != node);
    record.entries.remove(node);
    record.shutdown.remove(node);
    directory.store(&record)?;
    Ok(ended)
}

/// Removes a control group, after killing processes that came in while its container was cleared: an `exec` may have been on its
/// way.
fn remove_cgroup(group: &Cgroup) {
    /// Each try waits for half a second.
    const MAX_TRIES: u32 = 10;
    for _ in 0..MAX_TRIES {
        let _ = group.kill();
        if group.remove() {
            return;
        }
    }
}

/// Whether this container is a node of the network, and not one of the same name that was made later.
fn is_ours(found: &Container, network: &str, record: &NetworkRecord) -> bool {
    let container = found.record();
    let belongs = [&container.clock_of, &container.experiment];
    // In rounds a container joins the experiment after it was made. Where `up` was killed before it had noted all of them, each that
    // has a node's name and was made since is ours.
    let is_of_broken_up = record.made.is_empty() && container.created_boot_ns >= record.began;
    belongs.iter().any(|one| one.as_deref() == Some(network))
        || record.made.get(found.name()) == Some(&container.created_boot_ns)
        || (record.rounds && is_of_broken_up)
}

/// Ends the experiment of a network in rounds.
fn end_experiment(state: &StateDir, network: &str) -> anyhow::Result<()> {
    match Experiment::open(state, network) {
        Ok(mut experiment) => experiment.end(),
        Err(error) => match error.downcast_ref() {
            Some(experiment::ExperimentRefusal::Unknown(_)) => Ok(()),
            _ => experiment::release(state, network),
        },
    }
}

/// Kills the process that `record` names, and no other.
fn end_emulator(record: &NetworkRecord) -> anyhow::Result<()> {
    const KILL_TIMEOUT: Duration = Duration::from_secs(5);
    // SAFETY: plain numbers in, a descriptor or -1 out.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, record.pid, 0) };
    if raw < 0 {
        return Ok(());
    }
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: made here, and nobody else's.
    let process = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    let end = Instant::now() + KILL_TIMEOUT;
    while record.is_alive() {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and no siginfo is given.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                process.as_raw_fd(),
                libc::SIGKILL,
                nothing,
                0,
            )
        };
        sleep(Duration::from_millis(2));
        // Reaps the emulator if it is a child of this process.
        let _ = waitpid(nix::unistd::Pid::from_raw(record.pid as i32), Some(WaitPidFlag::WNOHANG));
        anyhow::ensure!(Instant::now() < end, "the emulator, process {}, does not end", record.pid);
    }
    Ok(())
}
