//! The workers: one thread for each processor of an experiment. A worker gives slices to the containers of its processor, one after
//! another. It runs on a processor that the experiment does not use, if there is one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

use lorentz_clock::VirtualInstant;

use crate::container::ExperimentContainer;
use crate::cpus::Cpus;
use crate::message::SchedulerMessage;
use crate::slice::{self, SliceContext};
use crate::watch::TaskWatch;

/// A slice to be given.
pub struct Job {
    /// The container that gets the slice.
    pub container: Box<ExperimentContainer>,
    /// The slice's end, virtual time.
    pub end: VirtualInstant,
}

/// The worker threads, each with its processor.
pub struct Workers {
    workers: Vec<(Cpus, Sender<(Job, usize)>)>,
}

impl Workers {
    /// Starts one thread for each of `cpus`, on `spare`. The threads send finished containers to `outbox`.
    ///
    /// # Errors
    ///
    /// An error if no thread can be made.
    pub fn new(
        cpus: &Cpus,
        spare: &Cpus,
        watch: &Arc<TaskWatch>,
        outbox: &Sender<SchedulerMessage>,
    ) -> anyhow::Result<Workers> {
        let mut workers = Vec::new();
        for number in 0..cpus.numbers().len() {
            let (sender, jobs) = channel();
            let worker = Worker { jobs, watch: watch.clone(), outbox: outbox.clone() };
            let spare = spare.clone();
            thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                // If that fails, the thread runs on any processor.
                let _ = spare.set_affinity(0);
                worker.run();
            })?;
            workers.push((cpus.nth(number), sender));
        }
        Ok(Workers { workers })
    }

    /// Gives `job` to the worker of the container's processor. `tasks` is the number of tasks the scheduler has counted in the
    /// experiment.
    pub fn give(&self, job: Job, tasks: usize) {
        let own = self.workers.iter().find(|(cpus, _)| *cpus == job.container.cpu);
        if let Some((_, worker)) = own.or(self.workers.first()) {
            // The thread lives as long as this object; therefore sending does not fail.
            let _ = worker.send((job, tasks));
        }
    }
}

/// One worker thread.
struct Worker {
    jobs: Receiver<(Job, usize)>,
    watch: Arc<TaskWatch>,
    outbox: Sender<SchedulerMessage>,
}

impl Worker {
    /// Gives slices until the scheduler has closed one of the two channels. Slices of one timeline run one after another. If
    /// several timelines have slices waiting, the worker breaks off a long slice for the others, and continues it in its turn.
    fn run(self) {
        let waiting = RefCell::new(VecDeque::new());
        loop {
            let next = waiting.borrow_mut().pop_front();
            let Some((mut job, tasks)) = next.or_else(|| self.jobs.recv().ok()) else { return };
            let timeline = job.container.timeline;
            let other_timeline_waits = || {
                waiting.borrow_mut().extend(self.jobs.try_iter());
                let is_of_another =
                    |(other, _): &(Job, usize)| other.container.timeline != timeline;
                waiting.borrow().iter().any(is_of_another)
            };
            let context = SliceContext {
                watch: &self.watch,
                tasks,
                other_timeline_waits: &other_timeline_waits,
            };
            if !slice::run(&mut job.container, job.end, &context) {
                waiting.borrow_mut().push_back((job, tasks));
            } else if self.outbox.send(SchedulerMessage::Done(job.container)).is_err() {
                return;
            }
        }
    }
}
