//! Changes a clock, and brings everyone along: the tasks that wait, the timers that are set, the monitors that listen.
//!
//! A clock is a file that any number of processes map ([`Clock`]). One process at a time changes it, under the file's lock. A
//! change has three steps:
//!
//! 1. publish a new piece of the clock ([`Clock::change`]);
//! 2. signal each thread whose deadline the piece has moved (the notifier);
//! 3. close the pipe `changes` ([`change_pipe`]), which wakes the clock's monitors. A monitor completes the change of a controller
//!    that was killed ([`Clock::supervise`]).
//!
//! The rest builds on that:
//!
//! - [`ClockOptions`], [`ClockSettings`], [`WrongOption`]: the options of a new clock, checked before anything is done;
//! - [`Date`]: a point on a wall clock as people say it, `next monday 9:00`;
//! - [`Target`]: how far a leap or a step goes, and whether it may;
//! - [`stop_tasks`], [`let_tasks_go`], [`Cgroup`]: a freeze stops the tasks too, by the freezer of their control group;
//! - [`Clock::follow`]: a clock that follows a line which somebody else computes, without ever going back;
//! - [`discipline`]: a clock that errs, and that adjtimex(2) disciplines;
//! - [`HeldClock`]: a clock that one experiment moves in rounds, each up to a limit;
//! - [`Clock::leap_to_next`]: the leap over idle time;
//! - [`processes`]: which processes are on which clock, by /proc.
//!
//! A controller may run on the clock that it changes. Therefore all code here reads clocks and waits through [`host_time`].
//!
//! ```
//! use lorentz_control::{Clock, ClockOptions, HostNow};
//!
//! let host = HostNow::read()?;
//! let asked = ClockOptions { rate: Some("60x".parse()?), ..Default::default() };
//!
//! let dir = tempfile::tempdir()?;
//! let clock = Clock::create(&dir.path().join("clock"), &asked.settings(&host)?)?;
//! clock.leap("1h".parse()?)?;
//! clock.freeze()?;
//!
//! let reading = clock.reading();
//! assert!(reading.frozen && reading.rate.to_string() == "60");
//! assert!(reading.wall.as_nanos() > host.wall.plus("1h".parse()?).as_nanos());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cgroup;
mod change;
pub mod change_pipe;
mod clock;
mod create;
mod date;
pub mod discipline;
mod error;
mod file_timestamps;
mod follow;
mod freeze;
pub mod host_time;
mod leap;
mod lock;
mod mounts;
mod notifier;
mod numbers;
mod option_table;
mod options;
pub mod processes;
mod relocate;
mod rounds;
mod signal;
mod signalled;
mod target;
#[cfg(test)]
mod test_process;

pub use cgroup::{Cgroup, CgroupPlace};
pub use change::ClockChange;
pub use clock::{Clock, Reading, ToCome};
pub use date::{local_time, Date};
pub use error::WrongOption;
pub use file_timestamps::FileTimestamps;
pub use follow::{Approach, Followed, Line};
pub use freeze::{let_tasks_go, stop_tasks};
pub use host_time::HostNow;
pub use lock::on_busy_clock;
pub use mounts::Mount;
pub use notifier::{ChangeCounts, Wait};
pub use numbers::number_inside;
pub use option_table::{
    cluster_clock, cluster_container, parse_read_cost, ClockOption, ClockOptions, OptionValue,
    CLOCK_OPTIONS,
};
pub use options::{ClockSettings, WallStart, WhichClock, LATEST};
pub use rounds::HeldClock;
pub use target::Target;
