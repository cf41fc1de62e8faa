//! A container in an experiment: its clock, which the experiment holds, its tasks, and what it has used.

use std::time::Duration;

use anyhow::Context;
use lorentz_clock::{saturate, Rate, Span, VirtualInstant};
use lorentz_container::skip::Seen;
use lorentz_container::{Cgroup, Container, HeldClock};

use crate::account::{self, Account};
use crate::cpus::Cpus;
use crate::measure::Overruns;
use crate::watch::Watch;

/// A container in an experiment.
pub struct Member {
    /// Its name.
    pub name: String,
    container: Container,
    pub(crate) clock: HeldClock,
    pub(crate) cgroup: Cgroup,
    /// What its tasks are called in a look.
    pub(crate) group: u32,
    /// Virtual seconds per real second in its slices: the inverse of its TDF.
    pub(crate) rate: Rate,
    /// Which simulator's steps it follows; none where the experiment runs by itself.
    pub(crate) timeline: Option<u32>,
    /// Its wall clock keeps its own date when all are brought to one virtual time.
    pub(crate) own_wall: bool,
    /// How far it is to go in the next step.
    pub(crate) interval: Option<Span>,
    /// The processor its tasks are kept to.
    pub(crate) cpu: Cpus,
    /// Its tasks are stopped: they ran when their slice was over.
    pub(crate) stopped: bool,
    /// Its slice has been broken off where it had something to send, and goes on when the others have come as far.
    pub(crate) in_line: bool,
    /// What it has had of its processor.
    pub(crate) account: Account,
    /// Its waits that ended until here have been left, or never will be: by a jump.
    pub(crate) served: VirtualInstant,
    /// What the last look has shown.
    pub(crate) seen: State,
    entries: Option<u32>,
    /// How often its tasks had run when it was last looked whether a program begins.
    checked_at: Option<u64>,
    /// How often its tasks had run when its last turn began.
    turn_at: Option<u64>,
    pub(crate) used: Used,
}

/// What a look shows of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// A task runs, or is about to.
    pub awake: bool,
    /// Its tasks.
    pub tasks: u32,
    /// How often they have run: another number tells that one has run since.
    pub runs: u64,
    /// Its processes.
    pub pids: Vec<u32>,
    /// For how long all its tasks have run.
    pub ran: Duration,
    /// For how long they have waited for a processor.
    pub waited: Duration,
    /// How often they have gone to sleep, if that is known.
    pub slept: Option<u64>,
}

/// What a container has used of what it was given.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Slices it was given.
    pub slices: u64,
    /// Slices at whose end it was still running.
    pub at_limit: u64,
    /// Real time of its slices that it had something to do in.
    pub wanted: Duration,
    /// CPU time its tasks had used when the experiment was synchronized.
    pub cpu_before: Duration,
    /// The latest virtual time that was seen beyond a slice's end: always zero, or there is a mistake.
    pub perceived_overshoot: Span,
    /// Real time from a slice's end until its tasks had stopped.
    pub overruns: Overruns,
}

impl Member {
    /// Takes hold of `container`, whose tasks run on at `rate` until it is told otherwise.
    ///
    /// # Errors
    ///
    /// Where its clock is not to be had, or it has no control group.
    pub fn new(
        container: Container,
        group: u32,
        rate: Rate,
        timeline: Option<u32>,
        cpu: Cpus,
    ) -> anyhow::Result<Member> {
        let clock = container.clock_to_hold()?;
        let cgroup = container.cgroup().context("it has no control group to stop its tasks by")?;
        let clock = clock.hold().context("its clock is being changed by somebody else")?;
        let name = container.name().to_string();
        let used = Used::default();
        let seen = State::default();
        let (interval, stopped, entries) = (None, false, None);
        Ok(Member {
            name,
            container,
            clock,
            cgroup,
            group,
            rate,
            timeline,
            own_wall: false,
            interval,
            cpu,
            stopped,
            in_line: false,
            account: Account::default(),
            served: VirtualInstant(0),
            seen,
            entries,
            checked_at: None,
            turn_at: None,
            used,
        })
    }

    /// Makes sure that all its processes are watched and on its processor, where programs have come since.
    pub(crate) fn watch_who_came(&mut self, watch: &Watch) {
        let entries = Some(self.clock.entries());
        if entries != self.entries {
            // A group that is gone has nobody in it.
            let _ = watch.add(self.group, &self.cgroup);
            for pid in self.cgroup.pids().unwrap_or_default() {
                for thread in lorentz_container::processes::threads_of(pid) {
                    // One that has ended needs none.
                    let _ = self.cpu.keep(thread);
                }
            }
            self.entries = entries;
        }
    }

    /// Forgets the last look.
    pub(crate) fn forget_look(&mut self) {
        self.seen.awake = false;
        self.seen.tasks = 0;
        self.seen.runs = 0;
        self.seen.pids.clear();
        (self.seen.ran, self.seen.waited) = (Duration::ZERO, Duration::ZERO);
        self.seen.slept = Some(0);
    }

