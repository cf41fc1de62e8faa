//! Lorentz from inside another program: the common part of the C, TimeKeeper and Python interfaces.
//!
//! A program that uses a library may have many threads, and may be a simulator that dies. Therefore:
//!
//! - The library reaches clocks and experiments as the commands do: by files and a socket of the same user, without a daemon.
//! - Work that has to fork (making an experiment, attaching a process) is done by the `lorentz` command ([`LorentzCommand`]).
//! - Several threads may use an [`Experiment`] at once: each call has a connection of its own.
//! - The process that synchronizes an experiment is responsible for its frozen containers ([`Experiment::synchronize`]). If that
//!   process dies, a guard process thaws them.
//! - An error is one line and one of five kinds ([`Error`], [`ErrorKind`]).
//!
//! ```
//! use lorentz_embed::{rate_of_tdf, ErrorKind, Container};
//!
//! assert_eq!(rate_of_tdf(10.0)?.to_string(), "0.1");
//! assert_eq!(rate_of_tdf(0.0).unwrap_err().kind, ErrorKind::WrongInput);
//! assert_eq!(Container::find("no-such-container").unwrap_err().kind, ErrorKind::NotFound);
//! # Ok::<(), lorentz_embed::Error>(())
//! ```

mod clock_flags;
mod command;
mod container;
mod dilation;
mod error;
mod experiment;
mod guard;
mod host;
mod own;

pub use clock_flags::clock_flags;
pub use command::{command_path, LorentzCommand, COMMAND_VARIABLE};
pub use container::{AttachOptions, Container};
pub use dilation::{rate_of_tdf, simplest_ratio};
pub use error::{Error, ErrorKind, Result};
pub use experiment::{Experiment, Owner};
pub use host::real_wall_clock;
pub use lorentz_clock::{Rate, SkipMode, Span, WallTime};
pub use lorentz_control::{Date, Reading, Target};
pub use lorentz_experiment::{
    ComputeTime, ContainerStatus, ExperimentOptions, ExperimentStatus, Joining, Phase,
};
pub use own::OwnClock;
