//! Lines that run in nodes: those of `exec` when a network comes up, and those of `shutdown` when it goes down.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_container::{self as container, StateDir};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitid, waitpid, Id, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

use crate::directory::{container_of, NetworkDir, NetworkRecord, Shutdown};
use crate::exec::{self, FailedLine, OutputMark};
use crate::file_systems::NodeEntry;
use crate::node::{enter, open_log, output};
use crate::plan::{ExecLine, NetworkPlan, NodePlan};
use crate::private;
use crate::steps::{ExecPolicy, Step};
use crate::NetworkRefusal;

/// Real time for a line of `shutdown`.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// If no line of `exec` ends for so long, in real and in virtual time, `up` does not wait for the scripts that still run.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Exit status of a line that was killed at its limit; timeout(1) has the same.
const TIMED_OUT: i32 = 124;

/// Runs the lines of `exec`, node by node, each to its end. Returns those that failed.
///
/// The scripts of a network that another emulator would start run on all nodes at once, as there: they may wait for each other. If
/// no line ends for [`SCRIPT_TIMEOUT`], those that still run go on without this function.
pub(crate) fn run_exec(
    state: &StateDir,
    plan: &NetworkPlan,
    directory: &NetworkDir,
    policy: ExecPolicy,
    progress: &dyn Fn(Step),
) -> anyhow::Result<Vec<FailedLine>> {
    let outputs: Vec<PathBuf> = plan.nodes.iter().map(|node| output(directory, node)).collect();
    let mut runners: Vec<Runner> = Vec::new();
    for (node, output) in plan.nodes.iter().zip(&outputs) {
        let name = container_of(&plan.name, &node.name);
        let entry = NodeEntry::of(node, &directory.root(&node.name));
        runners.push(Runner { state, node, name, entry, output, next: 0, running: None });
    }
    let mut told = Told { policy, progress, failed: Vec::new(), count: 0 };
    let has_scripts = plan.nodes.iter().flat_map(|node| &node.exec).any(|line| line.is_script);
    if has_scripts && policy == ExecPolicy::KeepGoing {
        run_at_once(&mut runners, &mut told)?;
        let order =
            |failed: &FailedLine| plan.nodes.iter().position(|node| node.name == failed.node);
        told.failed.sort_by_key(order);
        return Ok(told.failed);
    }
    for runner in &mut runners {
        while runner.start_next()? {
            let status = runner.wait()?;
            told.ended(runner, status)?;
        }
    }
    Ok(told.failed)
}

/// Runs the lines of all nodes at once, those of a node one after the other.
fn run_at_once(runners: &mut [Runner], told: &mut Told) -> anyhow::Result<()> {
    let Some(first) = runners.first() else { return Ok(()) };
    let clock = first.state.container(&first.name)?.clock()?;
    for runner in runners.iter_mut() {
        runner.start_next()?;
    }
    let now = || (Instant::now(), clock.look().now());
    let mut last_end = now();
    while runners.iter().any(|runner| runner.running.is_some()) {
        let (real, of_nodes) = now();
        let virtual_time = u64::try_from(of_nodes.since(last_end.1).0).unwrap_or_default();
        let waited = (real - last_end.0).min(Duration::from_nanos(virtual_time));
        if waited > SCRIPT_TIMEOUT {
            return runners.iter().try_for_each(|runner| told.goes_on(runner));
        }
        for runner in runners.iter_mut() {
            if let Some(status) = runner.poll()? {
                last_end = now();
                told.ended(runner, status)?;
                runner.start_next()?;
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A line that runs, and its process.
struct RunningLine<'a> {
    child: Pid,
    line: &'a ExecLine,
    mark: OutputMark<'a>,
}

/// A node, and how far its lines of `exec` are.
struct Runner<'a> {
    state: &'a StateDir,
    node: &'a NodePlan,
    /// The name of its container.
    name: String,
    entry: NodeEntry,
    output: &'a Path,
    /// The number of lines that have been started.
    next: usize,
    /// The last of them, also when it has ended.
    running: Option<RunningLine<'a>>,
}

impl Runner<'_> {
    /// Starts the next line. Returns whether there is one.
    fn start_next(&mut self) -> anyhow::Result<bool> {
        self.running = None;
        let Some(line) = self.node.exec.get(self.next) else { return Ok(false) };
        let mark = OutputMark::of(self.output);
        let words = exec::words(&self.node.shell, line);
        let child = start_in_node(self.state, &self.name, &words, &self.entry, self.output)
            .with_context(|| format!("node {}: exec: {}", self.node.name, line.at(1)))?;
        self.next += 1;
        self.running = Some(RunningLine { child, line, mark });
        Ok(true)
    }

    /// Waits for the line that runs. Returns its exit status, 0 where none runs.
    fn wait(&self) -> anyhow::Result<i32> {
        self.running.as_ref().map_or(Ok(0), |running| status_of(running.child))
    }

    /// Returns the exit status of the line that runs, if it has ended.
    fn poll(&self) -> anyhow::Result<Option<i32>> {
        let Some(RunningLine { child, .. }) = self.running else { return Ok(None) };
        let has_ended = has_ended(child, Duration::ZERO)?;
        has_ended.then(|| status_of(child)).transpose()
    }

    /// Returns what failed in the last line, which has ended with `status`, or runs.
    fn failures(&self, status: i32) -> Vec<FailedLine> {
        let Some(RunningLine { line, mark, .. }) = &self.running else { return Vec::new() };
        let mut failures = mark.failures(&self.node.name, line, status);
        for one in &mut failures {
            one.note += &private::full_note(self.state, &self.name);
        }
        failures
    }
}

/// The results of the lines so far, and the caller that hears of them.
struct Told<'a> {
    policy: ExecPolicy,
    progress: &'a dyn Fn(Step),
    failed: Vec<FailedLine>,
    /// The number of lines that have ended.
    count: usize,
}

