//! The workers: one thread for each processor of an experiment. A worker gives slices to the containers of its processor, one after
//! another. It runs on a processor that the experiment does not use, if there is one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

use lorentz_clock::VirtualInstant;

use crate::cpus::Cpus;
use crate::member::Member;
use crate::message::Message;
use crate::slice::{self, Place};
use crate::watch::Watch;

/// A slice to be given.
pub struct Job {
    /// The container that gets the slice.
    pub member: Box<Member>,
    /// The slice's end, virtual time.
    pub end: VirtualInstant,
}

/// The worker threads, each with its processor.
pub struct Stage {
    players: Vec<(Cpus, Sender<(Job, usize)>)>,
}

impl Stage {
    /// Starts one thread for each of `cpus`, on `spare`. The threads send finished containers to `outbox`.
    ///
    /// # Errors
    ///
    /// An error if no thread can be made.
    pub fn new(
        cpus: &Cpus,
        spare: &Cpus,
        watch: &Arc<Watch>,
        outbox: &Sender<Message>,
    ) -> anyhow::Result<Stage> {
        let mut players = Vec::new();
        for place in 0..cpus.numbers().len() {
            let (sender, jobs) = channel();
            let player = Player { jobs, watch: watch.clone(), outbox: outbox.clone() };
            let spare = spare.clone();
            thread::Builder::new().name(format!("stage-{place}")).spawn(move || {
                // If that fails, the thread runs on any processor.
                let _ = spare.keep(0);
                player.play();
            })?;
            players.push((cpus.only(place), sender));
        }
        Ok(Stage { players })
    }

    /// Gives `job` to the worker of the container's processor. `tasks` is the number of tasks the scheduler has counted in the
    /// experiment.
    pub fn play(&self, job: Job, tasks: usize) {
        let own = self.players.iter().find(|(cpus, _)| *cpus == job.member.cpu);
        if let Some((_, player)) = own.or(self.players.first()) {
            // The thread lives as long as this object; therefore sending does not fail.
            let _ = player.send((job, tasks));
        }
    }
}

/// One worker thread.
struct Player {
    jobs: Receiver<(Job, usize)>,
    watch: Arc<Watch>,
    outbox: Sender<Message>,
}

impl Player {
    /// Gives slices until the scheduler has closed one of the two channels. Slices of one timeline run one after another. If
    /// several timelines have slices waiting, the worker breaks off a long slice for the others, and continues it in its turn.
    fn play(self) {
        let waiting = RefCell::new(VecDeque::new());
        loop {
            let next = waiting.borrow_mut().pop_front();
            let Some((mut job, tasks)) = next.or_else(|| self.jobs.recv().ok()) else { return };
            let timeline = job.member.timeline;
            let others = || {
                waiting.borrow_mut().extend(self.jobs.try_iter());
                let of_another = |(other, _): &(Job, usize)| other.member.timeline != timeline;
                waiting.borrow().iter().any(of_another)
            };
            let place = Place { watch: &self.watch, tasks, others: &others };
            if !slice::run(&mut job.member, job.end, &place) {
                waiting.borrow_mut().push_back((job, tasks));
            } else if self.outbox.send(Message::Done(job.member)).is_err() {
                return;
            }
        }
    }
}
