//! Lines that run in nodes: those of `exec` when a network comes up, and those of `shutdown` when it goes down.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_container::{self as container, StateDir};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitid, waitpid, Id, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

use crate::directory::{container_of, NetworkDir, Shutdown};
use crate::exec::{self, FailedLine, OutputMark};
use crate::file_systems::NodeEntry;
use crate::node::{enter, open_log, output};
use crate::plan::{NetworkPlan, NodePlan};
use crate::private;
use crate::steps::{ExecPolicy, Step};
use crate::NetworkRefusal;

/// Real time for a line of `shutdown`.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// Exit status of a line that was killed at its limit; timeout(1) has the same.
const TIMED_OUT: i32 = 124;

/// Runs the lines of `exec`, node by node, each to its end. Returns those that failed.
pub(crate) fn run_exec(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    policy: ExecPolicy,
    progress: &dyn Fn(Step),
) -> anyhow::Result<Vec<FailedLine>> {
    let mut failed = Vec::new();
    let mut count = 0;
    for node in &plan.nodes {
        for line in &node.exec {
            let name = container_of(&plan.name, &node.name);
            let entry = NodeEntry::of(node, &directory.root(&node.name));
            let output = output(directory, node);
            let mark = OutputMark::of(&output);
            let words = exec::words(&node.shell, line);
            let status = run_in_node(state, &name, &words, &entry, &output, None)
                .with_context(|| format!("node {}: exec: {}", node.name, line.at(1)))?;
            for mut one in mark.failures(&node.name, line, status) {
                one.note += &private::full_note(state, &name);
                anyhow::ensure!(policy == ExecPolicy::KeepGoing, "{one}");
                progress(Step::Failed(&one));
                failed.push(one);
            }
            count += 1;
            progress(Step::ExecLines(count));
        }
    }
    Ok(failed)
}

/// Runs `words` in the node with the container `name`, and kills them after `limit` of real time. Returns the exit status.
fn run_in_node(
    state: &StateDir,
    name: &str,
    words: &[String],
    entry: &NodeEntry,
    output: &Path,
    limit: Option<Duration>,
) -> anyhow::Result<i32> {
    let log = open_log(output)?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            if !has_ended(child, limit)? {
                kill(child, Signal::SIGKILL)?;
                waitpid(child, None)?;
                return Ok(TIMED_OUT);
            }
            Ok(match waitpid(child, None)? {
                WaitStatus::Exited(_, status) => status,
                WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
                other => anyhow::bail!("{other:?}"),
            })
        }
        ForkResult::Child => {
            let run = || -> anyhow::Result<i32> {
                let null = File::open("/dev/null")?;
                nix::unistd::dup2_stdin(&null)?;
                nix::unistd::dup2_stdout(&log)?;
                nix::unistd::dup2_stderr(&log)?;
                let found = state.container(name)?;
                if let Some(mut command) = private::exec_command(&found)? {
                    return Err(command.args(words).exec().into());
                }
                enter(&found)?;
                let words: Vec<OsString> = words.iter().map(OsString::from).collect();
                container::exec(&found, &entry.enter(&words))
            };
            let status = run().unwrap_or_else(|error| {
                let _ = writeln!(io::stderr(), "lorentz: {error:#}");
                125
            });
            // SAFETY: ends this process. Nothing of the parent's may run again here.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Waits until the child has ended, or until `limit` of real time has passed. Returns whether it has ended.
fn has_ended(child: Pid, limit: Option<Duration>) -> anyhow::Result<bool> {
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    let end = limit.map(|limit| Instant::now() + limit);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    let Some(end) = end else { return Ok(true) };
    while waitid(Id::Pid(child), flags)? == WaitStatus::StillAlive {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

/// Returns the lines that run in the nodes of `plan` when the network goes down.
pub(crate) fn of_shutdown(
    plan: &NetworkPlan,
    directory: &NetworkDir,
) -> BTreeMap<String, Shutdown> {
    let nodes = plan.nodes.iter().filter(|node| !node.shutdown.is_empty());
    let of_node = |node: &NodePlan| Shutdown {
        shell: node.shell.clone(),
        lines: node.shutdown.clone(),
        output: output(directory, node),
    };
    nodes.map(|node| (node.name.clone(), of_node(node))).collect()
}

/// Runs the lines of `shutdown` of the network `name`, node by node. Returns those that failed. If its emulator has died, nothing
/// runs.
///
/// # Errors
///
/// If there is no such network, or no process can be started.
pub fn shut_down(state: &StateDir, name: &str) -> anyhow::Result<Vec<FailedLine>> {
    let directory = NetworkDir::of(state, name)?;
    if !directory.exists() {
        return Err(NetworkRefusal::Unknown(name.to_string()).into());
    }
    let record = directory.record().filter(|record| record.is_alive()).unwrap_or_default();
    let mut failed = Vec::new();
    for (node, Shutdown { shell, lines, output }) in &record.shutdown {
        let container = container_of(name, node);
        let entry = record.entries.get(node).cloned().unwrap_or_default();
        for line in lines {
            let mark = OutputMark::of(output);
            let words = exec::words(shell, line);
            let status =
                run_in_node(state, &container, &words, &entry, output, Some(SHUTDOWN_LIMIT))?;
            let failures = mark.failures(node, line, status);
            failed.extend(failures.into_iter().map(|one| FailedLine { key: "shutdown", ..one }));
        }
    }
    Ok(failed)
}