impl Told<'_> {
    /// Tells that the line of `runner` has ended.
    fn ended(&mut self, runner: &Runner, status: i32) -> anyhow::Result<()> {
        self.failures(runner, status)?;
        self.count += 1;
        (self.progress)(Step::ExecLines(self.count));
        Ok(())
    }

    /// Tells that the line of `runner` still runs, if it does, and what has failed in it.
    fn goes_on(&mut self, runner: &Runner) -> anyhow::Result<()> {
        let Some(RunningLine { line, .. }) = &runner.running else { return Ok(()) };
        self.failures(runner, 0)?;
        let rest = match runner.next < runner.node.exec.len() {
            true => "; the lines behind it do not run",
            false => "",
        };
        let (file, number, node) = (&line.file, line.line, &runner.node.name);
        let seconds = SCRIPT_TIMEOUT.as_secs();
        (self.progress)(Step::GoesOn(&format!(
            "{file}:{number}: node {node}: exec: has not ended in {seconds} s, and goes on{rest}"
        )));
        Ok(())
    }

    fn failures(&mut self, runner: &Runner, status: i32) -> anyhow::Result<()> {
        for one in runner.failures(status) {
            anyhow::ensure!(self.policy == ExecPolicy::KeepGoing, "{one}");
            (self.progress)(Step::Failed(&one));
            self.failed.push(one);
        }
        Ok(())
    }
}

/// Starts `words` in the node with the container `name`. Returns the process.
fn start_in_node(
    state: &StateDir,
    name: &str,
    words: &[String],
    entry: &NodeEntry,
    output: &Path,
) -> anyhow::Result<Pid> {
    let log = open_log(output)?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
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

/// Waits for the end of `child`. Returns its exit status, as a shell tells it.
fn status_of(child: Pid) -> anyhow::Result<i32> {
    Ok(match waitpid(child, None)? {
        WaitStatus::Exited(_, status) => status,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        other => anyhow::bail!("{other:?}"),
    })
}

/// Runs `words` in the node with the container `name`, and kills them after `limit` of real time. Returns the exit status.
fn run_in_node(
    state: &StateDir,
    name: &str,
    words: &[String],
    entry: &NodeEntry,
    output: &Path,
    limit: Duration,
) -> anyhow::Result<i32> {
    let child = start_in_node(state, name, words, entry, output)?;
    if has_ended(child, limit)? {
        return status_of(child);
    }
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    Ok(TIMED_OUT)
}

/// Waits until the child has ended, or until `limit` of real time has passed. Returns whether it has ended.
fn has_ended(child: Pid, limit: Duration) -> anyhow::Result<bool> {
    let end = Instant::now() + limit;
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    while waitid(Id::Pid(child), flags)? == WaitStatus::StillAlive {
        if Instant::now() >= end {
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
    for node in record.shutdown.keys() {
        failed.extend(shut_down_node(state, name, &record, node)?);
    }
    Ok(failed)
}

/// Runs the lines of `shutdown` of one node. Returns those that failed.
pub(crate) fn shut_down_node(
    state: &StateDir,
    network: &str,
    record: &NetworkRecord,
    node: &str,
) -> anyhow::Result<Vec<FailedLine>> {
    let Some(Shutdown { shell, lines, output }) = record.shutdown.get(node) else {
        return Ok(Vec::new());
    };
    let container = container_of(network, node);
    let entry = record.entries.get(node).cloned().unwrap_or_default();
    let mut failed = Vec::new();
    for line in lines {
        let mark = OutputMark::of(output);
        let words = exec::words(shell, line);
        let status = run_in_node(state, &container, &words, &entry, output, SHUTDOWN_LIMIT)?;
        let failures = mark.failures(node, line, status);
        failed.extend(failures.into_iter().map(|one| FailedLine { key: "shutdown", ..one }));
    }
    Ok(failed)
}
