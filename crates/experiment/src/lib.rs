//! Synchronised experiments: many containers, one virtual time.
//!
//! The containers of an experiment have clocks of their own that advance together, in rounds, although they share too few
//! processors. Each has a time dilation factor (TDF): one with TDF 10 gets ten times as much of a processor for a virtual
//! second as one with TDF 1. It is TimeKeeper's idea (Lamps, *TimeKeeper Documentation*, 2015, sections 3.2 and 4.2.2), on a
//! stock kernel; and what a program can see is exact, for a round sets the clocks' limit before anybody runs.
//!
//! An experiment is a process in the background ([`create`]), asked at a socket ([`Experiment`]). It runs by itself, rounds of
//! a virtual timeslice following one another (*concurrent best effort*), or as a simulator says how far each container may go
//! (*concurrent synchronisation*); [`Phase`] tells what may be asked when.
//!
//! In a round each container that has something to do gets a slice (`slice`), on one processor, alone; those that have not are
//! moved to the round's end by a write to their clocks. Whose tasks sleep, the kernel tells (`watch`).
//!
//! ```no_run
//! use lorentz_container::StateDir;
//! use lorentz_experiment::{create, Experiment, Wanted};
//!
//! let state = StateDir::open()?;
//! create(&state, "pair", &Wanted::default())?;
//! let mut experiment = Experiment::open(&state, "pair")?;
//! experiment.add("fast", "1".parse()?, None)?;
//! experiment.add("slow", "1/10".parse()?, None)?;
//! experiment.synchronize()?;
//! experiment.start()?;
//! println!("{:?}", experiment.status()?.slowdown);
//! experiment.end()?;
//! # Ok::<(), anyhow::Error>(())
//! ```

mod account;
mod client;
mod conductor;
mod cpus;
mod fault;
#[cfg(test)]
mod fuzz;
mod guard;
mod join;
mod measure;
mod member;
mod phase;
mod place;
mod protocol;
mod report;
mod server;
mod settings;
mod slice;
mod stage;
mod watch;

pub use client::{Experiment, Joining, Refused};
pub use cpus::{Cpus, WrongCpus};
pub use fault::{Ended, Refusal};
pub use guard::{release, ORPHANED_FOR};
pub use join::container_for;
pub use phase::{Manner, Phase, Step, WrongOrder};
pub use protocol::{MemberStatus, Status};
pub use report::prometheus;
pub use server::create;
pub use settings::{Settings, Wanted};
