//! The workers: one thread for each processor of an experiment. A worker gives slices to the containers whose first processor it has,
//! one after another. Before a slice it claims all processors of the container. It runs on a processor that the experiment does not use, if there is one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

use lorentz_clock::VirtualInstant;

use crate::claims::Claims;
use crate::container::ExperimentContainer;
use crate::cpus::Cpus;
use crate::message::SchedulerMessage;
use crate::slice::{self, SliceContext, SliceEnd};
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
    workers: Vec<(usize, Sender<(Job, usize)>)>,
    request_waits: Arc<AtomicBool>,
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
        let claims = Arc::new(Claims::default());
        let request_waits = Arc::new(AtomicBool::new(false));
        for cpu in cpus.numbers().iter().copied() {
            let (sender, jobs) = channel();
            let (watch, claims, outbox) = (watch.clone(), claims.clone(), outbox.clone());
            let request_waits = request_waits.clone();
            let worker = Worker { jobs, watch, claims, request_waits, outbox };
            let spare = spare.clone();
            thread::Builder::new().name(format!("worker-{cpu}")).spawn(move || {
                // If that fails, the thread runs on any processor.
                let _ = spare.set_affinity(0);
                worker.run();
            })?;
            workers.push((cpu, sender));
        }
        Ok(Workers { workers, request_waits })
    }

    /// Sets whether a request waits for all containers. A slice that may last for any time ends early then.
    pub fn set_request_waits(&self, waits: bool) {
        // Relaxed: a worker that sees it late ends its slice late.
        self.request_waits.store(waits, Ordering::Relaxed);
    }

    /// Gives `job` to the worker of the container's first processor. `tasks` is the number of tasks the scheduler has counted in the
    /// experiment.
    pub fn give(&self, job: Job, tasks: usize) {
        let first = job.container.cpus.numbers().first();
        let own = self.workers.iter().find(|(cpu, _)| Some(cpu) == first);
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
    claims: Arc<Claims>,
    request_waits: Arc<AtomicBool>,
    outbox: Sender<SchedulerMessage>,
}

impl Worker {
    /// Gives slices until the scheduler has closed one of the two channels. Slices of one timeline run one after another. If
    /// several timelines have slices waiting, the worker breaks off a long slice for the others, and continues it in its turn. It
    /// does so too if another worker waits for a processor of the container.
    fn run(self) {
        let waiting = RefCell::new(VecDeque::new());
        loop {
            let next = waiting.borrow_mut().pop_front();
            let Some((mut job, tasks)) = next.or_else(|| self.jobs.recv().ok()) else { return };
            let timeline = job.container.timeline;
            let claim = self.claims.claim(&job.container.cpus);
            let other_timeline_waits = || {
                waiting.borrow_mut().extend(self.jobs.try_iter());
                let is_of_another =
                    |(other, _): &(Job, usize)| other.container.timeline != timeline;
                waiting.borrow().iter().any(is_of_another) || claim.is_awaited()
            };
            let context = SliceContext {
                watch: &self.watch,
                tasks,
                other_timeline_waits: &other_timeline_waits,
                request_waits: &|| self.request_waits.load(Ordering::Relaxed),
            };
            let slice_end = slice::run(&mut job.container, job.end, &context);
            drop(claim);
            if slice_end == SliceEnd::BrokenOff {
                waiting.borrow_mut().push_back((job, tasks));
                continue;
            }
            job.container.is_behind = slice_end == SliceEnd::StepsUsed;
            job.container.interrupted_slice =
                (slice_end == SliceEnd::Interrupted).then_some(job.end);
            if self.outbox.send(SchedulerMessage::Done(job.container)).is_err() {
                return;
            }
        }
    }
}
