//! The lifecycle of a container: starting its programs, supervising them, and clearing up after them.

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use lorentz_clock::{saturate, Rate, Span, NANOS_PER_SEC};
use lorentz_control::change_pipe::listen;
use lorentz_control::processes::{self, Process};
use lorentz_control::{CgroupPlace, Clock};
use lorentz_inject::{Adjust, ExecMonitor, Forked, LoopTask, SetWall, TargetClock, WallChange};
use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::unistd::{fork, pipe, setsid, ForkResult, Pid};

use crate::background::{self, close_standard_streams};
use crate::clock_watch::ClockWatch;
use crate::directory_watch::DirectoryWatch;
use crate::newcomers::NewcomerTask;
use crate::{skip, time_namespace, Container, Liveness, Mechanism, MonitorKind};

/// The processes that an attach brings in beside the one it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachReach {
    /// None.
    Process,
    /// Its descendants.
    Descendants,
    /// Its descendants, and all processes of its process id namespace: those of a container that another engine has executed in it
    /// are children of the engine.
    PidNamespace,
}

/// The processes that an attach has brought into virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Their process ids.
    pub pids: Vec<u32>,
}

/// Runs `command` in a new container and returns its exit status, as a shell does. The calling process is the monitor until then;
/// it must have one thread only. If programs are left when the command ends, a process in the background goes on supervising them.
/// `joins` is called when the process of the program exists, before any of the program runs.
///
/// # Errors
///
/// If the command cannot be found or started, or the kernel refuses.
pub fn run(
    container: Container,
    command: &[OsString],
    wait_while_frozen: bool,
    joins: impl FnOnce(&Container) -> anyhow::Result<()>,
) -> anyhow::Result<i32> {
    let before = |container: &Container, clock: &Clock, directory: Option<&mut DirectoryWatch>| {
        joins(container).map_err(io::Error::other)?;
        if wait_while_frozen {
            wait_until_unfrozen(container, clock, directory)?;
        }
        Ok(())
    };
    launch_and_supervise(container, command, MonitorKind::Run, before)
}

/// Runs one more command on the clock of `container`.
///
/// # Errors
///
/// As [`run`].
pub fn exec(container: &Container, command: &[OsString]) -> anyhow::Result<i32> {
    let container = container.enter(MonitorKind::Exec)?;
    launch_and_supervise(container, command, MonitorKind::Exec, |_, _, _| Ok(()))
}

fn launch_and_supervise(
    mut container: Container,
    command: &[OsString],
    kind: MonitorKind,
    before: impl FnOnce(&Container, &Clock, Option<&mut DirectoryWatch>) -> io::Result<()>,
) -> anyhow::Result<i32> {
    let clock = container.clock()?;
    let launched = launch(&mut container, clock, command, kind, before);
    let (mut monitor, ended) = match launched.and_then(|mut monitor| {
        let ended = monitor.serve()?;
        Ok((monitor, ended))
    }) {
        Ok(both) => both,
        Err(error) => {
            container.leave()?;
            return Err(error);
        }
    };
    if !monitor.is_abandoned() {
        hand_over(&mut monitor, &container, kind)?;
    }
    container.leave()?;
    Ok(ended.code())
}

