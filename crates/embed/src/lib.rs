//! Lorentz from inside another program: what the C, TimeKeeper and Python interfaces share.
//!
//! A program that uses a library may have many threads, and may be a simulator that dies. So here
//!
//! - clocks and experiments are reached as the commands reach them: files and a socket of the same user, no daemon;
//! - what has to fork (making an experiment, bringing a process into virtual time) the `lorentz` command does
//!   ([`Command`]);
//! - an [`Experiment`] may be used from several threads at once: each call takes a connection of its own;
//! - whoever synchronizes an experiment answers for it ([`Experiment::synchronize`]): when that process ends, however it
//!   ends, nothing stands still for ever;
//! - an error is one line and one of five kinds ([`Fault`], [`Kind`]).
//!
//! ```
//! use lorentz_embed::{rate_of_tdf, Kind, Container};
//!
//! assert_eq!(rate_of_tdf(10.0)?.to_string(), "0.1");
//! assert_eq!(rate_of_tdf(0.0).unwrap_err().kind, Kind::WrongInput);
//! assert_eq!(Container::find("no-such-container").unwrap_err().kind, Kind::NotFound);
//! # Ok::<(), lorentz_embed::Fault>(())
//! ```

mod command;
mod container;
mod dilation;
mod experiment;
mod fault;
mod guard;
mod host;

pub use command::{command_path, Command, COMMAND_VARIABLE};
pub use container::{Attach, Container};
pub use dilation::{rate_of_tdf, simplest_ratio};
pub use experiment::{Experiment, Owner};
pub use fault::{Fault, Kind, Result};
pub use host::real_wall_clock;
pub use lorentz_clock::{Rate, Span, WallTime};
pub use lorentz_container::{Reading, Target};
pub use lorentz_experiment::{MemberStatus, Phase, Status, Wanted};
