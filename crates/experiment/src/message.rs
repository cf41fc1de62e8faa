//! Messages to the scheduler, from clients and from workers.

use std::sync::mpsc::Sender;

use crate::container::ExperimentContainer;
use crate::protocol::{Answer, Request};

/// A message to the scheduler.
pub enum Message {
    /// A request of a client, and the channel for its answer.
    Request(Request, Sender<Answer>),
    /// A worker returns a container after its slice.
    Done(Box<ExperimentContainer>),
}
