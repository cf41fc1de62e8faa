//! Available bandwidth of a network path: the rate that a new flow could have without taking any from existing flows.
//!
//! A sender sends streams of UDP probes at a known rate, and the receiver timestamps each one on arrival. As long as the rate is
//! below the available bandwidth, the probes arrive as far apart as they were sent. Above it they queue before the bottleneck,
//! and their delays grow. [`Method`] names three ways to find the rate at which that begins.
//!
//! - [`Path`] is the estimators' only view of the network: a stream goes in, times come back. [`simulation`] is a path without a
//!   network.
//! - [`Estimator`]s are state machines: [`slops`] (the method of pathload), [`trains`] (our own), [`yaz`].
//! - [`Client`] is a path over sockets, [`Server`] is its other end, and [`wire`] is their protocol.
//! - [`measure`] runs an estimator over a path. An [`Estimate`] has a confidence interval and [`Caution`]s.
//!
//! ```
//! use lorentz_bandwidth::simulation::{Model, Simulation};
//! use lorentz_bandwidth::{measure, BitRate, Method};
//! let model = Model::new(BitRate(300_000_000), BitRate(100_000_000));
//! let estimate = measure(&mut Simulation::new(model), Method::Trains, &mut |_| {})?;
//! let off = estimate.finding.available.as_f64() / model.available() - 1.0;
//! assert!(off.abs() < 0.1, "{}", estimate.finding.available);
//! # Ok::<(), lorentz_bandwidth::PathError>(())
//! ```

mod client;
mod estimate;
mod estimator;
mod fleet;
#[cfg(test)]
mod fuzz;
mod path;
mod rate;
mod server;
pub mod simulation;
pub mod slops;
pub mod statistics;
pub mod trains;
pub mod trend;
pub mod wire;
pub mod yaz;

pub use client::{Client, Options, PacingTimers};
pub use estimate::{measure, Caution, Estimate, EstimateProgress, Method};
pub use estimator::{Bound, Estimator, EstimatorStep, Finding};
pub use path::{Limits, Path, PathError, Probe, Sending, Stream, StreamPlan, Stretch};
pub use rate::{BitRate, RateError};
pub use server::{Server, IDLE_TIMEOUT, MAX_CONNECTIONS, MAX_SESSIONS, MAX_SESSION_TIME};
