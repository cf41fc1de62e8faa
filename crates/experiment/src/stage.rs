//! The stage: a thread for each processor of an experiment, which gives slices to containers there, one after another. It
//! runs on a processor that is not the experiment's, where there is one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

use lorentz_clock::VirtualInstant;

use crate::conductor::Message;
use crate::cpus::Cpus;
use crate::member::Member;
use crate::slice::{self, Place};
use crate::watch::Watch;

/// A slice to be given.
pub struct Job {
    /// To whom.
    pub member: Box<Member>,
    /// Up to where.
    pub end: VirtualInstant,
}

/// The threads.
pub struct Stage {
    players: Vec<(Cpus, Sender<(Job, usize)>)>,
}

impl Stage {
    /// One thread for each of `cpus`, on `spare`. What has been played goes to `outbox`.
    ///
    /// # Errors
    ///
    /// Where no thread can be made.
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
                // Else it runs where it may.
                let _ = spare.keep(0);
                player.play();
            })?;
            players.push((cpus.only(place), sender));
        }
        Ok(Stage { players })
    }

    /// Has a slice given, on the container's processor.
    pub fn play(&self, job: Job, tasks: usize) {
        let own = self.players.iter().find(|(cpus, _)| *cpus == job.member.cpu);
        if let Some((_, player)) = own.or(self.players.first()) {
            // The thread ends with this.
            let _ = player.send((job, tasks));
        }
    }
}

/// One of the threads.
struct Player {
    jobs: Receiver<(Job, usize)>,
    watch: Arc<Watch>,
    outbox: Sender<Message>,
}

impl Player {
    /// Gives slices until nobody is there to ask for any or to hear of them. Those of one timeline come one after another;
    /// where several timelines are under way, long ones are broken off for the others, and go on in their turn.
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