fn launch(
    container: &mut Container,
    clock: Clock,
    command: &[OsString],
    kind: MonitorKind,
    before: impl FnOnce(&Container, &Clock, Option<&mut DirectoryWatch>) -> io::Result<()>,
) -> anyhow::Result<ExecMonitor> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>().context("a command without NUL bytes")?;
    // A container for attached processes has no group yet.
    if kind == MonitorKind::Exec && container.cgroup().is_none() {
        container.make_cgroup(CgroupPlace::Own)?;
    }
    if container.record().mechanism == Mechanism::TimeNamespace
        && !time_namespace::enter(container, &clock)?
    {
        container.set_mechanism(Mechanism::Shim)?;
    }
    skip::start_where_asked(container, &clock)?;
    let target = target(container, &clock)?;
    let clock_file = target.clock.try_clone()?;
    let mut directory = None;
    let group = container.cgroup().and_then(|cgroup| cgroup.open().ok());
    // Other commands find the program by its clock. Before an unfreeze, and in a time namespace, they find it by its number alone.
    let by_number = clock.is_frozen() || container.record().mechanism != Mechanism::Shim;
    let prepare = |forked: Forked| {
        if by_number {
            container.set_program(forked.pid.as_raw() as u32).map_err(io::Error::other)?;
        }
        if let Some(cgroup) = container.cgroup().filter(|_| !forked.in_group) {
            cgroup.add(forked.pid.as_raw() as u32)?;
        }
        // Not earlier: the watch blocks a signal, and the program would begin so.
        directory = watch_over_directory(container, clock_file.as_fd());
        before(container, &clock, directory.as_mut())
    };
    let mut monitor =
        ExecMonitor::launch(&words, target, group.as_ref().map(AsFd::as_fd), prepare)?;
    let program = monitor.pid();
    monitor.on_set_wall(set_wall(container));
    monitor.on_adjust(adjust(container));
    keep_watch_with(&mut monitor, container, clock, directory);
    // The program's first exec waits for the monitor. All that need not come before it follows while the program runs.
    monitor.serve_start()?;
    if let Some(pid) = program.filter(|_| !by_number) {
        // The directory may be deleted by now. The program runs all the same.
        let _ = container.set_program(pid.as_raw() as u32);
    }
    Ok(monitor)
}

/// Makes a monitor that starts no program. The calling process is a monitor of the container.
///
/// # Errors
///
/// If the container's clock cannot be read.
pub fn monitor_of(container: &Container) -> anyhow::Result<ExecMonitor> {
    let clock = container.clock()?;
    skip::start_where_asked(container, &clock)?;
    let mut monitor = ExecMonitor::without_program(target(container, &clock)?)?;
    monitor.on_set_wall(set_wall(container));
    monitor.on_adjust(adjust(container));
    keep_watch(&mut monitor, container, clock);
    Ok(monitor)
}

/// Makes the monitor look after the container's clock, and after those who enter the container.
pub(crate) fn keep_watch(monitor: &mut ExecMonitor, container: &Container, clock: Clock) {
    let directory = watch_over_directory(container, monitor.clock_file());
    keep_watch_with(monitor, container, clock, directory);
}

fn keep_watch_with(
    monitor: &mut ExecMonitor,
    container: &Container,
    clock: Clock,
    directory: Option<DirectoryWatch>,
) {
    let mut tasks: Vec<Box<dyn LoopTask>> = Vec::new();
    if let Some(watch) = ClockWatch::of(container, clock, directory) {
        tasks.push(Box::new(watch));
    }
    if let Some(watch) = NewcomerTask::of(container) {
        tasks.push(Box::new(watch));
    }
    monitor.set_loop_tasks(tasks);
}

fn watch_over_directory(container: &Container, clock: BorrowedFd) -> Option<DirectoryWatch> {
    let is_shim = container.record().mechanism == Mechanism::Shim;
    is_shim.then(|| DirectoryWatch::of(container, clock).ok()).flatten()
}

/// Sets the wall clock for a program of the container: the same step as an operator's, within the limits of clock_settime(2).
pub(crate) fn set_wall(container: &Container) -> SetWall {
    let container = container.clone();
    Box::new(move |change| {
        let clock = container.clock().map_err(io::Error::other)?;
        let reading = clock.reading();
        let by = match change {
            WallChange::To(wall) => wall.as_nanos() - reading.wall.as_nanos(),
            WallChange::By(by) => by,
        };
        if !clock.may_step(by) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        container.step_wall(Span(saturate(by))).map_err(io::Error::other)
    })
}

