//! A slice's context, given by its worker, and the ways in which a slice ends.

use std::time::Duration;

use crate::watch::TaskWatch;

/// Time of polling before the worker waits for an event; most programs wait again within it.
pub(super) const POLL_TIME: Duration = Duration::from_micros(100);
/// Length of a slice, real time, after which it may be broken off for another timeline's.
pub(super) const MAX_UNINTERRUPTED: Duration = Duration::from_millis(3);

/// The worker's side of a slice.
pub struct SliceContext<'a> {
    /// The source of task states.
    pub watch: &'a TaskWatch,
    /// Number of tasks of the experiment.
    pub tasks: usize,
    /// Whether another timeline's container waits for one of its processors.
    pub other_timeline_waits: &'a dyn Fn() -> bool,
    /// Whether the scheduler has a request that needs all containers.
    pub request_waits: &'a dyn Fn() -> bool,
}

/// The end of a call of [`run`](super::run).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceEnd {
    /// The slice is over, or a task waits to send.
    Over,
    /// Another timeline's container waits for a processor. The worker continues the slice later.
    BrokenOff,
    /// A request waits for the container, whose tasks run on. The scheduler continues the slice after the request.
    Interrupted,
    /// The clock has made as many steps as it may: see [`may_step`](crate::container::ExperimentContainer::may_step). It stands before
    /// the slice's end.
    StepsUsed,
}
