//! A container in an experiment: its clock, which the experiment holds locked, its tasks, and its statistics.

use std::io;
use std::time::Duration;

use anyhow::{anyhow, Context};
use lorentz_clock::{failpoint, saturate, Failpoint, Rate, Span, VirtualInstant};
use lorentz_container::Container;
use lorentz_control::{Cgroup, HeldClock};
use lorentz_idle::TaskState;

use crate::account::{self, Account};
use crate::compute::ComputeTime;
use crate::cpus::Cpus;
use crate::overruns::Overruns;
use crate::tasks::ContainerTasks;
use crate::watch::TaskWatch;

/// Before all instants: each wait that has ended and has not been left counts.
pub(crate) const NO_WAIT_HANDLED: VirtualInstant = VirtualInstant(i64::MIN);

/// A container in an experiment.
pub struct ExperimentContainer {
    /// The container's name.
    pub name: String,
    handle: Container,
    pub(crate) clock: HeldClock,
    pub(crate) cgroup: Cgroup,
    /// Group number of the container's tasks in a look of [`TaskWatch`]. A later container may get it again.
    pub(crate) group: u32,
    /// Number of containers that the experiment added before this one.
    pub(crate) added_before: usize,
    /// Virtual seconds per real second in the container's slices: the inverse of its TDF.
    pub(crate) rate: Rate,
    /// The timeline it follows; none if the experiment runs by itself.
    pub(crate) timeline: Option<u32>,
    /// The wall clock keeps its own date when the experiment is synchronized.
    pub(crate) own_wall: bool,
    /// How the time for which its tasks compute counts on its clock.
    pub(crate) compute: ComputeTime,
    /// Its clock was frozen when it joined, and has not run since: it shows its time at the start.
    pub(crate) has_not_begun: bool,
    /// Virtual length of the next step of its timeline.
    pub(crate) interval: Option<Span>,
    /// Number of steps that its clock may still make in the move under way; `None` if any.
    pub(crate) steps_left: Option<u32>,
    /// The end of a slice that a request has interrupted.
    pub(crate) interrupted_slice: Option<VirtualInstant>,
    /// Its last slice ended early because its clock had no steps left.
    pub(crate) is_behind: bool,
    /// The processors that its tasks have as their affinity. All of them are its own in its slices.
    pub(crate) cpus: Cpus,
    /// The freezer stopped its tasks, because they ran at the end of their slice.
    pub(crate) stopped: bool,
    /// Send ordering broke off its slice: a task has something to send. The slice continues when the other containers have come as
    /// far.
    pub(crate) waits_to_send: bool,
    /// Processor time it got, against the time due.
    pub(crate) account: Account,
    /// Waits that ended up to here need no more attention: their threads have left them, or never will (siglongjmp). A change of the
    /// clock that moves deadlines may move them to any time before: [`NO_WAIT_HANDLED`].
    pub(crate) waits_handled_until: VirtualInstant,
    /// How often its tasks had run when a slice last found them at rest.
    pub(crate) rested_at: Option<u64>,
    /// The state at the last look.
    pub(crate) tasks: ContainerTasks,
    entries: Option<u32>,
    /// Value of `seen.runs` when we last checked whether a program begins.
    checked_at: Option<u64>,
    /// Value of `seen.runs` when its last turn of the send ordering began.
    sends_allowed_at: Option<u64>,
    pub(crate) statistics: ContainerStatistics,
}

/// Statistics of a container since the experiment was synchronized.
#[derive(Clone, Debug, Default)]
pub struct ContainerStatistics {
    /// Number of slices.
    pub slices: u64,
    /// Number of slices at whose end its tasks still ran.
    pub at_limit: u64,
    /// Real length of its slices times the number of its processors, summed: in each slice it had something to do.
    pub wanted: Duration,
    /// CPU time of its tasks when the experiment was synchronized.
    pub cpu_before: Duration,
    /// Greatest virtual time seen beyond a slice's end. Any value but zero is a defect.
    pub perceived_overshoot: Span,
    /// Real times from a slice's end until all tasks had stopped.
    pub overruns: Overruns,
}

