//! Puts the shim into a process: at exec, or live. The only crate that knows ptrace and ELF.
//!
//! An [`ExecMonitor`] starts a program under the seccomp filter. The kernel notifies it of each exec by seccomp user
//! notification. At the exec stop it puts the shim into the new image and detaches: between execs it traces nothing.
//! [`ExecMonitor::attach`] brings in a process that is already running. A process that another program has created registers
//! itself ([`SelfRegistration`]) at the monitor's registration socket ([`RegistrationSocket`]). An [`Adopter`] is a monitor that takes
//! over processes whose own monitor has died.
//!
//! ```no_run
//! use lorentz_inject::{ExecMonitor, TargetClock};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = std::fs::File::options().read(true).write(true).open("/run/lorentz/demo/clock")?;
//! let target = TargetClock { clock: clock.into(), policy: Default::default(), shim: true };
//! let command = [c"/bin/date".to_owned()];
//! let mut monitor = ExecMonitor::launch(&command, target, None, |_forked| Ok(()))?;
//! println!("status {}", monitor.serve()?.code());
//! # Ok(())
//! # }
//! ```

mod adopt;
mod attach;
mod boot_stub;
mod borrowed_thread;
mod call_site;
mod capabilities;
mod dated;
mod error;
mod events;
mod filter;
mod forced_signals;
mod host;
mod image;
mod last_run;
mod launch;
pub mod limits;
mod managed_clock;
mod monitor;
mod namespace;
mod profile;
mod registration;
mod restored;
mod self_registration;
mod shared;
mod sockets;
mod stack;
mod timers;
mod trace;
mod tracee;
mod user_notification;
mod wall;

pub use adopt::{Adopter, Adoption, NoNewPrivs, StoppedProcesses};
pub use call_site::rewritten_sites;
pub use capabilities::Capabilities;
pub use error::Error;
pub use forced_signals::{has_forced_signal, HeldProcesses};
pub use image::{build_id as shim_build_id, Shim};
pub use launch::{find as find_command, fork_in, Forked, ProgramEnd};
pub use managed_clock::TargetClock;
pub use monitor::{ExecMonitor, LoopTask};
pub use namespace::own_time_offsets;
pub use profile::Profile;
pub use registration::{register_process, RegistrationSocket};
pub use restored::{adopted_filter, CpuTimes, RestoredProcess, SavedProcess};
pub use self_registration::{FilteredProcess, SelfRegistration};
pub use stack::on_ample_stack;
pub use tracee::tracer_of_process;
pub use wall::{Adjust, SetWall, WallChange};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