/// Carries out adjtimex(2) for a program of the container. A clock of several containers is not its own to discipline.
pub(crate) fn adjust(container: &Container) -> Adjust {
    let container = container.clone();
    Box::new(move |timex, may_set| container.adjust_clock(timex, may_set))
}

pub(crate) fn target(container: &Container, clock: &Clock) -> anyhow::Result<TargetClock> {
    let file = OpenOptions::new().read(true).write(true).open(container.clock_path())?;
    let shim = container.record().mechanism == Mechanism::Shim;
    Ok(TargetClock { clock: file.into(), policy: clock.policy(), shim })
}

/// Waits for the unfreeze of a container that was started frozen. Only then its first instruction runs.
///
/// It sleeps until the clock changes, for a network of many nodes is made while all of them wait. A controller that is stopped in its
/// change does not wake it; so it looks now and then, ever less often. Meanwhile it looks after the container's directory.
fn wait_until_unfrozen(
    container: &Container,
    clock: &Clock,
    mut directory: Option<&mut DirectoryWatch>,
) -> io::Result<()> {
    const ENDING_SIGNALS: [Signal; 4] =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    const FIRST_INTERVAL: Span = Span(NANOS_PER_SEC / 100);
    const MAX_INTERVAL: Span = Span(NANOS_PER_SEC);
    let mut interval = FIRST_INTERVAL;
    // The monitor has these signals blocked. Nobody reads them here, so they stay pending for it.
    let signals = SignalFd::new(&ENDING_SIGNALS.into_iter().collect())?;
    while clock.is_frozen() {
        if let Some(directory) = &mut directory {
            directory.attend();
        }
        let restores = directory.as_ref().and_then(|watch| watch.left());
        // The clock of an older version of Lorentz has no pipe.
        let changes = listen(&container.clock_path()).ok();
        // The pipe says nothing of a change that ended before it was opened.
        if !clock.is_frozen() {
            break;
        }
        let announced = clock.reading().to_come.first().map(|next| Span(next.left.0.max(0)));
        let restores = restores.map(|left| Span(left.as_nanos() as i64));
        let timeout = [announced, restores].into_iter().flatten().fold(interval, Span::min);
        let timeout = TimeSpec::nanoseconds(timeout.0);
        interval = Span(interval.0 * 2).min(MAX_INTERVAL);
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(changes.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::empty())));
        fds.extend(directory.iter().map(|watch| PollFd::new(watch.fd(), PollFlags::POLLIN)));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].any().unwrap_or(false) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "ended before it began"));
        }
    }
    Ok(())
}

/// Goes on supervising the remaining programs in a process of its own, so that this process can end with the command's status.
fn hand_over(
    monitor: &mut ExecMonitor,
    container: &Container,
    kind: MonitorKind,
) -> anyhow::Result<()> {
    background::start(|ready| {
        let container = enter_as(monitor, container, kind)?;
        // The clock watch of the parent belongs to the parent.
        keep_watch(monitor, &container, container.clock()?);
        close_standard_streams()?;
        drop(ready);
        monitor.serve_rest()?;
        container.leave()?;
        Ok(())
    })
}

/// Makes the directory of `container` anew, on whose clock `monitor` is, if it was deleted a moment ago.
pub(crate) fn complete(monitor: &ExecMonitor, container: &Container) -> anyhow::Result<()> {
    if !container.is_complete() {
        container.restore(monitor.clock_file())?;
    }
    Ok(())
}

/// Makes this process, which goes on as `monitor`, a monitor of `container`.
pub(crate) fn enter_as(
    monitor: &ExecMonitor,
    container: &Container,
    kind: MonitorKind,
) -> anyhow::Result<Container> {
    complete(monitor, container)?;
    let container = container.enter(kind)?;
    container.take_clock_over(monitor.clock_file())?;
    Ok(container)
}

