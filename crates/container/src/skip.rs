//! Skipping of idle time for a container: when its skipper runs, and for how long.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use lorentz_clock::{SkipMode, Span};
use lorentz_control::host_time::{self, HostMoment};
use lorentz_control::Clock;
use lorentz_idle::{skipper_of, Skipper};

use crate::background::{self, close_standard_streams, keep_only};
use crate::Container;

/// Sets the skip mode of `container`, and starts or ends its skipper accordingly.
///
/// # Errors
///
/// If the container's clock cannot be changed, or no process can be started.
pub fn set(container: &Container, mode: SkipMode, read_cost: Option<Span>) -> anyhow::Result<()> {
    let clock = container.clock_to_change()?;
    let cost = read_cost.unwrap_or(clock.reading().skipping.read_cost);
    clock.set_skipping(mode, cost)?;
    match (mode, skipper_of(&container.clock_path())?) {
        (SkipMode::Off, Some(skipper)) => {
            lorentz_idle::end(skipper);
            await_end(&container.clock_path(), skipper)?;
        }
        // Inside a container, its monitor starts the skipper: a process that begins here would live on the clock that it watches.
        (SkipMode::On | SkipMode::Force, None) if !host_time::is_virtual() => start(container)?,
        _ => {}
    }
    Ok(())
}

/// Waits until the killed `skipper` of `clock` has given its lock up.
///
/// Race: the next command turns skipping on while the skipper is about to end. It finds that a skipper has the lock, and starts none.
fn await_end(clock: &Path, skipper: u32) -> io::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(1);
    const POLL_INTERVAL: Duration = Duration::from_micros(500);
    let begun = HostMoment::now();
    while skipper_of(clock)? == Some(skipper) && begun.elapsed() < TIMEOUT {
        host_time::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Starts the skipper of `clock`, the container's, if skipping is on and there is no skipper.
///
/// # Errors
///
/// If no process can be started.
pub(crate) fn start_where_asked(container: &Container, clock: &Clock) -> anyhow::Result<()> {
    let asked = clock.reading().skipping.mode != SkipMode::Off;
    if asked && skipper_of(&container.clock_path())?.is_none() {
        start(container)?;
    }
    Ok(())
}

/// Starts the skipper in a process of its own. When the function returns, the skipper has the lock, or another skipper has it.
fn start(container: &Container) -> anyhow::Result<()> {
    background::start(|ready| {
        let skipper = Skipper::new(container.clock()?)?;
        close_standard_streams()?;
        keep_only(&[skipper.as_fd(), ready.as_fd()]);
        let monitored = |one: &Container| one.record().monitors.iter().any(|m| m.is_alive());
        skipper.run(ready, || {
            container.sharing_its_clock().is_ok_and(|sharing| sharing.iter().any(monitored))
        });
        Ok(())
    })
}
