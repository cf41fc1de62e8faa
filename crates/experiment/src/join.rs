//! Finding or making the container that joins an experiment: by its name, or by any running process.

use std::ffi::OsString;

use lorentz_container::{
    attach, check_attachable, AttachReach, Container, Mechanism, MonitorKind, NewContainer,
    StateDir, StateError,
};
use lorentz_control::{CgroupPlace, ClockOptions, HostNow, WhichClock};

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
        let inside = container.processes()?;
        give_cgroup(&mut container, inside.iter().map(|process| process.pid))?;
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
    let attached = attach(pid, AttachReach::Descendants, container.clone());
    let brought = attached.and_then(|attached| give_cgroup(&mut container, attached.pids));
    container.leave()?;
    brought?;
    Ok(state.container(container.name())?)
}

fn give_cgroup(
    container: &mut Container,
    pids: impl IntoIterator<Item = u32>,
) -> anyhow::Result<()> {
    if let Some(cgroup) = container.make_cgroup(CgroupPlace::Own)? {
        for pid in pids {
            // A process that has ended needs no group.
            let _ = cgroup.add(pid);
        }
    }
    Ok(())
}
