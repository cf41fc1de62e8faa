//! Synchronised experiments: many containers, one virtual time.
//!
//! The containers of an experiment have clocks of their own. The clocks advance together, in rounds, although the containers share
//! too few processors. Each container has a time dilation factor (TDF): one with TDF 10 gets ten times as much processor time for a
//! virtual second as one with TDF 1. The idea is TimeKeeper's (Lamps, *TimeKeeper Documentation*, 2015, sections 3.2 and 4.2.2),
//! here on a stock kernel. Programs never see a time beyond a round's end, because a round sets the limit of each clock before any
//! task runs.
//!
//! An experiment is a background process ([`create`]). Clients send it requests over a socket ([`Experiment`]). It advances in one
//! of two ways. It may run by itself, one round of a virtual timeslice after another (*concurrent best effort*). Or a simulator
//! says how far each container may go (*concurrent synchronisation*). [`Phase`] lists the requests that each state allows.
//!
//! In a round, each container that has something to do gets a slice (`slice`), alone on its processors, of which it has one unless it asks for
//! more. For every other container,
//! the experiment sets the clock to the round's end. The kernel reports whose tasks sleep (`watch`).
//!
//! ```no_run
//! use lorentz_container::StateDir;
//! use lorentz_experiment::{create, Experiment, ExperimentOptions};
//!
//! let state = StateDir::open()?;
//! create(&state, "pair", &ExperimentOptions::default())?;
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
mod claims;
mod client;
mod compute;
mod container;
mod cpus;
mod directory;
mod error;
#[cfg(test)]
mod fuzz;
mod guard;
mod join;
mod message;
mod overruns;
mod phase;
mod protocol;
mod report;
mod scheduler;
mod server;
mod settings;
mod slice;
mod tasks;
mod watch;
mod workers;

pub use client::{dilate, Advanced, Experiment, Joining};
pub use compute::{ComputeTime, ComputeTimeError};
pub use cpus::{Cpus, CpusError};
pub use error::{Ended, ExperimentRefusal, Refused};
pub use guard::{release, ORPHAN_RELEASE_DELAY};
pub use join::container_for;
pub use lorentz_container::{Connection, ConnectionError};
pub use phase::{AdvanceMode, Phase, PhaseError, Transition};
pub use protocol::{ContainerStatus, ExperimentStatus, IdleAdvance};
pub use report::prometheus;
pub use server::create;
pub use settings::{ExperimentOptions, ExperimentSettings};
