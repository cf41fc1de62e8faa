//! Idleness: which tasks of a clock wait, for what, and whether anything outside may wake them; and skipping of idle time.
//!
//! Three questions, in this order:
//!
//! 1. Do all tasks sleep? [`SwitchTrace`] asks the kernel by BPF programs, [`look_through`] reads /proc.
//! 2. May anything outside the clock wake one of them? A task in a wait for a child or a timer is woken from inside. A task that
//!    reads from a connection to another machine is not. An answer that is not certain counts as yes.
//! 3. Did no task run meanwhile? A second look finds the same number of context switches.
//!
//! The [`Skipper`] asks them again and again. If the answers are yes, no and yes, it makes the clock leap to the next deadline.
//!
//! ```
//! use lorentz_clock::SkipMode;
//! use lorentz_control::{Clock, ClockOptions, HostNow};
//!
//! let dir = tempfile::tempdir()?;
//! let settings = ClockOptions::default().settings(&HostNow::read()?)?;
//! let clock = Clock::create(&dir.path().join("clock"), &settings)?;
//! clock.set_skipping(SkipMode::On, "0s".parse()?)?;
//!
//! let report = lorentz_idle::report(clock, &[])?;
//! assert_eq!((report.mode, report.leaps, report.skipper), (SkipMode::On, 0, None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod external_wakers;
mod netlink;
mod proc_files;
mod skip;
mod sockets;
mod switch_trace;
mod task;
mod task_scan;
mod task_waits;

pub use skip::{
    blocker, check_switch_events, end, end_unused, report, skipper_of, SkipReport, Skipper,
};
pub use switch_trace::SwitchTrace;
pub use task::{Blocker, SleepingTask, TaskState};
pub use task_scan::look_through;
pub use task_waits::{task_waits, TaskWait};
