//! Puts the shim into a process: at exec, or live. The only crate that knows ptrace and ELF.
//!
//! A [`Monitor`] starts a program under the seccomp filter. The kernel notifies it of each exec by seccomp user notification. At
//! the exec stop it puts the shim into the new image and detaches: between execs it traces nothing. [`Monitor::attach`] brings in
//! a process that is already running. A process that another program has created comes in by itself ([`Entrance`]), at the
//! monitor's registration socket ([`Door`]).
//!
//! ```no_run
//! use lorentz_inject::{Monitor, Target};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = std::fs::File::options().read(true).write(true).open("/run/lorentz/demo/clock")?;
//! let target = Target { clock: clock.into(), policy: Default::default(), shim: true };
//! let command = [c"/bin/date".to_owned()];
//! let mut monitor = Monitor::launch(&command, target, |_pid| Ok(()))?;
//! println!("status {}", monitor.serve()?.code());
//! # Ok(())
//! # }
//! ```

mod attach;
mod blob;
mod door;
mod enter;
mod error;
mod filter;
mod host;
mod image;
mod launch;
pub mod limits;
mod monitor;
mod namespace;
mod notify;
mod profile;
mod remote;
mod shared;
mod sockets;
mod stack;
mod timers;
mod trace;
mod tracee;
mod wall;

pub use door::{hand_in_process, Door};
pub use enter::{Entered, Entrance};
pub use error::Error;
pub use launch::{find as find_command, Ended};
pub use monitor::{Attendant, Monitor, Target};
pub use profile::Profile;
pub use stack::on_ample_stack;
pub use wall::{SetWall, WallChange};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
