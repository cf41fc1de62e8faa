//! Finding or making the container that joins an experiment: by its name, or by any running process.

use std::collections::HashSet;
use std::ffi::OsString;

use lorentz_container::{
    attach, check_attachable, AttachReach, Container, Mechanism, MonitorKind, NewContainer,
    StateDir, StateError,
};
use lorentz_control::{Cgroup, CgroupPlace, ClockOptions, HostNow, WhichClock};

/// Returns the container that `text` means: a container's name or a process id. A process that is in no container gets a new one:
/// Lorentz attaches to it and its descendants. The caller must have one thread only.
///
/// # Errors
///
/// An error if there is no such container or process, or if Lorentz cannot attach to the process.
pub fn container_for(state: &StateDir, text: &str) -> anyhow::Result<Container> {
    match (state.find(text), text.parse()) {
        (Err(StateError::NotInside(_)), Ok(pid)) => attach_process(state, pid),
        (found, _) => with_cgroup(found?),
    }
}

/// Gives a control group to a container that has none yet because Lorentz attached to its processes.
fn with_cgroup(mut container: Container) -> anyhow::Result<Container> {
    let shim = container.record().mechanism == Mechanism::Shim;
    if container.cgroup().is_none() && shim && container.record().experiment.is_none() {
        give_cgroup(&mut container)?;
    }
    Ok(container)
}

fn attach_process(state: &StateDir, pid: u32) -> anyhow::Result<Container> {
    let process = check_attachable(state, pid)?;
    let command: Vec<OsString> = vec![process.command().into()];
    let new = NewContainer { command: &command, ..NewContainer::monitored_by(MonitorKind::Attach) };
    let options = ClockOptions { in_experiment: true, ..ClockOptions::default() };
    let WhichClock::New(settings) = options.which(&HostNow::read()?)? else {
        anyhow::bail!("a clock of its own was expected");
    };
    let mut container = state.create(&new, &settings)?;
    let attached = attach(pid, AttachReach::Descendants, container.clone(), None);
    let brought = attached.and_then(|_| give_cgroup(&mut container));
    container.leave()?;
    brought?;
    Ok(state.container(container.name())?)
}

/// Makes the control group of a container, and moves its processes there until all are in it: others may be started meanwhile.
fn give_cgroup(container: &mut Container) -> anyhow::Result<()> {
    /// More than a program that starts others can go through: what is started by a process in the group is in it.
    const MAX_PASSES: u32 = 100;
    let Some(cgroup) = container.make_cgroup(CgroupPlace::Own)? else { return Ok(()) };
    let mut tried = HashSet::new();
    for _ in 0..MAX_PASSES {
        let mut outside = container.processes_anywhere()?;
        let is_outside = |pid| Cgroup::of(pid).is_some_and(|group| group != cgroup);
        outside.retain(|process| is_outside(process.pid) && tried.insert(process.pid));
        if outside.is_empty() {
            return Ok(());
        }
        for process in outside {
            // A process that has ended needs no group.
            let _ = cgroup.add(process.pid);
        }
    }
    anyhow::bail!("{}: its processes start others too quickly to be followed", container.name())
}