/// Brings the running process `pid` into virtual time, with the others that `reach` names. A process in the background supervises it
/// from then on. `rate` is the one that the clock's settings have put off, if any: it begins when all are in.
///
/// # Errors
///
/// If the process may not be traced, or cannot be brought in. Processes that were brought in before it stay so.
pub fn attach(
    pid: u32,
    reach: AttachReach,
    container: Container,
    rate: Option<Rate>,
) -> anyhow::Result<Attached> {
    let (answer, report) = pipe()?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => {
            drop(report);
            let mut text = String::new();
            File::from(answer).read_to_string(&mut text)?;
            match text.strip_prefix("ok ") {
                Some(pids) => {
                    rate.map_or(Ok(()), |rate| begin_rate(&container, rate))?;
                    Ok(Attached {
                        pids: pids.split(' ').filter_map(|pid| pid.parse().ok()).collect(),
                    })
                }
                None if text.is_empty() => anyhow::bail!("attaching has ended without a word"),
                None => anyhow::bail!(text),
            }
        }
        ForkResult::Child => {
            drop(answer);
            let status = match attach_and_stay(pid, reach, &container, File::from(report)) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            // SAFETY: as above.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Sets the rate of a container whose processes are in, unless they have ended.
fn begin_rate(container: &Container, rate: Rate) -> anyhow::Result<()> {
    let begun = container.clock_to_change().map_err(anyhow::Error::from);
    match begun.and_then(|clock| Ok(clock.dilate(rate)?)) {
        Err(_) if container.liveness().is_ok_and(|life| life == Liveness::Ended) => Ok(()),
        begun => begun.map(drop),
    }
}

fn attach_and_stay(
    pid: u32,
    reach: AttachReach,
    container: &Container,
    mut report: File,
) -> anyhow::Result<()> {
    let _ = setsid();
    let container = container.enter(MonitorKind::Attach)?;
    match bring_in(pid, reach, &container) {
        Ok((mut monitor, pids)) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            report.write_all(format!("ok {}", pids.join(" ")).as_bytes())?;
            drop(report);
            close_standard_streams()?;
            monitor.serve_rest()?;
            container.leave()?;
            Ok(())
        }
        Err(error) => {
            container.leave()?;
            report.write_all(format!("{error:#}").as_bytes())?;
            Err(error)
        }
    }
}

fn bring_in(
    pid: u32,
    reach: AttachReach,
    container: &Container,
) -> anyhow::Result<(ExecMonitor, Vec<u32>)> {
    let mut monitor = monitor_of(container)?;
    monitor.attach(Pid::from_raw(pid as i32))?;
    let mut done = vec![pid];
    let mut tried = vec![pid];
    // Repeats until a look finds no new process: a process that is not in yet may have started another.
    while let Some(other) = next_outside(pid, reach, &tried)? {
        tried.push(other);
        match monitor.attach(Pid::from_raw(other as i32)) {
            Ok(()) => done.push(other),
            Err(_) if processes::has_left_real_time(other) => {}
            Err(error) => eprintln!("lorentz: {error}: it stays in real time"),
        }
    }
    monitor.program_begins(Pid::from_raw(pid as i32));
    // Waits until the clock has set anew the timers that were set before.
    container.clock()?.quiesce();
    Ok((monitor, done))
}

/// Returns a process that `reach` takes in with `pid`, is not in virtual time and has not been tried yet.
fn next_outside(pid: u32, reach: AttachReach, tried: &[u32]) -> io::Result<Option<u32>> {
    let all = processes::all()?;
    let mut members = match reach {
        AttachReach::Process => Vec::new(),
        _ => processes::descendants(&all, pid),
    };
    if reach == AttachReach::PidNamespace {
        let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(pid);
        members.extend(all.iter().filter(|one| own.is_some() && namespace(one.pid) == own));
    }
    let outside = |one: &&&Process| {
        !tried.contains(&one.pid) && !one.has_ended() && processes::clock_of(one.pid).is_none()
    };
    Ok(members.iter().find(outside).map(|one| one.pid))
}