impl ExperimentContainer {
    /// Locks the clock of the container `handle` for the experiment. Its tasks run on at their rate until a call here changes that.
    ///
    /// # Errors
    ///
    /// An error if the clock cannot be opened, another process changes it, or the container has no control group.
    pub fn new(
        handle: Container,
        group: u32,
        added_before: usize,
        rate: Rate,
        timeline: Option<u32>,
        cpus: Cpus,
    ) -> anyhow::Result<ExperimentContainer> {
        let clock = handle.clock_to_hold()?;
        let cgroup = handle.cgroup().context("it has no control group to stop its tasks by")?;
        let clock = clock.hold().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow!("its clock is being changed by somebody else"),
            _ => anyhow::Error::new(error).context("reading its clock"),
        })?;
        let name = handle.name().to_string();
        let statistics = ContainerStatistics::default();
        let tasks = ContainerTasks::default();
        let (interval, stopped, entries) = (None, false, None);
        Ok(ExperimentContainer {
            name,
            handle,
            clock,
            cgroup,
            group,
            added_before,
            rate,
            timeline,
            own_wall: false,
            compute: ComputeTime::Real,
            has_not_begun: false,
            interval,
            steps_left: None,
            interrupted_slice: None,
            is_behind: false,
            cpus,
            stopped,
            waits_to_send: false,
            account: Account::default(),
            waits_handled_until: NO_WAIT_HANDLED,
            rested_at: None,
            tasks,
            entries,
            checked_at: None,
            sends_allowed_at: None,
            statistics,
        })
    }

    /// If programs have come since the last call: observes all processes of the container, and sets their affinity.
    pub(crate) fn observe_new_processes(&mut self, watch: &TaskWatch) {
        let entries = Some(self.clock.entries());
        if entries != self.entries {
            // A control group that is gone has no processes.
            let _ = watch.add(self.group, &self.cgroup);
            for pid in self.cgroup.pids().unwrap_or_default() {
                for thread in lorentz_control::processes::threads_of(pid) {
                    // A thread that has ended needs no affinity.
                    let _ = self.cpus.set_affinity(thread);
                }
            }
            self.entries = entries;
        }
    }

    /// Counts the container as awake while one of its programs is about to begin. Such a program sleeps, but it is not idle.
    pub(crate) fn note_starting_programs(&mut self, watch: &TaskWatch) {
        let looked_at = self.checked_at == Some(self.tasks.runs);
        if self.tasks.awake || self.tasks.count == 0 || looked_at {
            return;
        }
        self.tasks.awake = self.entries == Some(0) || watch.any_awaits_monitor(&self.tasks.pids);
        if !self.tasks.awake {
            self.checked_at = Some(self.tasks.runs);
        }
    }

    /// Whether its first program is still to begin. The tasks that there are until then wait for each other, on no clock.
    pub(crate) fn awaits_first_program(&self) -> bool {
        self.clock.entries() == 0 && !self.has_ended()
    }

    /// Returns the first deadline of its waits and timers, virtual time. The caller knows that its tasks sleep. The result is not
    /// cached: a task may have run since without a counted switch.
    pub(crate) fn next_deadline(&self) -> Option<VirtualInstant> {
        self.clock.next_deadline()
    }

    /// Releases the container: it goes on by itself, and belongs to no experiment any more.
    pub(crate) fn release(&mut self) {
        // A container that has ended has no record any more. The record comes first: what follows wakes a monitor, which looks there
        // whether it has to care for a clock that errs.
        let _ = self.handle().clone().set_experiment(None);
        self.let_go();
    }

    /// Lets the clock and the tasks run by themselves from now on.
    pub(crate) fn let_go(&mut self) {
        self.has_not_begun = false;
        self.clock.let_go(self.rate);
        self.clock.allow_sends_until(VirtualInstant::NEVER);
        self.cgroup.thaw();
        self.stopped = false;
    }

    /// Stops the clock at `at`, and the tasks. If programs have seen a later time, the clock stands there until the other
    /// containers have come as far.
    pub(crate) fn stop_at(&mut self, at: VirtualInstant) -> anyhow::Result<()> {
        match self.clock.entries() {
            0 => self.clock.begin_at(at),
            _ => self.clock.stand(at),
        }
        self.stop_tasks()
    }

    /// Stops the container's tasks.
    pub(crate) fn stop_tasks(&mut self) -> anyhow::Result<()> {
        self.clock.set_stands_while_tasks_run(self.compute == ComputeTime::None);
        self.cgroup.freeze()?;
        self.clock.repeat_interrupted_calls(&self.cgroup.pids()?);
        self.stopped = true;
        self.account.clear();
        Ok(())
    }

    /// Lets the tasks run at the begin of a slice, whose clock is set: signals those whose deadlines have come, and all if they were
    /// stopped.
    pub(crate) fn let_tasks_run(&mut self) {
        failpoint(self.clock.registry(), Failpoint::SliceBegun);
        if self.stopped {
            // Notify first: a wait that the freezer broke off continues only if its signal is pending when its thread runs.
            self.clock.notify_all(&self.tasks.pids);
            self.cgroup.thaw();
            self.stopped = false;
        } else {
            self.clock.notify_due(&self.tasks.pids);
        }
        failpoint(self.clock.registry(), Failpoint::SliceRunning);
    }

    /// Whether its clock may jump once more before a reader of its history has to catch up. Counts the jump.
    pub(crate) fn may_step(&mut self) -> bool {
        match &mut self.steps_left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Takes the container's surplus of earlier slices off its next one: returns the virtual time, at most `most`, by which its
    /// clock advances without its tasks. So it gets its due share of the processor for each virtual second.
    pub(crate) fn skip_surplus(&mut self, most: Span) -> Span {
        let paid = self.account.take_surplus(self.real_of(most));
        let (num, den) = (i128::from(self.rate.num()), i128::from(self.rate.den()));
        Span(saturate(i128::from(paid.0) * num / den)).min(most)
    }

    /// Returns the real time that `span` of its virtual time takes.
    pub(crate) fn real_of(&self, span: Span) -> Span {
        let (num, den) = (i128::from(self.rate.num()), i128::from(self.rate.den()));
        Span(saturate(i128::from(span.0) * den / num))
    }

    /// Adds a slice of real length `took` to the account; `due` was due to the container. `seen` are its tasks now. `self.tasks` is
    /// their state before the slice.
    pub(crate) fn settle_account(&mut self, took: Duration, due: Span, seen: &[TaskState]) {
        let before = std::mem::replace(&mut self.tasks, ContainerTasks::of(seen));
        let received = account::time_received(took, &before, &self.tasks, self.processors());
        self.account.record(received, due);
    }

    /// Lets sends go up to a new limit if one of its tasks has run since the last limit: all other clocks have come to `others`.
    pub(crate) fn allow_sends_up_to(&mut self, others: VirtualInstant) {
        if self.sends_allowed_at != Some(self.tasks.runs) {
            self.sends_allowed_at = Some(self.tasks.runs);
            // A thread that waited to send runs now.
            self.tasks.awake |= self.clock.allow_sends_until(others) > 0;
        }
    }

    /// Lets sends go up to a new limit after a broken-off slice: all other clocks have come to `others`. Returns whether a
    /// thread waited to send.
    pub(crate) fn resume_sends(&mut self, others: VirtualInstant) -> bool {
        self.waits_to_send = false;
        self.tasks.awake = self.clock.allow_sends_until(others) > 0;
        self.tasks.awake
    }

    /// Whether no task has run since a slice found all of them at rest.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.stopped && !self.tasks.awake && self.rested_at == Some(self.tasks.runs)
    }

    /// Whether it is at rest and has nothing to do before `end`.
    pub(crate) fn is_idle_until(&self, end: VirtualInstant) -> bool {
        self.is_at_rest() && self.next_deadline().is_none_or(|next| next > end)
    }

    /// Whether the container has anything to do, now or later.
    pub(crate) fn awake_or_waiting(&self) -> bool {
        self.stopped || self.tasks.awake || self.next_deadline().is_some()
    }

    /// Whether all programs of the container have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.cgroup.pids().map_or(true, |pids| pids.is_empty())
    }

    /// Returns the CPU time since the experiment was synchronized.
    pub fn cpu_time(&self) -> Duration {
        self.cgroup.cpu_time().unwrap_or_default().saturating_sub(self.statistics.cpu_before)
    }

    /// Resets the statistics.
    pub(crate) fn reset_statistics(&mut self) {
        let cpu_before = self.cgroup.cpu_time().unwrap_or_default();
        self.statistics = ContainerStatistics { cpu_before, ..ContainerStatistics::default() };
    }

    /// Number of processors that it has in its slices.
    pub(crate) fn processors(&self) -> u32 {
        self.cpus.numbers().len() as u32
    }

    pub(crate) fn handle(&self) -> &Container {
        &self.handle
    }
}
