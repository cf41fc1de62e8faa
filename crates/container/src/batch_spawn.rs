//! Batch spawn: many containers under one monitor. In an experiment with many containers, a monitor process for each one would be
//! too much.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use lorentz_control::ClockSettings;
use lorentz_inject::{find_command, ExecMonitor, Forked};
use nix::sys::signal::SigSet;

use crate::background::start_in_background;
use crate::lifecycle::{adjust, set_wall, target};
use crate::{Container, MonitorKind, NewContainer, StateDir};

/// Most containers that one process supervises. It looks at all of them whenever one executes a program or ends.
pub const MAX_BATCH: usize = 256;

/// The containers of one batch, and the command that each one runs.
#[derive(Clone, Copy, Debug)]
pub struct BatchSpawn<'a> {
    /// Their names, at most [`MAX_BATCH`].
    pub names: &'a [String],
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The directory for their output, one file for each container. `None` discards the output.
    pub output: Option<&'a Path>,
    /// Their clocks.
    pub settings: &'a ClockSettings,
}

/// Starts a container for each name, all with the same command, and a process in the background that supervises them. That process
/// calls `connect` once, and calls the returned function for each container before its program begins. The caller must have one
/// thread only.
///
/// # Errors
///
/// If the command cannot be found, a name is in use, or the kernel refuses. Containers that were started before the error go on.
pub fn spawn_batch<J>(
    state: &StateDir,
    batch: &BatchSpawn,
    connect: impl FnOnce() -> anyhow::Result<J>,
) -> anyhow::Result<()>
where
    J: FnMut(&Container) -> anyhow::Result<()>,
{
    let words = batch.command.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>().context("a command without NUL bytes")?;
    find_command(&words[0])?;
    if let Some(output) = batch.output {
        fs::create_dir_all(output).with_context(|| output.display().to_string())?;
    }
    start_in_background(&[], |ready| {
        let mut monitor = BatchMonitor::new()?;
        let spawned = connect().and_then(|mut joins| {
            batch.names.iter().try_for_each(|name| {
                monitor.add(state, name, batch, &words, &mut joins).with_context(|| name.clone())
            })
        });
        if let Err(error) = &spawned {
            ready.failed(error);
        }
        ready.done();
        monitor.serve()
    })
}

/// The supervising process in the background.
struct BatchMonitor {
    monitor: ExecMonitor,
    mask: SigSet,
    containers: Vec<ManagedContainer>,
}

/// A container of the batch.
struct ManagedContainer {
    /// The number of its managed clock in the monitor.
    clock: usize,
    container: Container,
}

impl BatchMonitor {
    fn new() -> anyhow::Result<BatchMonitor> {
        let mask = SigSet::thread_get_mask()?;
        Ok(BatchMonitor { monitor: ExecMonitor::for_batch()?, mask, containers: Vec::new() })
    }

    fn add(
        &mut self,
        state: &StateDir,
        name: &str,
        batch: &BatchSpawn,
        words: &[CString],
        joins: &mut impl FnMut(&Container) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let new = NewContainer {
            name: Some(name),
            command: batch.command,
            has_programs: true,
            ..NewContainer::monitored_by(MonitorKind::Run)
        };
        let mut container = state.create(&new, batch.settings)?;
        let begun = self.begin(&mut container, batch, words, joins);
        match begun {
            Ok(clock) => self.containers.push(ManagedContainer { clock, container }),
            Err(_) => container.leave()?,
        }
        begun.map(drop)
    }

    fn begin(
        &mut self,
        container: &mut Container,
        batch: &BatchSpawn,
        words: &[CString],
        joins: &mut impl FnMut(&Container) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let cgroup = container.cgroup();
        let target = target(container, &container.clock()?)?;
        self.streams(batch, container.name())?;
        let recorded = &mut *container;
        let group = cgroup.as_ref().and_then(|cgroup| cgroup.open().ok());
        let prepare = |forked: Forked| {
            let number = forked.pid.as_raw() as u32;
            recorded.set_program(number).map_err(io::Error::other)?;
            if let Some(cgroup) = cgroup.as_ref().filter(|_| !forked.in_group) {
                cgroup.add(number)?;
            }
            joins(recorded).map_err(io::Error::other)
        };
        let clock = self.monitor.launch_on_new_clock(
            words,
            target,
            &self.mask,
            group.as_ref().map(AsFd::as_fd),
            prepare,
        )?;
        self.monitor.on_set_wall_of(clock, set_wall(container));
        self.monitor.on_adjust_of(clock, adjust(container));
        // The exec of the program waits for this.
        self.monitor.serve_once(false)?;
        Ok(clock)
    }

    /// Redirects the standard streams for the next program.
    fn streams(&self, batch: &BatchSpawn, name: &str) -> anyhow::Result<()> {
        if let Some(output) = batch.output {
            let file = File::create(output.join(format!("{name}.out")))?;
            nix::unistd::dup2_stdout(&file)?;
            nix::unistd::dup2_stderr(&file)?;
        }
        Ok(())
    }

    /// Supervises the containers until the last one has ended.
    fn serve(mut self) -> anyhow::Result<()> {
        crate::background::close_standard_streams()?;
        while !self.monitor.is_abandoned() {
            self.monitor.serve_once(true)?;
            self.leave_the_ended();
        }
        self.leave_the_ended();
        Ok(())
    }

    fn leave_the_ended(&mut self) {
        let monitor = &self.monitor;
        self.containers.retain(|one| {
            let ended = monitor.is_clock_abandoned(one.clock);
            if ended {
                // `lorentz rm` clears a container that cannot be removed now.
                let _ = one.container.leave();
            }
            !ended
        });
    }
}
