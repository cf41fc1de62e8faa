//! Adoption: programs whose monitor has died get a new one.

use std::collections::HashSet;
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use lorentz_control::host_time::{sleep, HostMoment};
use lorentz_control::processes::Process;
use lorentz_inject::{Adoption, ExecMonitor, NoNewPrivs, RegistrationSocket};
use nix::sys::signal::{signal, SigHandler, Signal};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::background::{self, close_standard_streams, keep_only};
use crate::lifecycle::{keep_watch, set_wall, target};
use crate::{skip, supervise, Container, Liveness, Mechanism, MonitorKind, StateError};

/// How long an adoption tries processes whose threads are all busy, and goes on while programs start others.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The result of an adoption.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdoptReport {
    /// The processes that have a new monitor.
    pub adopted: Vec<u32>,
    /// The processes that could not be adopted. They go on, and can start no program.
    pub refused: Vec<Refusal>,
}

/// A process that could not be adopted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Its process id.
    pub pid: u32,
    /// The reason, which names the process.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Gives each program of `container` whose monitor has died a new one, a process in the background. Processes that a monitor
/// supervises stay as they are. The caller must have one thread only.
///
/// # Errors
///
/// If the container has ended or needs no monitor, or no process can be made.
pub fn adopt(container: &Container, no_new_privs: NoNewPrivs) -> anyhow::Result<AdoptReport> {
    check(container)?;
    if !container.record().has_dead_monitor() {
        return Ok(AdoptReport::default());
    }
    let (mut ours, theirs) = UnixStream::pair()?;
    background::start(move |ready| {
        keep_only(&[ready.as_fd(), theirs.as_fd()]);
        drop(ready);
        adopt_and_stay(container, no_new_privs, theirs)
    })?;
    let mut text = String::new();
    ours.read_to_string(&mut text)?;
    let report: Result<AdoptReport, String> =
        serde_json::from_str(&text).context("adopting has ended without a word")?;
    report.map_err(anyhow::Error::msg)
}

/// As [`adopt`], for a command that starts a program on the clock of `container` and does not depend on it. Returns why a program has
/// no monitor, if so.
pub fn adopt_if_needed(container: &Container) -> Option<String> {
    if check(container).is_err() || !container.record().has_dead_monitor() {
        return None;
    }
    let why = match adopt(container, NoNewPrivs::Keep) {
        Ok(report) => report.refused.first()?.why.clone(),
        Err(error) => format!("{error:#}"),
    };
    Some(format!("{}: its monitor is dead, and cannot be replaced: {why}", container.name()))
}

fn check(container: &Container) -> Result<(), StateError> {
    let name = || container.name().to_string();
    if container.record().mechanism == Mechanism::TimeNamespace {
        return Err(StateError::NeedsNoMonitor(name()));
    }
    match container.liveness()? {
        Liveness::Ended => Err(StateError::Ended(name())),
        _ => Ok(()),
    }
}

/// Adopts the processes, sends the result to `answer`, and supervises them until the last one has ended.
fn adopt_and_stay(
    container: &Container,
    no_new_privs: NoNewPrivs,
    mut answer: UnixStream,
) -> anyhow::Result<()> {
    // The reader may be killed. The programs need this process all the same.
    // SAFETY: no handler.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
    let done = begin(container, no_new_privs);
    let report = done.as_ref().map(|(_, _, report)| report).map_err(|error| format!("{error:#}"));
    let text = serde_json::to_string(&report)?;
    // After this no command may wait for the answer any more, nor read this process's streams to their end.
    close_standard_streams()?;
    std::env::set_current_dir("/")?;
    let _ = answer.write_all(text.as_bytes());
    drop(answer);
    let (mut monitor, container, _) = done?;
    monitor.serve_rest()?;
    container.leave()?;
    Ok(())
}

fn begin(
    container: &Container,
    no_new_privs: NoNewPrivs,
) -> anyhow::Result<(ExecMonitor, Container, AdoptReport)> {
    let mut container = container.enter(MonitorKind::Adopt)?;
    let adopted = adopt_all(&container, no_new_privs);
    if adopted.as_ref().is_ok_and(|(_, report)| report.refused.is_empty()) {
        container.replace_dead_monitors()?;
    }
    match adopted {
        Ok((monitor, report)) => Ok((monitor, container, report)),
        Err(error) => {
            container.leave()?;
            Err(error)
        }
    }
}

fn adopt_all(
    container: &Container,
    no_new_privs: NoNewPrivs,
) -> anyhow::Result<(ExecMonitor, AdoptReport)> {
    let clock = container.clock()?;
    skip::start_where_asked(container, &clock)?;
    let mut monitor = ExecMonitor::without_program(target(container, &clock)?)?;
    monitor.on_set_wall(set_wall(container));
    keep_watch(&mut monitor, container)?;
    if container.record().bundle.is_some() {
        let socket = supervise::bind_anew(container).context("making the monitor's door")?;
        monitor.accept_registrations(RegistrationSocket::listening(socket)?);
    }
    let mut round =
        Round { monitor, no_new_privs, settled: HashSet::new(), report: AdoptReport::default() };
    round.run(container)?;
    round.monitor.stop_before_record();
    Ok((round.monitor, round.report))
}

/// The processes of a container, while they are adopted.
struct Round {
    monitor: ExecMonitor,
    no_new_privs: NoNewPrivs,
    /// Processes that need no further try, each by process id and start time.
    settled: HashSet<(u32, u64)>,
    report: AdoptReport,
}

impl Round {
    /// Goes through the processes until a pass adopts none.
    ///
    /// Race: a process that has not been adopted starts another one while a pass lists the processes. The next pass finds it. A child
    /// of an adopted process inherits the new filter.
    fn run(&mut self, container: &Container) -> anyhow::Result<()> {
        let begun = HostMoment::now();
        loop {
            let mut listed = container.processes()?;
            listed.retain(|process| !process.has_ended() && !self.settled.contains(&key(process)));
            let before = self.report.adopted.len();
            listed.retain(|process| self.is_busy(process));
            if listed.is_empty() && self.report.adopted.len() == before {
                return Ok(());
            }
            if begun.elapsed() > ADOPT_TIMEOUT {
                self.give_up(&listed);
                return Ok(());
            }
            if !listed.is_empty() {
                sleep(RETRY_INTERVAL);
            }
        }
    }

    /// Tries to adopt a process. Returns whether another try may succeed.
    fn is_busy(&mut self, process: &Process) -> bool {
        let adoption = self.monitor.adopt(Pid::from_raw(process.pid as i32), self.no_new_privs);
        // Race: a process that has been adopted executes a program, and another waits for that (vfork).
        let _ = self.monitor.serve_once(false);
        match adoption {
            Ok(Adoption::Busy) => return true,
            Ok(Adoption::Adopted) => self.report.adopted.push(process.pid),
            Ok(Adoption::Supervised | Adoption::Ended) => {}
            Err(error) => self.refuse(process, error.to_string()),
        }
        self.settled.insert(key(process));
        false
    }

    fn give_up(&mut self, left: &[Process]) {
        for process in left {
            let why = format!("process {}: none of its threads answers", process.pid);
            self.refuse(process, why);
        }
    }

    fn refuse(&mut self, process: &Process, why: String) {
        self.report.refused.push(Refusal { pid: process.pid, why });
    }
}

fn key(process: &Process) -> (u32, u64) {
    (process.pid, process.start_ticks)
}