    /// Notes what a look has shown of one of its tasks.
    pub(crate) fn note(&mut self, task: &Seen) {
        self.seen.awake |= !task.asleep;
        self.seen.tasks += 1;
        self.seen.runs = self.seen.runs.wrapping_add(task.task.runs);
        if self.seen.pids.last() != Some(&task.task.pid) {
            self.seen.pids.push(task.task.pid);
        }
        self.seen.ran += task.ran;
        self.seen.waited += task.waited;
        self.seen.slept =
            self.seen.slept.zip(task.slept).map(|(sum, slept)| sum.wrapping_add(slept));
    }

    /// A program that is about to begin sleeps meanwhile, but is not idle.
    pub(crate) fn note_what_begins(&mut self, watch: &Watch) {
        let looked_at = self.checked_at == Some(self.seen.runs);
        if self.seen.awake || self.seen.tasks == 0 || looked_at {
            return;
        }
        self.seen.awake = self.entries == Some(0) || watch.any_executes(&self.seen.pids);
        if !self.seen.awake {
            self.checked_at = Some(self.seen.runs);
        }
    }

    /// The next instant that it waits for, to whoever knows that its tasks sleep. Not kept from one look to the next: a task
    /// may have run in between without a switch that was counted.
    pub(crate) fn next_deadline(&self) -> Option<VirtualInstant> {
        self.clock.next_deadline()
    }

    /// Lets its clock run by itself from now on, and its tasks.
    pub(crate) fn let_go(&mut self) {
        self.clock.let_go(self.rate);
        self.clock.set_turn(VirtualInstant::NEVER);
        self.cgroup.thaw();
        self.stopped = false;
    }

    /// Stops its clock at `at`, and its tasks. One whose programs have seen a later time stands there until the others have
    /// come so far.
    pub(crate) fn stop_at(&mut self, at: VirtualInstant) -> anyhow::Result<()> {
        match self.clock.entries() {
            0 => self.clock.begin_at(at),
            _ => self.clock.stand(at),
        }
        self.stop_tasks()
    }

    /// Stops its tasks.
    pub(crate) fn stop_tasks(&mut self) -> anyhow::Result<()> {
        self.cgroup.freeze()?;
        self.clock.repeat_broken_off(&self.cgroup.pids()?);
        self.stopped = true;
        self.account.clear();
        Ok(())
    }

    /// The virtual time, at most `most`, that goes by without it in its next slice, for what it has had too much of the ones
    /// before. So it gets as much of a processor for a virtual second as it is to get.
    pub(crate) fn skip_what_it_had(&mut self, most: Span) -> Span {
        let paid = self.account.pay(self.real_of(most));
        let (num, den) = (i128::from(self.rate.num()), i128::from(self.rate.den()));
        Span(saturate(i128::from(paid.0) * num / den)).min(most)
    }

    /// The real time that so much of its virtual time takes.
    pub(crate) fn real_of(&self, span: Span) -> Span {
        let (num, den) = (i128::from(self.rate.num()), i128::from(self.rate.den()));
        Span(saturate(i128::from(span.0) * den / num))
    }

    /// Notes what it had of its processor in a slice that took `took`, when `due` of it was to be had: `seen` are its tasks now,
    /// `self.seen` told of them before.
    pub(crate) fn settle(&mut self, took: Duration, due: Span, seen: &[Seen]) {
        let before = self.seen.clone();
        self.forget_look();
        seen.iter().for_each(|task| self.note(task));
        self.account.note(account::had(took, &before, &self.seen), due);
    }

    /// Lets what it has to send be sent, where a task of its has run since the last turn: all others have come to `others`.
    pub(crate) fn take_turn(&mut self, others: VirtualInstant) {
        if self.turn_at != Some(self.seen.runs) {
            self.turn_at = Some(self.seen.runs);
            // Who has waited for that runs now.
            self.seen.awake |= self.clock.set_turn(others) > 0;
        }
    }

    /// Goes on with a slice that was broken off, where that helps: all others have come to `others`.
    pub(crate) fn go_on(&mut self, others: VirtualInstant) -> bool {
        self.in_line = false;
        self.seen.awake = self.clock.set_turn(others) > 0;
        self.seen.awake
    }

    /// Whether it would do nothing before `end`, as far as the last look has shown.
    pub(crate) fn has_nothing_before(&self, end: VirtualInstant) -> bool {
        !self.stopped && !self.seen.awake && self.next_deadline().is_none_or(|next| next > end)
    }

    /// Whether it has anything to do, now or later.
    pub(crate) fn awake_or_waiting(&self) -> bool {
        self.stopped || self.seen.awake || self.next_deadline().is_some()
    }

    /// Whether all its programs have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.cgroup.pids().map_or(true, |pids| pids.is_empty())
    }

    /// CPU time since the experiment was synchronized.
    pub fn cpu_time(&self) -> Duration {
        self.cgroup.cpu_time().unwrap_or_default().saturating_sub(self.used.cpu_before)
    }

    /// Forgets what it has used so far.
    pub(crate) fn count_from_here(&mut self) {
        let cpu_before = self.cgroup.cpu_time().unwrap_or_default();
        self.used = Used { cpu_before, ..Used::default() };
    }

    pub(crate) fn container(&self) -> &Container {
        &self.container
    }
}
