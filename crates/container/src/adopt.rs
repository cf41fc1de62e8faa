//! Adoption: programs whose monitor has died get a new one.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use lorentz_control::host_time::{sleep, HostMoment};
use lorentz_control::processes::{self, Process};
use lorentz_control::Cgroup;
use lorentz_inject::{Adopter, Adoption, ExecMonitor, NoNewPrivs, RegistrationSocket};
use nix::sys::signal::{signal, SigHandler, Signal};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::background::{self, close_standard_streams, keep_only};
use crate::lifecycle::monitor_of;
use crate::newcomers::go_on_watching;
use crate::supervise::{self, connect_to_monitor, open_process};
use crate::{freeze, Container, Liveness, Mechanism, MonitorKind, StateError};

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
        serde_json::from_str(&text).context("the new monitor has ended without an answer")?;
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
    if container.liveness()? == Liveness::Ended {
        return Err(StateError::Ended(name()));
    }
    Ok(())
}

/// Whether the freezer has stopped all tasks of a container.
fn stands_still(container: &Container) -> bool {
    container.cgroup().is_some_and(|group: Cgroup| group.is_frozen().unwrap_or(false))
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
    go_on_watching(&mut monitor, &container);
    monitor.serve_rest()?;
    container.leave()?;
    Ok(())
}

fn begin(
    container: &Container,
    no_new_privs: NoNewPrivs,
) -> anyhow::Result<(ExecMonitor, Container, AdoptReport)> {
    let mut container = container.enter(MonitorKind::Adopt)?;
    match adopt_all(&container, no_new_privs) {
        Ok((monitor, report)) => {
            if report.refused.is_empty() {
                // The directory may be deleted by now. The programs have their monitor all the same.
                let _ = container.replace_dead_monitors();
            }
            Ok((monitor, container, report))
        }
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
    let adopter = Adopter::new(monitor_of(container)?, no_new_privs);
    let mut round = Round { adopter, settled: HashSet::new(), report: AdoptReport::default() };
    let is_free = container.record().experiment.is_none();
    if is_free {
        round.run_frozen(container)?;
    }
    round.run(container)?;
    // From here on no failure undoes what is adopted.
    if is_free {
        // An adoption that was killed may have let the tasks go.
        let clock = container.clock()?;
        if clock.is_frozen() {
            let _ = freeze::follow_clock(container, &clock);
        }
    }
    round.watch_idle_programs(container);
    let Round { adopter, report, .. } = round;
    let mut monitor = adopter.into_monitor();
    // A monitor without programs leaves, and must not be found.
    if !report.adopted.is_empty() {
        // Without the socket, `exec` starts another monitor.
        let _ = open_door(&mut monitor, container);
    }
    Ok((monitor, report))
}

/// Makes the registration socket of a container of an OCI runtime, if no other monitor has one.
fn open_door(monitor: &mut ExecMonitor, container: &Container) -> io::Result<()> {
    if container.record().bundle.is_some() && connect_to_monitor(container).is_err() {
        let socket = supervise::bind_anew(container)?;
        monitor.accept_registrations(RegistrationSocket::listening(socket)?);
    }
    Ok(())
}

/// The processes of a container, while they are adopted.
struct Round {
    adopter: Adopter,
    /// Processes that need no further try, each by process id and start time.
    settled: HashSet<(u32, u64)>,
    report: AdoptReport,
}

impl Round {
    /// Goes through the processes until two passes adopt none.
    ///
    /// Race: a process that has not been adopted starts another one while a pass lists the processes, and ends. The next pass finds
    /// the other one. A child of an adopted process inherits the new filter.
    fn run(&mut self, container: &Container) -> anyhow::Result<()> {
        const QUIET_PASSES: u32 = 2;
        let begun = HostMoment::now();
        let mut quiet = 0;
        loop {
            let mut listed = container.processes()?;
            listed.retain(|process| !process.has_ended() && !self.settled.contains(&key(process)));
            let before = self.report.adopted.len();
            // An experiment that has stopped the container lets it go on.
            if !stands_still(container) {
                listed.retain(|process| self.is_busy(process));
            }
            let adopts = self.report.adopted.len() > before;
            quiet = if listed.is_empty() && !adopts { quiet + 1 } else { 0 };
            if quiet == QUIET_PASSES {
                return Ok(());
            }
            if begun.elapsed() > ADOPT_TIMEOUT {
                self.give_up(&listed, stands_still(container));
                return Ok(());
            }
            if !listed.is_empty() {
                sleep(RETRY_INTERVAL);
            }
        }
    }

    /// Adopts the processes of a container that the freezer has stopped. They are thawed, with all threads stopped by ptrace
    /// meanwhile, because a task in the freezer runs no handler.
    ///
    /// Race: this process dies in between. The tasks then run, and their clock stands still. The next adoption stops them again.
    fn run_frozen(&mut self, container: &Container) -> anyhow::Result<()> {
        let Some(group) = container.cgroup().filter(|_| stands_still(container)) else {
            return Ok(());
        };
        let stopped = self.adopter.stop(|| group.pids_below());
        group.thaw();
        for process in container.processes()? {
            let adoption = self.adopter.adopt_stopped(&stopped, Pid::from_raw(process.pid as i32));
            self.note(&process, adoption);
        }
        // A group that is gone stops no task.
        let _ = group.begin_freeze();
        drop(stopped);
        Ok(())
    }

    /// Stays until first processes that execute nothing have ended. They are on no clock.
    fn watch_idle_programs(&mut self, container: &Container) {
        let mut programs = container.programs_without_monitor();
        programs.retain(|pid| processes::clock_of(*pid).is_none());
        for pid in programs {
            if let Ok(process) = open_process(pid) {
                self.adopter.monitor().wait_for(process);
                self.report.adopted.push(pid);
            }
        }
    }

    /// Tries to adopt a process. Returns whether another try may succeed.
    fn is_busy(&mut self, process: &Process) -> bool {
        let adoption = self.adopter.adopt(Pid::from_raw(process.pid as i32));
        // Race: a process that has been adopted executes a program, and another waits for that (vfork).
        let _ = self.adopter.monitor().serve_once(false);
        self.note(process, adoption)
    }

    /// Notes the result of a try. Returns whether another try may succeed.
    fn note(
        &mut self,
        process: &Process,
        adoption: Result<Adoption, lorentz_inject::Error>,
    ) -> bool {
        match adoption {
            Ok(Adoption::Busy) => return true,
            Ok(Adoption::Adopted) => self.report.adopted.push(process.pid),
            Ok(Adoption::Supervised | Adoption::Ended) => {}
            Err(error) => self.refuse(process, error.to_string()),
        }
        self.settled.insert(key(process));
        false
    }

    fn give_up(&mut self, left: &[Process], stand_still: bool) {
        let why = match stand_still {
            true => "it stands still; adopt it when it runs",
            false => "none of its threads answers",
        };
        for process in left {
            let why = format!("process {}: {why}", process.pid);
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
