//! Messages to the scheduler, from clients and from workers.

use std::sync::mpsc::Sender;

use crate::container::ExperimentContainer;
use crate::protocol::{ExperimentAnswer, ExperimentRequest};

/// A message to the scheduler.
pub enum SchedulerMessage {
    /// A request of a client, and the channel for its answer.
    Request(ExperimentRequest, Sender<ExperimentAnswer>),
    /// A worker returns a container after its slice.
    Done(Box<ExperimentContainer>),
}
