//! A scheduler for several threads: its own, and those of callers while nothing is under way.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Scheduler;
use crate::message::SchedulerMessage;
use crate::phase::Phase;
use crate::protocol::{ExperimentAnswer, ExperimentRequest};

/// A scheduler behind a lock.
///
/// Its own thread has the lock except while it waits for a message and no experiment runs by itself. A simulator makes thousands of
/// requests a second, each of which takes some microseconds: less than the switches to another thread and back.
#[derive(Clone)]
pub struct SharedScheduler(Arc<Mutex<Scheduler>>);

impl SharedScheduler {
    /// Shares `scheduler`.
    pub fn new(scheduler: Scheduler) -> SharedScheduler {
        SharedScheduler(Arc::new(Mutex::new(scheduler)))
    }

    /// Carries a request out in the calling thread. Its answer comes to `answer`, at the latest by the scheduler's thread when all
    /// containers have arrived.
    ///
    /// # Errors
    ///
    /// Returns the request if it is the scheduler's thread that has to handle it: something is under way, or that thread itself has to
    /// begin or end something.
    pub fn handle_here(
        &self,
        request: ExperimentRequest,
        answer: &Sender<ExperimentAnswer>,
    ) -> Result<(), ExperimentRequest> {
        if !request.is_of_a_step() {
            return Err(request);
        }
        match self.0.try_lock() {
            Ok(mut scheduler) if scheduler.is_at_rest() => {
                scheduler.carry_out_or_begin(request, answer);
                Ok(())
            }
            _ => Err(request),
        }
    }

    /// Serves the messages of `inbox` until a request asks for the end. Returns the channel of that request: its client still waits for
    /// the answer.
    pub fn run(&self, inbox: &Receiver<SchedulerMessage>) -> Option<Sender<ExperimentAnswer>> {
        let mut scheduler = self.lock();
        while scheduler.ended.is_none() {
            let message = if scheduler.round.is_none() && scheduler.phase == Phase::Running {
                match inbox.try_recv() {
                    Err(TryRecvError::Empty) => scheduler.await_next_round(inbox),
                    Err(TryRecvError::Disconnected) => return None,
                    Ok(message) => Some(message),
                }
            } else {
                drop(scheduler);
                let message = inbox.recv().ok();
                scheduler = self.lock();
                message
            };
            match message {
                Some(SchedulerMessage::Request(request, answer)) => {
                    scheduler.handle(request, answer, inbox);
                }
                Some(SchedulerMessage::Done(container)) => scheduler.take_back(container),
                None => {}
            }
        }
        scheduler.ended.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
